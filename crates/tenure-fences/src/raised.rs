//! The first act of a new leader: it raises every fence, before any real work comes.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure::{Elector, Tenure};

use crate::error::{FenceError, Result};

/// How long a leader waits before it tries again to raise a fence that could not be reached.
const PAUSE: Duration = Duration::from_millis(500);

/// The fences of all that a leader writes to, raised in one go when it is elected: from
/// then on its predecessor is locked out, even if no real work comes for hours.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("journal");
/// use std::sync::Arc;
/// use tenure::{Elector, MemoryStore, Settings};
/// use tenure_fences::{Fences, file::FileFence};
///
/// let journal = Arc::new(FileFence::new(path));
/// let fences = Fences::new().and("journal", {
///     let journal = journal.clone();
///     move |tenure| {
///         let journal = journal.clone();
///         async move { journal.raise(&tenure) }
///     }
/// });
/// let elector = Elector::start(MemoryStore::new(), Settings::new("k")?)?;
/// let tenure = elector.elected().await?;
/// fences.raise(&tenure).await?;
/// assert_eq!(journal.seen()?, tenure.token());
/// # elector.stop().await; Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "fences that nobody raises protect nothing yet"]
pub struct Fences {
    all: Vec<Named>,
}

struct Named {
    name: String,
    raise: Box<dyn Fn(Tenure) -> BoxFuture<'static, Result<()>> + Send + Sync>,
}

impl Fences {
    /// No fence yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more, with what raises it.
    pub fn and<F, R>(mut self, name: impl Into<String>, raise: F) -> Self
    where
        F: Fn(Tenure) -> R + Send + Sync + 'static,
        R: Future<Output = Result<()>> + Send + 'static,
    {
        self.all.push(Named {
            name: name.into(),
            raise: Box::new(move |tenure| Box::pin(raise(tenure))),
        });
        self
    }

    /// Raises them all, one after the other, and says which one was the first to fail.
    pub async fn raise(&self, tenure: &Tenure) -> Result<()> {
        for fence in &self.all {
            if let Err(error) = (fence.raise)(tenure.clone()).await {
                tracing::warn!(fence = fence.name, token = tenure.token().0, %error, "a fence was not raised");
                return Err(error);
            }
        }
        Ok(())
    }

    /// [`Elector::lead`], with all fences raised before the work of each tenure begins.
    ///
    /// A fence that cannot be raised is tried again for as long as the tenure lasts, and
    /// the work does not begin. If a fence has seen a greater token, the tenure is resigned:
    /// whoever is elected next has a greater one.
    pub async fn lead<F, W>(&self, elector: &Elector, work: F)
    where
        F: Fn(Tenure) -> W,
        W: Future<Output = ()>,
    {
        let work = &work;
        elector
            .lead(|tenure| async move {
                match self.raise_until_told(&tenure).await {
                    Ok(()) => work(tenure).await,
                    Err(FenceError::Stale(stale)) => {
                        tracing::error!(%stale, "this leader cannot write, so it resigns");
                        // Not from within the work: the elector waits for that to end.
                        let elector = elector.clone();
                        tokio::spawn(async move { elector.resign().await });
                    }
                    Err(_) => {}
                }
            })
            .await;
    }

    async fn raise_until_told(&self, tenure: &Tenure) -> Result<()> {
        loop {
            match self.raise(tenure).await {
                Err(error) if !error.is_over() => {}
                raised => return raised,
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = tenure.told_to_stop() => {}
            }
            if tenure.stopping().is_cancelled() {
                let token = tenure.token();
                let reason = tenure.end_reason().unwrap_or(tenure::EndReason::Stopped);
                return Err(FenceError::Ended { token, reason });
            }
        }
    }
}

impl fmt::Debug for Fences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.all.iter().map(|fence| &fence.name))
            .finish()
    }
}
