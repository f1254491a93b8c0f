//! A renewal needs no fsync: counted. The only test here, since the count is of the whole process.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::{Renewed, Store};
use tenure_sqlite::SqliteStore;

use support::{LONG, granted};

static SYNCS: AtomicU64 = AtomicU64::new(0);

// These stand in for the system's own in this test binary, so that SQLite's calls can be
// counted. They go on to the kernel without the C library, hence without coming back here.

#[expect(
    unsafe_code,
    reason = "it must have the C name, which nothing else here defines"
)]
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: i32) -> i32 {
    SYNCS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller of fsync(2) promises that the descriptor is open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fsync(fd).map_or(-1, |()| 0)
}

#[expect(
    unsafe_code,
    reason = "it must have the C name, which nothing else here defines"
)]
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: i32) -> i32 {
    SYNCS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller of fdatasync(2) promises that the descriptor is open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fdatasync(fd).map_or(-1, |()| 0)
}

#[tokio::test]
async fn renewals_need_no_fsync() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    let before = SYNCS.load(Ordering::SeqCst);
    assert!(before > 0, "making the database syncs, so the count works");
    for _ in 0..500 {
        let renewed = store.renew(&lease, LONG).await.unwrap();
        assert!(matches!(renewed, Renewed::Renewed(..)));
    }
    let syncs = SYNCS.load(Ordering::SeqCst) - before;
    assert_eq!(syncs, 0, "500 renewals");
    // Above a thousand pages the log goes into the file, once for all of them.
    for _ in 0..1500 {
        store.renew(&lease, LONG).await.unwrap();
    }
    let syncs = SYNCS.load(Ordering::SeqCst) - before;
    assert!((1..=10).contains(&syncs), "{syncs} syncs for 2000 renewals");
}
