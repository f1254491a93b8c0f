//! Opening a store from its URL.

use std::sync::Arc;

use tenure::{Result, Store};

use crate::scheme::place;

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
    pub(crate) lock: Option<tenure_sqlite::HolderLock>,
}

/// How a store is opened.
#[derive(Debug, Default)]
#[must_use = "hand it to `open_with`"]
pub struct OpenOptions {
    pub(crate) liveness: Liveness,
    pub(crate) inline: bool,
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
    place(url).map(|_| ())
}

/// Does what has to be done before a process starts children that are to count as the
/// holder too: on a file, makes and locks the file that they inherit. Starts no thread.
pub fn prepare(url: &str) -> Result<Prepared> {
    place(url)?.prepare()
}

/// Opens the store of this URL with the usual options.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, OpenOptions::new()).await
}

/// Opens the store of this URL. One that is a server is not asked yet: it may be down.
pub async fn open_with(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    place(url)?.open(options).await
}

/// What has to be created before this store can be used, and with which rights: text for
/// people to read and run.
pub fn schema(url: &str) -> Result<String> {
    Ok(place(url)?.schema())
}

/// Creates what [`schema`] prints, if it is not there, and says in a sentence what was done.
pub async fn init(url: &str) -> Result<String> {
    place(url)?.init().await
}
