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

    /// Opens the store for a short subcommand: its leases outlive it.
    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        open(&self.url, Liveness::None).await
    }
}

impl Opener {
    /// Opens the store. This may start threads.
    pub async fn open(self) -> Result<Arc<dyn Store>> {
        open(&self.url, Liveness::Prepared(self.prepared)).await
    }
}

async fn open(url: &str, liveness: Liveness) -> Result<Arc<dyn Store>> {
    tenure_stores::open_with(url, OpenOptions::new().liveness(liveness)).await
}
