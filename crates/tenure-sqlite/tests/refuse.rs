//! What is refused, with which sentence, and that it stays as it was.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tenure::{BootClock, Clock, ErrorKind, Renewed, Store};
use tenure_sqlite::{Calls, SqliteStore};

use support::{LONG, Mount, cannot, contents, error_text, granted, request};

/// Opens what must not be opened; gives the sentence. The folder must stay as it is.
fn refused(path: &Path, kind: ErrorKind) -> String {
    let folder = path.parent().unwrap();
    let before = contents(folder);
    let (found, text) = error_text(SqliteStore::open(path));
    assert_eq!(found, kind, "{text}");
    assert!(
        text.contains(path.file_name().unwrap().to_str().unwrap()),
        "{text}"
    );
    assert!(before == contents(folder), "the files have changed");
    text
}

#[test]
fn database_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.db");
    for mode in ["DELETE", "WAL"] {
        let theirs = Connection::open(&path).unwrap();
        theirs.pragma_update(None, "journal_mode", mode).unwrap();
        theirs
            .execute_batch("CREATE TABLE IF NOT EXISTS leases (a)")
            .unwrap();
        drop(theirs);
        let text = refused(&path, ErrorKind::Misconfigured);
        assert!(text.contains("another program"), "{text}");
    }
}

#[test]
fn database_of_another_program_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = Connection::open(folder.path().join("a.db")).unwrap();
    theirs.pragma_update(None, "journal_mode", "WAL").unwrap();
    theirs
        .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    // A log that nobody has folded in yet: opening it the usual way would.
    let crashed = tempfile::tempdir().unwrap();
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(folder.path().join(name), crashed.path().join(name)).unwrap();
    }
    refused(&crashed.path().join("a.db"), ErrorKind::Misconfigured);
}

#[test]
fn other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for bytes in [
        &b"x"[..],
        b"not a database\n",
        &[0; 8192],
        b"SQLite format 3\0",
    ] {
        std::fs::write(&path, bytes).unwrap();
        let text = refused(&path, ErrorKind::Corrupt);
        assert!(text.contains("no SQLite database"), "{text}");
    }
    let text = error_text(SqliteStore::open(folder.path()));
    assert_eq!(text.0, ErrorKind::Misconfigured, "{}", text.1);
    std::os::unix::fs::symlink("nowhere", folder.path().join("link.db")).unwrap();
    refused(&folder.path().join("link.db"), ErrorKind::Misconfigured);
    refused(Path::new("/dev/null"), ErrorKind::Misconfigured);
}

#[test]
fn newer_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.db");
    drop(SqliteStore::open(&path).unwrap());
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 2).unwrap();
    newer
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    newer.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(newer);
    let text = refused(&path, ErrorKind::Misconfigured);
    assert!(text.contains("use a newer tenure"), "{text}");
}

#[tokio::test]
async fn damaged_database_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    granted(&store, "k", "a", LONG).await;
    let by_hand = Connection::open(&path).unwrap();
    by_hand
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    drop((store, by_hand));
    let copy = folder.path().join("copy.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xA5);
    assert_eq!(bytes.len() as u64, length);
    std::fs::write(&copy, &bytes).unwrap();
    let opened = SqliteStore::open(&copy);
    let (kind, text) = match opened {
        Ok(store) => error_text(store.acquire(&request("k", "b", LONG)).await),
        Err(error) => (error.kind(), error.to_string()),
    };
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
    assert!(text.contains("copy.db"), "{text}");
}

#[tokio::test]
async fn record_that_cannot_be_read_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    granted(&store, "k", "a", LONG).await;
    let by_hand = Connection::open(&path).unwrap();
    by_hand
        .execute("UPDATE leases SET token = -5, holder = ''", [])
        .unwrap();
    let (kind, text) = error_text(store.acquire(&request("k", "b", LONG)).await);
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
    let token = by_hand.query_row("SELECT token FROM leases", [], |row| row.get::<_, i64>(0));
    assert_eq!(token.unwrap(), -5);
}

#[test]
fn empty_and_missing_files_are_made_for_this_user_only() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    SqliteStore::open(&empty).unwrap();
    let path = folder.path().join("a/b/leases.db");
    SqliteStore::open(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
}

#[test]
fn many_at_once_make_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let open = || SqliteStore::open(&path).map(drop);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

#[tokio::test]
async fn read_only_folder() {
    let folder = tempfile::tempdir().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let mount = is_root.then(|| Mount::new("1m")).flatten();
    let place = match &mount {
        Some(mount) => mount.path.clone(),
        None if is_root => return cannot("the right to mount"),
        None => folder.path().to_owned(),
    };
    let path = place.join("leases.db");
    drop(SqliteStore::open(&path).unwrap());
    // The store's thread closes its files after the drop, and writes until then.
    support::until("the end of the store", async || {
        let log_is_gone = !place.join("leases.db-wal").exists();
        let read_only = log_is_gone && mount.as_ref().is_none_or(Mount::make_read_only);
        read_only.then_some(())
    })
    .await;
    if mount.is_none() {
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o555)).unwrap();
    }
    let text = refused(&path, ErrorKind::Misconfigured);
    assert!(text.contains("right to write"), "{text}");
    refused(&place.join("new.db"), ErrorKind::Misconfigured);
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn full_disk_loses_nothing_that_was_confirmed() {
    let Some(mount) = Mount::new("256k") else {
        return cannot("the right to mount");
    };
    let path = mount.path.join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut lease = granted(&store, "k", "a", LONG).await;
    let filler = mount.path.join("filler");
    let mut size = 1 << 20;
    let mut bytes = Vec::new();
    while size > 0 {
        bytes.resize(bytes.len() + size, 0_u8);
        if std::fs::write(&filler, &bytes).is_err() {
            bytes.truncate(bytes.len() - size);
            size /= 2;
        }
    }
    let by_hand = Connection::open(&path).unwrap();
    let version = || {
        let version = by_hand.query_row("SELECT token || '.' || version FROM leases", [], |row| {
            row.get::<_, String>(0)
        });
        version.unwrap()
    };
    let mut failed = None;
    for _ in 0..100 {
        match store.renew(&lease, LONG).await {
            Ok(Renewed::Renewed(renewed, _)) => lease = renewed,
            Ok(lost) => panic!("{lost:?}"),
            Err(error) => failed = Some(error),
        }
        assert_eq!(
            version(),
            lease.version.as_str(),
            "what was confirmed is there"
        );
    }
    let failed = failed.expect("the disk is full");
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(failed.to_string().contains("is full"), "{failed}");
    std::fs::remove_file(&filler).unwrap();
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
}

#[tokio::test]
async fn locked_file_is_waited_for_and_not_for_long() {
    locked_file(Calls::OnOwnThread).await;
}

#[tokio::test]
async fn locked_file_does_not_hold_up_the_thread_of_an_inline_call() {
    locked_file(Calls::Inline).await;
}

async fn locked_file(calls: Calls) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let patience = Duration::from_millis(200);
    let store = SqliteStore::options(&path)
        .patience(patience)
        .calls(calls)
        .open()
        .unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = BootClock.now();
    // What waits in line does not wait again.
    let (one, two, three) = tokio::join!(
        store.renew(&lease, LONG),
        store.renew(&lease, LONG),
        store.release(&lease)
    );
    let took = BootClock.now() - began;
    for text in [error_text(one), error_text(two), error_text(three)] {
        assert_eq!(text.0, ErrorKind::Unavailable);
        assert!(text.1.contains("locked by another process"), "{}", text.1);
    }
    assert!(took >= patience && took < patience * 4, "took {took:?}");
    theirs.execute_batch("COMMIT").unwrap();
    assert!(matches!(
        store.renew(&lease, LONG).await.unwrap(),
        Renewed::Renewed(..)
    ));
    // And a lock that goes away in time costs nothing but the time. It goes by this very
    // thread, which therefore must not be the one that waits.
    theirs.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let renewal = store.renew(&lease, LONG);
    let began = BootClock.now();
    let other = async {
        let held_up = BootClock.now() - began;
        assert!(held_up < patience / 2, "held up for {held_up:?}");
        tokio::time::sleep(patience / 10).await;
        theirs.execute_batch("COMMIT").unwrap();
    };
    let (renewed, ()) = tokio::join!(renewal, other);
    assert!(matches!(renewed.unwrap(), Renewed::Renewed(..)));
}
