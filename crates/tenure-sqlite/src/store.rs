//! The store: the contract of `tenure`, answered by the worker's thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, HolderRequest, Key, Lease, Notice, Released, Renewed, Result,
    Store, StoreTraits,
};

use crate::judge::Judge;
use crate::leases::Leases;
use crate::options::SqliteOptions;
use crate::watch::Hub;
use crate::worker::Worker;

/// Leases in a SQLite file, for processes on one machine. Clones share it.
///
/// Not for a network file system, nor for a file that two machines see.
///
/// ```
/// use std::time::Duration;
/// use tenure::{AcquireRequest, Acquired, Attempt, Holder, Key, Store};
/// use tenure_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("leases.db");
/// let store = SqliteStore::open(&path)?;
/// let request = AcquireRequest {
///     key: Key::new("billing/nightly")?,
///     holder: Holder::generate(),
///     ttl: Duration::from_secs(30),
///     attempt: Attempt::first(7),
///     ended: None,
/// };
/// let Acquired::Granted(lease) = store.acquire(&request).await? else {
///     panic!("a new file holds no lease");
/// };
/// store.release(&lease).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    worker: Worker,
    hub: Arc<Hub>,
    path: PathBuf,
}

impl SqliteStore {
    /// Opens the database at `path`, or makes it, with its folders, if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options(path).open()
    }

    /// Opens it with other settings than the usual.
    pub fn options(path: impl AsRef<Path>) -> SqliteOptions {
        SqliteOptions::new(path.as_ref())
    }

    /// Where the database lies, without links.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    pub(crate) fn new(worker: Worker, path: PathBuf, judge: Judge) -> Self {
        let hub = Hub::new(path.clone(), judge);
        let shared = Shared { worker, hub, path };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn worker(&self) -> &Worker {
        &self.shared.worker
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.hub.close();
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("sqlite");
        traits.ttl_min = Duration::from_millis(1);
        traits.watch = true;
        traits.list = true;
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let (request, hub) = (request.clone(), self.shared.hub.clone());
        let acquire = move |leases: &mut Leases| {
            let acquired = leases.acquire(&request)?;
            if matches!(acquired, Acquired::Granted(_)) {
                hub.poke();
            }
            Ok(acquired)
        };
        self.worker().run(acquire).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        let lease = lease.clone();
        let renew = move |leases: &mut Leases| leases.renew(&lease, ttl);
        self.worker().run(renew).await
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let (lease, hub) = (lease.clone(), self.shared.hub.clone());
        let release = move |leases: &mut Leases| {
            let released = leases.release(&lease)?;
            hub.poke();
            Ok(released)
        };
        self.worker().run(release).await
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let key = key.clone();
        let read = move |leases: &mut Leases| leases.read(&key);
        self.worker().run(read).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let prefix = prefix.to_owned();
        let list = move |leases: &mut Leases| leases.list(&prefix, limit);
        self.worker().run(list).await
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let mut answers: Vec<Option<Result<Renewed>>> = leases
            .iter()
            .map(|(_, ttl)| self.traits().check_ttl(*ttl).err().map(Err))
            .collect();
        let good = leases.iter().zip(&answers);
        let good: Vec<_> = good
            .filter(|(_, refused)| refused.is_none())
            .map(|(lease, _)| lease.clone())
            .collect();
        let count = good.len();
        let renew = move |leases: &mut Leases| Ok(leases.renew_many(&good));
        let renewed = match self.worker().run(renew).await {
            Ok(renewed) => renewed,
            Err(error) => vec![Err(error); count],
        };
        let open = answers.iter_mut().filter(|answer| answer.is_none());
        for (answer, renewed) in open.zip(renewed) {
            *answer = Some(renewed);
        }
        answers.into_iter().flatten().collect()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let (key, hub) = (key.clone(), self.shared.hub.clone());
        // On the worker, which reads what the first change is measured against.
        let watch = move |leases: &mut Leases| {
            let seen = leases.row(&key)?;
            hub.join(&key, seen)
        };
        self.worker().run(watch).await
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let (key, hub) = (key.clone(), self.shared.hub.clone());
        let ask = move |leases: &mut Leases| {
            let asked = leases.ask(&key, &request)?;
            hub.poke();
            Ok(asked)
        };
        self.worker().run(ask).await
    }
}
