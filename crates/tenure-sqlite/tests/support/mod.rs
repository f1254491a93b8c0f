//! What the tests of this store share: requests, waiting, and file systems to try.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{
    AcquireRequest, Acquired, Attempt, BootClock, Clock, Holder, Key, Lease, Result, Store,
};

pub const LONG: Duration = Duration::from_secs(600);

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

/// Waits until `ready` gives something, at most ten seconds.
pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = BootClock.now() + Duration::from_secs(10);
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(BootClock.now() < limit, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn error_text<T: std::fmt::Debug>(result: Result<T>) -> (tenure::ErrorKind, String) {
    let error = result.unwrap_err();
    (error.kind(), error.to_string())
}

/// A small file system in memory, if this user may mount one.
pub struct Mount {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mount {
    pub fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mount");
        std::fs::create_dir(&path).unwrap();
        let mounted = mount(
            &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"],
            &path,
        );
        mounted.then_some(Self {
            path,
            _folder: folder,
        })
    }

    /// Whether it could be done: not while somebody has a file open to write.
    pub fn make_read_only(&self) -> bool {
        mount(&["-o", "remount,ro"], &self.path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, since the store's thread may still be closing its files.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let mut mount = Command::new("mount");
    mount
        .args(arguments)
        .arg(at)
        .stderr(std::process::Stdio::null());
    mount.status().is_ok_and(|status| status.success())
}

/// Says that a test cannot be made here; where all means must be there, that is a failure.
pub fn cannot(what: &str) {
    let everything_is_there = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!everything_is_there, "missing here: {what}");
    eprintln!("not tested here, missing: {what}");
}

/// Every file in a folder with its bytes.
pub fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}
