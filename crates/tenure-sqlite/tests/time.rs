//! Boots, sleep, wrong wall clocks, and records that ended long ago.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rusqlite::Connection;
use tenure::{Asked, HolderRequest, Loss, ManualClock, Notice, Released, Renewed, Store, Token};
use tenure_sqlite::{Liveness, SqliteStore};

use support::{LONG, granted, held, key, until};

const TTL: Duration = Duration::from_secs(30);

struct Machine {
    folder: tempfile::TempDir,
    clock: ManualClock,
}

impl Machine {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: ManualClock::new(),
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("leases.db")
    }

    fn store(&self) -> SqliteStore {
        self.store_after("boot 1", self.clock.clone())
    }

    fn store_after(&self, boot: &str, clock: ManualClock) -> SqliteStore {
        let options = SqliteStore::options(self.path()).clock(Arc::new(clock));
        options.boot_id(boot).open().unwrap()
    }

    fn by_hand(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

/// The next notice, if one comes within ten seconds.
async fn next(notices: &mut BoxStream<'static, Notice>) -> Option<Notice> {
    let limit = Duration::from_secs(10);
    let next = tokio::time::timeout(limit, notices.next()).await;
    next.expect("no notice in ten seconds")
}

#[tokio::test]
async fn term_ends_by_the_boot_clock_to_the_nanosecond() {
    let machine = Machine::new();
    let store = machine.store();
    let lease = granted(&store, "k", "a", TTL).await;
    machine.clock.advance(TTL - Duration::from_nanos(1));
    assert_eq!(
        held(&store, "k", "b").await.rest,
        Some(Duration::from_nanos(1))
    );
    let Renewed::Renewed(lease, _) = store.renew(&lease, TTL).await.unwrap() else {
        panic!("it was still live");
    };
    machine.clock.advance(TTL);
    assert_eq!(
        store.renew(&lease, TTL).await.unwrap(),
        Renewed::Lost(Loss::Expired)
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    granted(&store, "k", "b", TTL).await;
}

#[tokio::test]
async fn lease_ends_while_the_machine_sleeps() {
    let machine = Machine::new();
    let store = machine.store();
    let lease = granted(&store, "k", "a", TTL).await;
    // Suspend: the boot clock runs on while no process does.
    machine.clock.advance(Duration::from_secs(8 * 3600));
    assert_eq!(store.read(&key("k")).await.unwrap(), None);
    assert_eq!(
        store.renew(&lease, TTL).await.unwrap(),
        Renewed::Lost(Loss::Expired)
    );
    assert!(granted(&store, "k", "b", TTL).await.token > lease.token);
}

#[tokio::test]
async fn lease_does_not_outlive_the_boot() {
    let machine = Machine::new();
    machine.clock.advance(Duration::from_secs(3600));
    let lease = granted(&machine.store(), "k", "a", LONG).await;
    // The new boot's clock shows less than when the lease was taken.
    let store = machine.store_after("boot 2", ManualClock::new());
    assert_eq!(store.read(&key("k")).await.unwrap(), None);
    assert_eq!(store.list("", 10).await.unwrap(), []);
    assert_eq!(
        store.ask(&key("k"), HolderRequest::StepDown).await.unwrap(),
        Asked::NotHeld
    );
    assert_eq!(
        store.renew(&lease, TTL).await.unwrap(),
        Renewed::Lost(Loss::Expired)
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    assert!(granted(&store, "k", "b", TTL).await.token > lease.token);
}

#[tokio::test]
async fn wall_clock_decides_nothing() {
    let machine = Machine::new();
    let store = machine.store();
    let first = granted(&store, "k", "a", TTL).await;
    machine
        .clock
        .set_wall(SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000));
    held(&store, "k", "b").await;
    machine.clock.set_wall(SystemTime::UNIX_EPOCH);
    held(&store, "k", "b").await;
    store.release(&first).await.unwrap();
    let second = granted(&store, "k", "b", TTL).await;
    assert_eq!(second.token, Token(first.token.0 + 1));
}

#[tokio::test]
async fn token_grows_over_deletion_with_a_wall_clock_set_back() {
    let machine = Machine::new();
    let store = machine.store();
    let first = granted(&store, "k", "a", TTL).await;
    machine
        .clock
        .set_wall(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    let deleted = machine.by_hand().execute("DELETE FROM leases", []).unwrap();
    assert_eq!(deleted, 1);
    let second = granted(&store, "k", "b", TTL).await;
    assert!(
        second.token > first.token,
        "{} after {}",
        second.token,
        first.token
    );
}

#[tokio::test]
async fn records_that_ended_long_ago_go_and_their_tokens_stay() {
    let machine = Machine::new();
    let store = machine.store();
    for number in 0..20 {
        let lease = granted(&store, &format!("old/{number}"), "a", TTL).await;
        if number % 2 == 0 {
            store.release(&lease).await.unwrap();
        }
    }
    let lives = granted(&store, "lives", "a", Duration::from_secs(7 * 24 * 3600)).await;
    machine.clock.advance(Duration::from_secs(25 * 3600));
    machine
        .clock
        .set_wall(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    granted(&store, "new", "a", TTL).await;
    let count = |connection: Connection| {
        let count = connection.query_row("SELECT count(*) FROM leases", [], |row| {
            row.get::<_, i64>(0)
        });
        count.unwrap()
    };
    assert_eq!(count(machine.by_hand()), 2);
    held(&store, "lives", "b").await;
    let again = granted(&store, "old/3", "a", TTL).await;
    assert!(
        again.token > Token(1_000_000_000_000_000),
        "{}",
        again.token
    );
    assert!(matches!(
        store.renew(&lives, TTL).await.unwrap(),
        Renewed::Renewed(..)
    ));
}

#[tokio::test]
async fn database_that_was_deleted_is_made_anew_and_ends_the_leases() {
    let machine = Machine::new();
    let (ours, theirs) = (machine.store(), machine.store());
    let lease = granted(&ours, "k", "a", LONG).await;
    for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        std::fs::remove_file(machine.folder.path().join(name)).unwrap();
    }
    let next = granted(&theirs, "k", "b", LONG).await;
    // A leader that went on in the deleted file would be a second one for ever.
    let lost = until("the loss", async || {
        let renewed = ours.renew(&lease, LONG).await.unwrap();
        matches!(renewed, Renewed::Lost(_)).then_some(renewed)
    })
    .await;
    let (holder, token) = (next.holder.clone(), next.token);
    assert_eq!(lost, Renewed::Lost(Loss::Superseded { holder, token }));
}

#[tokio::test]
async fn missing_lock_file_does_not_end_a_lease() {
    let machine = Machine::new();
    let store = machine.store();
    granted(&store, "k", "a", TTL).await;
    std::fs::remove_dir_all(machine.folder.path().join("leases.db.holders")).unwrap();
    held(&machine.store(), "k", "b").await;
    machine.clock.advance(TTL);
    granted(&machine.store(), "k", "b", TTL).await;
}

#[tokio::test]
async fn lease_outlives_its_dropped_store() {
    let machine = Machine::new();
    let store = machine.store();
    granted(&store, "k", "a", TTL).await;
    drop(store);
    // Whoever took it may still rely on it, and this process lives.
    held(&machine.store(), "k", "b").await;
    machine.clock.advance(TTL);
    granted(&machine.store(), "k", "b", TTL).await;
}

#[tokio::test]
async fn lock_file_goes_with_its_store() {
    let machine = Machine::new();
    let lock = tenure_sqlite::HolderLock::create(machine.path()).unwrap();
    let file = lock.path().to_owned();
    let store = SqliteStore::options(machine.path())
        .liveness(Liveness::Lock(lock))
        .open()
        .unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    let named = machine
        .by_hand()
        .query_row("SELECT liveness FROM leases", [], |row| {
            row.get::<_, String>(0)
        });
    assert_eq!(named.unwrap(), file.file_name().unwrap().to_str().unwrap());
    store.release(&lease).await.unwrap();
    drop(store);
    until("the removal of the lock file", async || {
        (!file.exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn watch_pushes_what_other_stores_do_and_the_end_of_a_term() {
    let machine = Machine::new();
    let (ours, theirs) = (machine.store(), machine.store());
    let mut notices = ours.watch(&key("k")).await.unwrap();
    let lease = granted(&theirs, "k", "a", TTL).await;
    assert_eq!(next(&mut notices).await, Some(Notice::Held(lease.clone())));
    theirs
        .ask(&key("k"), HolderRequest::StepDown)
        .await
        .unwrap();
    assert_eq!(next(&mut notices).await, Some(Notice::Look));
    theirs.release(&lease).await.unwrap();
    assert_eq!(next(&mut notices).await, Some(Notice::Free));
    let lease = granted(&theirs, "k", "a", TTL).await;
    assert_eq!(next(&mut notices).await, Some(Notice::Held(lease)));
    machine.clock.advance(TTL);
    assert_eq!(next(&mut notices).await, Some(Notice::Free));
    machine.by_hand().execute("DELETE FROM leases", []).unwrap();
    let lease = granted(&theirs, "k", "a", TTL).await;
    until("the new holder", async || {
        (next(&mut notices).await == Some(Notice::Held(lease.clone()))).then_some(())
    })
    .await;
    machine.by_hand().execute("DELETE FROM leases", []).unwrap();
    assert_eq!(next(&mut notices).await, Some(Notice::Free));
    drop(ours);
    assert_eq!(next(&mut notices).await, None);
}
