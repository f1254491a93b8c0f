//! The token survives the loss of the last writes, because it follows the clock.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::path::Path;

use tenure::Store;
use tenure_sqlite::SqliteStore;

use support::{LONG, granted};

/// Copies the database as a power cut might leave it: the log cut to `log_bytes`.
fn after_power_cut(path: &Path, to: &Path, log_bytes: u64) {
    std::fs::copy(path, to).unwrap();
    let log = |path: &Path| format!("{}-wal", path.display());
    if log_bytes > 0 {
        std::fs::copy(log(path), log(to)).unwrap();
        let cut = std::fs::OpenOptions::new()
            .write(true)
            .open(log(to))
            .unwrap();
        cut.set_len(log_bytes).unwrap();
    }
}

#[tokio::test]
async fn token_survives_the_loss_of_the_last_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut token = granted(&store, "k", "a", LONG).await.token;
    for _ in 0..20 {
        let lease = store.read(&support::key("k")).await.unwrap().unwrap();
        store.release(&lease).await.unwrap();
        token = granted(&store, "k", "a", LONG).await.token;
    }
    let log = std::fs::metadata(folder.path().join("leases.db-wal"))
        .unwrap()
        .len();
    assert!(log > 0, "the tokens are in the log");
    for (number, kept) in [0, log / 3, log / 2, log - 4096, log - 1]
        .into_iter()
        .enumerate()
    {
        let copy = folder.path().join(format!("copy-{number}.db"));
        after_power_cut(&path, &copy, kept);
        let booted = SqliteStore::options(&copy)
            .boot_id("the next boot")
            .open()
            .unwrap();
        let next = granted(&booted, "k", "b", LONG).await.token;
        assert!(
            next > token,
            "{next} after {token}, {kept} of {log} bytes kept"
        );
    }
}
