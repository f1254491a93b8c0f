//! From a store URL to a store, and what a run prepares before it forks.

use std::sync::Arc;

use tenure::{Result, Store};
use tenure_stores::{Liveness, OpenOptions, Prepared};

/// Where leases live: a URL that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    url: String,
}

/// A store that a run is about to open.
#[derive(Debug)]
pub struct Opener {
    url: String,
    prepared: Prepared,
}

impl Place {
    /// Checks the URL; none means the user's own file. Nothing is opened.
    pub fn new(url: Option<&str>) -> Result<Self> {
        let url = match url {
            Some(url) => url.to_owned(),
            None => tenure_stores::default_url()?,
        };
        tenure_stores::check(&url)?;
        Ok(Self { url })
    }

    /// Makes the lock that the guardian and the command are to inherit. Before any fork.
    pub fn prepare(&self) -> Result<Opener> {
        Ok(Opener {
            url: self.url.clone(),
            prepared: tenure_stores::prepare(&self.url)?,
        })
    }

    /// What has to be created before the first use.
    pub fn schema(&self) -> Result<String> {
        tenure_stores::schema(&self.url)
    }

    /// Creates it, and says what was done.
    pub async fn init(&self) -> Result<String> {
        tenure_stores::init(&self.url).await
    }

    /// Opens the store for a short subcommand: its leases outlive it.
    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        let options = OpenOptions::new().liveness(Liveness::None).inline(true);
        tenure_stores::open_with(&self.url, options).await
    }
}

impl Opener {
    /// Opens the store. This may start threads.
    ///
    /// A file is used on this thread, which is cheaper: should its disk hang, then the
    /// guardian, another process, still ends the command in time.
    pub async fn open(self) -> Result<Arc<dyn Store>> {
        let liveness = Liveness::Prepared(self.prepared);
        let options = OpenOptions::new().liveness(liveness).inline(true);
        tenure_stores::open_with(&self.url, options).await
    }
}
