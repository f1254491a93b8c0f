//! The store: each operation is one script on the server that has the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use redis::Cmd;
use redis::aio::ConnectionLike;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, Holder, HolderRequest, Key, Lease, Loss, Notice,
    Released, Renewed, Result, Store, StoreTraits,
};

use crate::answer::{Answer, STEP_DOWN};
use crate::names::Names;
use crate::options::{self, RedisOptions};
use crate::reach::{Given, Reach};
use crate::scripts::{self, Atomic};
use crate::watch::Watches;

/// By how many ms the expiries of a record and its hash may have moved apart while their
/// slot moved from one node of a Cluster to another. Nowhere else do they move.
const SLACK_MS: u64 = 1000;

/// Leases on Redis or Valkey. Clones share the connection.
///
/// ```no_run
/// # fn main() -> tenure::Result<()> {
/// let store = tenure_redis::RedisStore::open(
///     tenure_redis::RedisOptions::from_url("redis://localhost")?,
/// )?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    prefix: String,
    reach: Arc<Reach>,
    watches: Watches,
    watch_ids: AtomicU64,
}

/// The arguments of a script.
type Arguments = Vec<String>;

impl RedisStore {
    /// A store that connects when it is first used, and again when a connection broke.
    pub fn open(options: RedisOptions) -> Result<Self> {
        let (prefix, reach) = options.into_reach()?;
        Ok(Self::new(prefix, reach))
    }

    /// A store on a connection of yours to one server: a `MultiplexedConnection` or a
    /// `ConnectionManager`, for example.
    ///
    /// It must not send a command again whose answer was lost. Those two do not.
    /// A call that is dropped does not close it, so set a time limit for answers on it.
    pub fn with_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::given(Given::new(connection, true))
    }

    /// A store on a cluster connection of yours, with `retries(0)`: it must not send a
    /// command again whose answer was lost. It cannot list leases.
    pub fn with_cluster_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::given(Given::new(connection, false))
    }

    fn given(given: Given) -> Self {
        Self::new(options::PREFIX.to_owned(), Reach::Given(given))
    }

    fn new(prefix: String, reach: Reach) -> Self {
        Self {
            inner: Arc::new(Inner {
                prefix,
                reach: Arc::new(reach),
                watches: Watches::default(),
                watch_ids: AtomicU64::new(0),
            }),
        }
    }

    /// For a connection of yours: the client by which changes are pushed, on one more
    /// connection. Without it this store cannot watch.
    pub fn pushed_by(self, client: redis::Client) -> Result<Self> {
        let inner = self.alone()?;
        let Some(Reach::Given(mut given)) = Arc::into_inner(inner.reach) else {
            return Err(Error::invalid(
                "a store that makes its own connections needs no client",
            ));
        };
        given.client = Some(client);
        Ok(Self::new(inner.prefix, Reach::Given(given)))
    }

    /// The same store with another prefix of its records.
    pub fn prefixed(self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        options::check_prefix(&prefix)?;
        let mut inner = self.alone()?;
        inner.prefix = prefix;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn alone(self) -> Result<Inner> {
        Arc::into_inner(self.inner).ok_or_else(|| {
            Error::invalid("the store is in use already: set it up before it is cloned")
        })
    }

    /// Says that there is nothing to create, once the server has been reached and the
    /// rights to read are there.
    pub async fn init(&self) -> Result<String> {
        let probe = Key::new("tenure init")?;
        self.read(&probe).await?;
        Ok(format!(
            "Redis needs nothing created; {} answers, and leases will be at \"{}…\".",
            self.reach(),
            self.prefix()
        ))
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.inner.prefix
    }

    pub(crate) fn reach(&self) -> &Arc<Reach> {
        &self.inner.reach
    }

    pub(crate) fn names(&self, key: &Key) -> Names {
        Names::new(self.prefix(), key, self.reach().database())
    }

    fn command(&self, word: &str, script: &str, names: &Names, arguments: &[String]) -> Cmd {
        let mut command = redis::cmd(word);
        command
            .arg(script)
            .arg(2)
            .arg(&names.record)
            .arg(&names.beside);
        for argument in arguments {
            command.arg(argument);
        }
        let slack = if self.reach().is_cluster() {
            SLACK_MS
        } else {
            0
        };
        command.arg(slack);
        command
    }

    /// Runs a script by its hash, and in full only if the server says that it does not
    /// know it: then nothing ran.
    async fn run(&self, script: &Atomic, names: &Names, arguments: &[String]) -> Result<Answer> {
        let reach = self.reach();
        let by_hash = self.command("EVALSHA", &script.hash, names, arguments);
        let mut said = reach.send(names.slot, &by_hash).await?;
        if said
            .as_ref()
            .is_err_and(|refusal| refusal.is_unknown_script())
        {
            let in_full = self.command("EVAL", &script.text, names, arguments);
            said = reach.send(names.slot, &in_full).await?;
        }
        let value = said.map_err(|refusal| reach.refused(&refusal))?;
        Answer::new(&value, names)
    }

    /// Runs a script for many leases, those of one server in one round trip.
    pub(crate) async fn run_many(
        &self,
        script: &Atomic,
        calls: &[(Names, Arguments)],
    ) -> Vec<Result<Answer>> {
        let reach = self.reach();
        let commands: Vec<_> = calls
            .iter()
            .map(|(names, arguments)| {
                let command = self.command("EVALSHA", &script.hash, names, arguments);
                (names.slot, command)
            })
            .collect();
        let all = reach.send_many(&commands).await;
        let mut answers = Vec::with_capacity(calls.len());
        for ((names, arguments), said) in calls.iter().zip(all) {
            answers.push(match said {
                Ok(Err(refusal)) if refusal.is_unknown_script() => {
                    self.run(script, names, arguments).await
                }
                Ok(Err(refusal)) => Err(reach.refused(&refusal)),
                Ok(Ok(value)) => Answer::new(&value, names),
                Err(error) => Err(error),
            });
        }
        answers
    }
}

/// A ttl in whole milliseconds, never less than it is.
fn ttl_ms(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

fn renewal(lease: &Lease, ttl: Duration) -> Arguments {
    vec![
        lease.holder.to_string(),
        lease.token.to_string(),
        ttl.as_nanos().to_string(),
        ttl_ms(ttl),
    ]
}

fn renewed(answer: &Answer, lease: &Lease, ttl: Duration, names: &Names) -> Result<Renewed> {
    match answer.word.as_str() {
        "renewed" => {
            let (lease, request) = answer.renewed(lease, ttl, names)?;
            Ok(Renewed::Renewed(lease, request))
        }
        "superseded" => {
            let found = answer.lease(&lease.key, names)?;
            Ok(Renewed::Lost(Loss::Superseded {
                holder: found.lease.holder,
                token: found.lease.token,
            }))
        }
        "expired" => Ok(Renewed::Lost(Loss::Expired)),
        _ => Ok(Renewed::Lost(Loss::Deleted)),
    }
}

#[async_trait]
impl Store for RedisStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("redis");
        let reach = self.reach();
        traits.watch = reach.can_push();
        traits.list = !matches!(&**reach, Reach::Given(given) if !given.one_server);
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let names = self.names(&request.key);
        let arguments = [
            request.holder.to_string(),
            request.attempt.as_u64().to_string(),
            request.ttl.as_nanos().to_string(),
            ttl_ms(request.ttl),
            names.channel.clone(),
        ];
        let answer = self.run(&scripts::ACQUIRE, &names, &arguments).await?;
        let lease = answer.lease(&request.key, &names)?.lease;
        Ok(match answer.word.as_str() {
            "granted" => Acquired::Granted(lease),
            _ => Acquired::Held(lease),
        })
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        let names = self.names(&lease.key);
        let arguments = renewal(lease, ttl);
        let answer = self.run(&scripts::RENEW, &names, &arguments).await?;
        renewed(&answer, lease, ttl, &names)
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let names = self.names(&lease.key);
        let arguments = [
            lease.holder.to_string(),
            lease.token.to_string(),
            names.channel.clone(),
        ];
        let answer = self.run(&scripts::RELEASE, &names, &arguments).await?;
        Ok(match answer.word.as_str() {
            "released" => Released::Released,
            _ => Released::NotHeld,
        })
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let names = self.names(key);
        let answer = self.run(&scripts::READ, &names, &[]).await?;
        match answer.word.as_str() {
            "free" => Ok(None),
            _ => Ok(Some(answer.lease(key, &names)?.lease)),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        if !self.traits().list {
            return Err(self.cannot("list leases on a cluster connection that it was given"));
        }
        self.list_leases(prefix, limit).await
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let traits = self.traits();
        let mut calls = Vec::with_capacity(leases.len());
        for (lease, ttl) in leases {
            if traits.check_ttl(*ttl).is_ok() {
                calls.push((self.names(&lease.key), renewal(lease, *ttl)));
            }
        }
        let mut answers = self.run_many(&scripts::RENEW, &calls).await.into_iter();
        let mut calls = calls.iter();
        let mut all = Vec::with_capacity(leases.len());
        for (lease, ttl) in leases {
            if let Err(error) = traits.check_ttl(*ttl) {
                all.push(Err(error));
            } else if let (Some(answer), Some((names, _))) = (answers.next(), calls.next()) {
                all.push(answer.and_then(|answer| renewed(&answer, lease, *ttl, names)));
            }
        }
        all
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        if !self.traits().watch {
            return Err(self.cannot("push changes without a client to connect with"));
        }
        let id = self.inner.watch_ids.fetch_add(1, Ordering::Relaxed);
        let watches = &self.inner.watches;
        let names = self.names(key);
        let notices = watches.watch(self.reach(), key, names, id).await?;
        Ok(notices.boxed())
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let word = match request {
            HolderRequest::StepDown => STEP_DOWN,
            other => return Err(self.cannot(&format!("carry the request {other:?}"))),
        };
        let names = self.names(key);
        let arguments = [word.to_owned(), names.channel.clone()];
        let answer = self.run(&scripts::ASK, &names, &arguments).await?;
        if answer.word == "free" {
            return Ok(Asked::NotHeld);
        }
        let found = answer.lease(key, &names)?;
        let holder: Holder = found.lease.holder;
        if !found.ours {
            return Err(Error::unsupported(format!(
                "{key} is held by {holder}, which does not take part in requests: ask it by its own means"
            )));
        }
        Ok(Asked::Left {
            holder,
            token: found.lease.token,
        })
    }
}
