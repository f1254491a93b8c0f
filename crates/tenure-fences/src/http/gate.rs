//! Who may pass: the greatest token of each resource, and the requests that are under way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use tenure::{Tenure, Token};
use tokio::sync::Notify;

use super::kept::{Kept, Tokens};
use super::layer::FenceLayer;
use crate::error::{FenceError, Result};
use crate::token::{check, sendable};

/// How many resources one file keeps the token of, unless told otherwise.
const RESOURCES_MAX: usize = 1000;

/// How long a greater token waits for the requests of older ones.
const WAIT: Duration = Duration::from_secs(30);

/// The greatest token of each resource of a service, kept in a file.
///
/// Cheap to clone; all clones are the same fence.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("fences.json");
/// use tenure_fences::http::HttpFence;
///
/// let fence = HttpFence::open(path)?;
/// let layer = fence.layer("jobs")?; // every request writes to the one resource `jobs`
/// let by_path = fence.layer_by(|request| {
///     // Reading needs no token; each path is a resource of its own.
///     (!request.method.is_safe()).then(|| request.uri.path().to_owned())
/// });
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct HttpFence {
    shared: Arc<Shared>,
    wait: Duration,
    resources_max: usize,
}

#[derive(Debug)]
struct Shared {
    gates: Mutex<BTreeMap<String, Gate>>,
    changed: Notify,
    kept: Arc<Mutex<Kept>>,
}

/// One resource.
#[derive(Debug, Default)]
struct Gate {
    /// The greatest that has come. Older ones are refused from then on.
    greatest: u64,
    /// The greatest that is on disk: what passes has to be there.
    on_disk: u64,
    /// How many requests are under way, by token.
    running: BTreeMap<u64, usize>,
}

/// Why a request did not pass.
#[derive(Debug)]
pub(crate) enum Refused {
    By(FenceError),
    /// One resource more than the file keeps.
    Full(FenceError),
}

/// A request that is under way: until it is dropped no greater token passes.
#[derive(Debug)]
pub(crate) struct Passed {
    shared: Arc<Shared>,
    resource: String,
    token: u64,
}

impl HttpFence {
    /// The fence that is kept in this file, with what it has seen before. Blocks for the
    /// time of one read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (kept, tokens) = Kept::open(path.as_ref(), RESOURCES_MAX)?;
        let gates = tokens.into_iter().map(|(resource, token)| {
            let gate = Gate {
                greatest: token,
                on_disk: token,
                ..Gate::default()
            };
            (resource, gate)
        });
        let shared = Shared {
            gates: Mutex::new(gates.collect()),
            changed: Notify::new(),
            kept: Arc::new(Mutex::new(kept)),
        };
        Ok(Self {
            shared: Arc::new(shared),
            wait: WAIT,
            resources_max: RESOURCES_MAX,
        })
    }

    /// With another limit than 30 s for waiting until the requests of older tokens have ended.
    #[must_use = "this returns the changed fence"]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// With a lower limit than 1000 for the number of resources.
    #[must_use = "this returns the changed fence"]
    pub fn resources_max(mut self, most: usize) -> Self {
        self.resources_max = most.min(RESOURCES_MAX);
        self
    }

    /// A layer for a service that is one resource as a whole: every request needs a token.
    pub fn layer(&self, resource: impl Into<String>) -> Result<FenceLayer> {
        let resource = crate::names::resource(resource)?;
        Ok(self.layer_by(move |_| Some(resource.clone())))
    }

    /// A layer that asks for the resource of each request; None lets it pass without a
    /// token, as for one that only reads.
    pub fn layer_by(
        &self,
        resource: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> FenceLayer {
        FenceLayer::new(self.clone(), Arc::new(resource))
    }

    /// Raises the fence from within the server's own process.
    pub async fn raise(&self, tenure: &Tenure, resource: &str) -> Result<()> {
        let token = sendable(tenure)?;
        match self.pass(resource, token).await {
            Ok(_passed) => Ok(()),
            Err(refused) => Err(refused.into_error()),
        }
    }

    /// The greatest token that has passed for this resource.
    pub fn seen(&self, resource: &str) -> Result<Token> {
        let gates = self.shared.gates();
        match gates.get(resource) {
            Some(gate) if gate.on_disk > 0 => Ok(Token(gate.on_disk)),
            _ => Err(FenceError::NeverFenced {
                resource: resource.to_owned(),
            }),
        }
    }

    /// Lets a token pass, in bounded time, or says why not.
    pub(crate) async fn pass(&self, resource: &str, token: Token) -> Result<Passed, Refused> {
        self.claim(resource, token)?;
        // Nearly always there is nothing to wait for, and then no timer is set either.
        if self.is_kept(resource, token)
            && let Some(passed) = self.shared.try_enter(resource, token)?
        {
            return Ok(passed);
        }
        let waited = async {
            self.keep(resource, token).await?;
            self.enter(resource, token).await
        };
        match tokio::time::timeout(self.wait, waited).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Refused::By(FenceError::Busy {
                resource: resource.to_owned(),
            })),
        }
    }

    /// From here on older tokens are refused.
    fn claim(&self, resource: &str, token: Token) -> Result<(), Refused> {
        let mut gates = self.shared.gates();
        if !gates.contains_key(resource) {
            if gates.len() >= self.resources_max {
                let text = format!("no token is kept for more than {} resources", gates.len());
                return Err(Refused::Full(FenceError::Invalid(text)));
            }
            crate::names::resource(resource)?;
        }
        let gate = gates.entry(resource.to_owned()).or_default();
        check(token, Token(gate.greatest))?;
        gate.greatest = token.0;
        Ok(())
    }

    fn is_kept(&self, resource: &str, token: Token) -> bool {
        let gates = self.shared.gates();
        let gate = gates.get(resource);
        gate.is_some_and(|gate| gate.on_disk >= token.0)
    }

    /// Waits until the token is on disk.
    async fn keep(&self, resource: &str, token: Token) -> Result<(), Refused> {
        if self.is_kept(resource, token) {
            return Ok(());
        }
        let shared = self.shared.clone();
        let written = tokio::task::spawn_blocking(move || shared.write()).await;
        match written {
            Ok(written) => written?,
            Err(error) => return Err(Refused::By(FenceError::resource(error))),
        }
        Ok(())
    }

    /// Waits until no request of an older token is under way.
    async fn enter(&self, resource: &str, token: Token) -> Result<Passed, Refused> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(passed) = self.shared.try_enter(resource, token)? {
                return Ok(passed);
            }
            changed.await;
        }
    }
}

impl Shared {
    fn gates(&self) -> MutexGuard<'_, BTreeMap<String, Gate>> {
        // Plain numbers, changed in steps that cannot panic half way.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all greatest tokens, one writer at a time.
    fn write(&self) -> Result<()> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, is_news) = {
            let gates = self.gates();
            let tokens = gates
                .iter()
                .map(|(name, gate)| (name.clone(), gate.greatest));
            let is_news = gates.values().any(|gate| gate.on_disk < gate.greatest);
            (tokens.collect::<Tokens>(), is_news)
        };
        if is_news {
            kept.write(&tokens)?;
        }
        let mut gates = self.gates();
        for (resource, token) in tokens {
            if let Some(gate) = gates.get_mut(&resource) {
                gate.on_disk = gate.on_disk.max(token);
            }
        }
        Ok(())
    }

    fn try_enter(self: &Arc<Self>, resource: &str, token: Token) -> Result<Option<Passed>> {
        let mut gates = self.gates();
        let gate = gates.entry(resource.to_owned()).or_default();
        // A greater one may have come while this one waited.
        check(token, Token(gate.greatest))?;
        let oldest = gate.running.first_key_value();
        if oldest.is_some_and(|(oldest, _)| *oldest < token.0) {
            return Ok(None);
        }
        *gate.running.entry(token.0).or_default() += 1;
        Ok(Some(Passed {
            shared: self.clone(),
            resource: resource.to_owned(),
            token: token.0,
        }))
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        {
            let mut gates = self.shared.gates();
            if let Some(gate) = gates.get_mut(&self.resource)
                && let Some(running) = gate.running.get_mut(&self.token)
            {
                *running -= 1;
                if *running == 0 {
                    gate.running.remove(&self.token);
                }
            }
        }
        self.shared.changed.notify_waiters();
    }
}

impl Refused {
    pub(crate) fn error(&self) -> &FenceError {
        match self {
            Refused::By(error) | Refused::Full(error) => error,
        }
    }

    fn into_error(self) -> FenceError {
        match self {
            Refused::By(error) | Refused::Full(error) => error,
        }
    }
}

impl From<FenceError> for Refused {
    fn from(error: FenceError) -> Self {
        Refused::By(error)
    }
}
