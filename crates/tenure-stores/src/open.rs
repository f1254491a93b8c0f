//! Opening a store from its URL.

use std::sync::Arc;

#[cfg(feature = "sqlite")]
use tenure::Error;
use tenure::{MemoryStore, Result, Store};

use crate::scheme::Place;

/// How others notice that a holder has died before its term has ended, on stores of
/// one machine. Stores that are servers cannot tell, and take no notice of it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Liveness {
    /// When this process and the children that it starts from now on are all gone.
    #[default]
    Process,
    /// Not at all: for commands that take a lease and exit.
    None,
    /// By what [`prepare`] made, before any child was started.
    Prepared(Prepared),
}

/// What [`prepare`] made for a store that is opened later.
#[derive(Debug, Default)]
pub struct Prepared {
    #[cfg(feature = "sqlite")]
    lock: Option<tenure_sqlite::HolderLock>,
}

/// How a store is opened.
#[derive(Debug, Default)]
#[must_use = "hand it to `open_with`"]
pub struct OpenOptions {
    liveness: Liveness,
    inline: bool,
}

impl OpenOptions {
    /// The usual ones.
    pub fn new() -> Self {
        Self::default()
    }

    /// How others notice that the holder has died. Default [`Liveness::Process`].
    pub fn liveness(mut self, liveness: Liveness) -> Self {
        self.liveness = liveness;
        self
    }

    /// Whether a store in a file may use the caller's thread for what does not have to
    /// wait. Cheaper, but a hung disk then holds up that thread. Off by default.
    pub fn inline(mut self, inline: bool) -> Self {
        self.inline = inline;
        self
    }
}

/// Checks the URL and opens nothing.
pub fn check(url: &str) -> Result<()> {
    Place::new(url).map(|_| ())
}

/// Does what has to be done before a process starts children that are to count as the
/// holder too: on a file, makes and locks the file that they inherit. Starts no thread.
pub fn prepare(url: &str) -> Result<Prepared> {
    match Place::new(url)? {
        Place::Memory => Ok(Prepared::default()),
        #[cfg(feature = "sqlite")]
        Place::Sqlite { path, .. } => Ok(Prepared {
            lock: Some(tenure_sqlite::HolderLock::create(path)?),
        }),
    }
}

/// Opens the store of this URL with the usual options.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, OpenOptions::new()).await
}

/// Opens the store of this URL.
pub async fn open_with(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    match Place::new(url)? {
        Place::Memory => {
            // Nobody outlives the process here.
            drop(options);
            Ok(Arc::new(MemoryStore::new()))
        }
        #[cfg(feature = "sqlite")]
        Place::Sqlite {
            path,
            network_allowed,
        } => {
            use tenure_sqlite::{Calls, Liveness as Life, SqliteStore};
            let liveness = match options.liveness {
                Liveness::Process => Life::Process,
                Liveness::None => Life::None,
                Liveness::Prepared(prepared) => prepared.lock.map(Life::Lock).ok_or_else(|| {
                    Error::invalid("what was prepared is for another store: prepare this one")
                })?,
            };
            let sqlite = SqliteStore::options(path)
                .liveness(liveness)
                .allow_network_file_system(network_allowed);
            let store = if options.inline {
                sqlite.calls(Calls::Inline).open()?
            } else {
                beside(move || sqlite.open()).await?
            };
            Ok(Arc::new(store))
        }
    }
}

/// Runs what blocks on a thread of its own, so that a slow disk does not hold up the caller's.
#[cfg(feature = "sqlite")]
async fn beside<T: Send + 'static>(
    blocking: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().name("tenure-open".into());
    let started = started.spawn(move || {
        // Nobody waits any more: the store is closed again.
        let _ = done.send(blocking());
    });
    let failed =
        |why: &str| Error::unavailable(format!("the store cannot be opened ({why}): try again"));
    started.map_err(|error| failed(&error.to_string()))?;
    answer.await.map_err(|_| failed("its thread ended"))?
}
