//! Stores are opened from their URLs, with the liveness that was asked for.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]
#![cfg(feature = "sqlite")]

use std::path::Path;
use std::time::Duration;

use tenure::{AcquireRequest, Acquired, Attempt, ErrorKind, Holder, Key, Store};
use tenure_stores::{Liveness, OpenOptions, open, open_with, prepare};

async fn take(store: &dyn Store) {
    let request = AcquireRequest {
        key: Key::new("k").unwrap(),
        holder: Holder::generate(),
        ttl: Duration::from_secs(30),
        attempt: Attempt::first(1),
        ended: None,
    };
    let acquired = store.acquire(&request).await.unwrap();
    assert!(matches!(acquired, Acquired::Granted(_)));
}

fn lock_files(database: &Path) -> usize {
    let folder = format!("{}.holders", database.display());
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[tokio::test]
async fn memory() {
    let store = open("memory:").await.unwrap();
    assert_eq!(store.traits().name, "memory");
    take(&*store).await;
}

#[tokio::test]
async fn sqlite_with_each_liveness() {
    let folder = tempfile::tempdir().unwrap();
    for (name, files) in [("process", 1), ("none", 0), ("prepared", 1)] {
        let path = folder.path().join(name);
        let url = format!("sqlite:{}", path.display());
        let liveness = match name {
            "process" => Liveness::Process,
            "none" => Liveness::None,
            _ => Liveness::Prepared(prepare(&url).unwrap()),
        };
        let options = OpenOptions::new().liveness(liveness);
        let store = open_with(&url, options).await.unwrap();
        assert_eq!(store.traits().name, "sqlite");
        take(&*store).await;
        assert_eq!(lock_files(&path), files, "{name}");
    }
}

#[tokio::test]
async fn bad_urls_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlit:{}/a.db", folder.path().display());
    let error = open(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(prepare(&url).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
