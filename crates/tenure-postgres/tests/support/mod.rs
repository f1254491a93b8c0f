//! What the tests of this store share: a table of one's own, requests, SQL by hand.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{
    AcquireRequest, Acquired, Attempt, BootClock, Clock, Error, Holder, Key, Lease, Result, Store,
};
use tenure_postgres::{PostgresOptions, PostgresStore};
use tenure_testbed::{Postgres, unique};
use tokio_postgres::{Client, NoTls};

pub const LONG: Duration = Duration::from_secs(600);

/// A table of its own on a server, dropped with the server.
#[derive(Clone)]
pub struct Bed {
    /// With the table in it, and nothing else after it.
    pub url: String,
    pub table: String,
}

impl Bed {
    /// On the server of all tests. None if there is no server here.
    pub async fn shared() -> Option<Self> {
        let url = blocking(Postgres::shared_url).await?;
        Some(Self::at(&url).await)
    }

    /// On this server.
    pub async fn on(server: &Postgres) -> Self {
        Self::at(&server.url()).await
    }

    /// On the server at this URL; the table is made.
    pub async fn at(url: &str) -> Self {
        let bed = Self::without_table(url);
        bed.store().init().await.unwrap();
        bed
    }

    pub fn without_table(url: &str) -> Self {
        let table = unique("leases");
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}table={table}");
        Self { url, table }
    }

    /// A store with a pool of its own.
    pub fn store(&self) -> PostgresStore {
        self.store_with("")
    }

    /// A store with more options, such as `&listen=off`.
    pub fn store_with(&self, more: &str) -> PostgresStore {
        PostgresStore::open(self.options(more)).unwrap()
    }

    pub fn options(&self, more: &str) -> PostgresOptions {
        PostgresOptions::from_url(&format!("{}{more}", self.url)).unwrap()
    }

    /// The same table at another address: of a proxy or a pooler.
    pub fn elsewhere(&self, url: &str) -> Self {
        Self {
            url: format!("{url}?table={}", self.table),
            table: self.table.clone(),
        }
    }

    /// A plain connection, as an operator has it with `psql`.
    pub async fn by_hand(&self) -> Client {
        let (url, _) = self.url.split_once('?').unwrap();
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs SQL with TABLE in it; gives the first column of the first row.
    pub async fn sql(&self, sql: &str) -> Option<String> {
        let sql = sql.replace("TABLE", &format!("public.\"{}\"", self.table));
        let answers = self.by_hand().await.simple_query(&sql).await.unwrap();
        answers.iter().find_map(|answer| match answer {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    }
}

/// Starts a server and the like, which blocks.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A request of a new attempt.
pub fn request(key: &str, holder: &str, ttl: Duration) -> AcquireRequest {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
    AcquireRequest {
        key: self::key(key),
        holder: Holder::new(holder).unwrap(),
        ttl,
        attempt: Attempt::first(ATTEMPTS.fetch_add(1, Ordering::Relaxed)),
        ended: None,
    }
}

pub async fn granted(store: &dyn Store, key: &str, holder: &str, ttl: Duration) -> Lease {
    match store.acquire(&request(key, holder, ttl)).await.unwrap() {
        Acquired::Granted(lease) => lease,
        Acquired::Held(lease) => panic!("{key} is held: {lease:?}"),
    }
}

pub async fn held(store: &dyn Store, key: &str, holder: &str) -> Lease {
    match store.acquire(&request(key, holder, LONG)).await.unwrap() {
        Acquired::Held(lease) => lease,
        Acquired::Granted(lease) => panic!("{key} was granted: {lease:?}"),
    }
}

/// Waits until `ready` gives something, at most twenty seconds.
pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = BootClock.now() + Duration::from_secs(20);
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(BootClock.now() < limit, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What has to end, within thirty seconds.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| panic!("{what} did not end within {limit:?}"))
}

pub fn failed<T: std::fmt::Debug>(result: Result<T>) -> Error {
    result.unwrap_err()
}

/// A holder that follows HAMode's rule: by its own clock, which may be wrong.
pub struct Hamode {
    client: Arc<Client>,
    table: String,
    clock_ahead: i64,
}

impl Hamode {
    pub async fn new(bed: &Bed) -> Self {
        Self {
            client: Arc::new(bed.by_hand().await),
            table: format!("public.\"{}\"", bed.table),
            clock_ahead: 0,
        }
    }

    /// Its machine's clock shows so many seconds more than the server's.
    pub fn clock_ahead(mut self, seconds: i64) -> Self {
        self.clock_ahead = seconds;
        self
    }

    /// Takes or renews: both are one to it. The time is the client's own, which here is
    /// the machine's, since the server runs on the same.
    pub async fn try_acquire(&self, key: &str, holder: &str, ttl: Duration) -> bool {
        let table = &self.table;
        let statement = format!(
            "INSERT INTO {table} (lease_name, holder_id, version, acquired_at_utc, expires_at_utc)
             VALUES ($1, $2, 1, to_timestamp($3), to_timestamp($4))
             ON CONFLICT (lease_name) DO UPDATE SET holder_id = EXCLUDED.holder_id,
               version = {table}.version + 1, acquired_at_utc = EXCLUDED.acquired_at_utc,
               expires_at_utc = EXCLUDED.expires_at_utc
             WHERE {table}.expires_at_utc < EXCLUDED.acquired_at_utc
               OR {table}.holder_id = EXCLUDED.holder_id
             RETURNING holder_id"
        );
        let wall = BootClock
            .wall()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let acquired = wall.as_secs_f64() + self.clock_ahead as f64;
        let expires = acquired + ttl.as_secs_f64();
        let rows = self
            .client
            .query(&statement, &[&key, &holder, &acquired, &expires])
            .await
            .unwrap();
        rows.first()
            .is_some_and(|row| row.get::<_, &str>(0) == holder)
    }

    pub async fn release(&self, key: &str, holder: &str) {
        let statement = format!(
            "DELETE FROM {} WHERE lease_name = $1 AND holder_id = $2",
            self.table
        );
        self.client
            .execute(&statement, &[&key, &holder])
            .await
            .unwrap();
    }
}

/// A small file system in memory, for the server's user to write in.
pub struct SmallDisk {
    pub path: std::path::PathBuf,
}

impl SmallDisk {
    /// For the owner of that other folder. None, said, if this user may not mount one.
    pub fn new(folder: &std::path::Path, size: &str, like: &std::path::Path) -> Option<Self> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let path = folder.join("small");
        std::fs::create_dir(&path).unwrap();
        let open = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder, open).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=777"),
            "tmpfs",
        ]);
        let mounted = mount
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            let everything_is_there = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!everything_is_there, "missing here: the right to mount");
            eprintln!("not tested here, missing: the right to mount");
            return None;
        }
        let owner = std::fs::metadata(like).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        Some(Self { path })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        // Lazily, since the server may still have its files open.
        let _ = umount.arg("-l").arg(&self.path).status();
    }
}
