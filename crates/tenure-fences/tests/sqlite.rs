//! SQLite, in a real file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, DropBehavior};
use support::{Leader, two_leaders};
use support::{assert_busy, assert_ended, assert_never_fenced, assert_stale, assert_unreadable};
use tenure::Token;
use tenure_fences::sqlite::SqliteFence;

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_millis(1)).unwrap();
    SqliteFence::init(&connection).unwrap();
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS log (by INTEGER)")
        .unwrap();
    connection
}

fn log(connection: &Connection) -> Vec<i64> {
    let mut statement = connection
        .prepare("SELECT by FROM log ORDER BY rowid")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn write(
    fence: &SqliteFence,
    connection: &mut Connection,
    by: &Leader,
) -> tenure_fences::Result<()> {
    let transaction = fence.begin(connection, &by.tenure)?;
    let token = by.tenure.token().0 as i64;
    transaction.execute("INSERT INTO log VALUES (?1)", [token])?;
    Ok(transaction.commit()?)
}

#[tokio::test]
async fn an_old_leader_is_turned_away_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let (old, new) = two_leaders().await;
    let fence = SqliteFence::new("log").unwrap();
    let mut a = open(&path);
    assert_never_fenced(fence.seen(&a));
    write(&fence, &mut a, &old).unwrap();
    let b = open(&path);
    fence.raise(&b, &new.tenure).unwrap();
    assert_stale(write(&fence, &mut a, &old), 7, 9);
    drop((a, b));
    let mut again = open(&path);
    assert_stale(write(&fence, &mut again, &old), 7, 9);
    write(&fence, &mut again, &new).unwrap();
    assert_eq!(log(&again), [7, 9]);
    assert_eq!(fence.seen(&again).unwrap(), Token(9));
}

#[tokio::test]
async fn check_and_write_are_one_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let (old, new) = two_leaders().await;
    let fence = SqliteFence::new("log").unwrap();
    let (mut a, b) = (open(&path), open(&path));
    let transaction = fence.begin(&mut a, &old.tenure).unwrap();
    // Nobody comes between the check and the write.
    assert_busy(fence.raise(&b, &new.tenure));
    transaction
        .execute("INSERT INTO log VALUES (7)", [])
        .unwrap();
    transaction.commit().unwrap();
    fence.raise(&b, &new.tenure).unwrap();
    assert_stale(write(&fence, &mut a, &old), 7, 9);
}

#[tokio::test]
async fn a_guard_in_an_own_transaction_takes_its_writes_along() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let fence = SqliteFence::new("log").unwrap();
    let mut connection = open(&folder.path().join("app.db"));
    fence.raise(&connection, &new.tenure).unwrap();
    let mut transaction = connection.transaction().unwrap();
    transaction.set_drop_behavior(DropBehavior::Commit);
    transaction
        .execute("INSERT INTO log VALUES (7)", [])
        .unwrap();
    assert_stale(fence.guard(transaction, &old.tenure).map(drop), 7, 9);
    assert_eq!(log(&connection), [0_i64; 0]);
}

#[tokio::test]
async fn a_tenure_that_has_ended_does_not_even_ask() {
    let folder = tempfile::tempdir().unwrap();
    let old = Leader::with_token(7).await;
    let fence = SqliteFence::new("log").unwrap();
    let mut connection = open(&folder.path().join("app.db"));
    old.expire();
    assert_ended(fence.raise(&connection, &old.tenure));
    assert_ended(write(&fence, &mut connection, &old));
    assert_never_fenced(fence.seen(&connection));
}

#[tokio::test]
async fn names_and_kept_tokens_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let new = Leader::with_token(9).await;
    for name in ["", "a\nb", &"x".repeat(513)] {
        let error = SqliteFence::new(name).unwrap_err();
        assert!(error.to_string().contains("the resource's name"), "{error}");
    }
    let fence = SqliteFence::new("log").unwrap();
    let connection = open(&folder.path().join("app.db"));
    let bad = "INSERT INTO tenure_fences VALUES ('log', -5)";
    connection.execute_batch(bad).unwrap();
    assert_unreadable(fence.seen(&connection));
    fence.raise(&connection, &new.tenure).unwrap();
    let bad = "UPDATE tenure_fences SET token = 9223372036854775807";
    connection.execute_batch(bad).unwrap();
    assert_unreadable(fence.raise(&connection, &new.tenure));
}

/// One statement more than the bare write, by SQLite's own count.
#[tokio::test]
async fn the_guard_is_one_statement() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static STATEMENTS: AtomicUsize = AtomicUsize::new(0);
    let folder = tempfile::tempdir().unwrap();
    let new = Leader::with_token(9).await;
    let fence = SqliteFence::new("log").unwrap();
    let mut connection = open(&folder.path().join("app.db"));
    let codes = rusqlite::trace::TraceEventCodes::SQLITE_TRACE_STMT;
    fn count(_: rusqlite::trace::TraceEvent<'_>) {
        STATEMENTS.fetch_add(1, Ordering::SeqCst);
    }
    connection.trace_v2(codes, Some(count)).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction
        .execute("INSERT INTO log VALUES (9)", [])
        .unwrap();
    transaction.commit().unwrap();
    let bare = STATEMENTS.swap(0, Ordering::SeqCst);
    write(&fence, &mut connection, &new).unwrap();
    assert_eq!((bare, STATEMENTS.load(Ordering::SeqCst)), (3, 4));
}

/// For other languages: the text on the docs page, as it stands there.
#[test]
fn the_text_on_the_docs_page_is_a_fence() {
    let connection = Connection::open_in_memory().unwrap();
    SqliteFence::init(&connection).unwrap();
    let outbox = "CREATE TABLE outbox (id INTEGER PRIMARY KEY, sent_by INTEGER);
        INSERT INTO outbox (id) VALUES (1)";
    connection.execute_batch(outbox).unwrap();
    let text = support::from_docs("sql", "-- SQLite\n");
    for (token, then) in [("7", 7), ("9", 9), ("7", 9), ("9", 9), ("10", 10)] {
        connection
            .execute_batch(&text.replace("42", token))
            .unwrap();
        let by = connection.query_row("SELECT sent_by FROM outbox", [], |row| row.get::<_, i64>(0));
        assert_eq!(by.unwrap(), then, "after a write with {token}");
    }
}

/// Outside a transaction the statement commits by itself, at its end: if that fails, the
/// fence is not raised, and nobody may believe so.
#[tokio::test]
async fn a_raise_that_cannot_commit_is_no_raise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let new = Leader::with_token(9).await;
    let fence = SqliteFence::new("log").unwrap();
    let (a, b) = (open(&path), open(&path));
    // With a journal that is no write-ahead log, a reader keeps others from committing.
    a.execute_batch("BEGIN; SELECT * FROM log;").unwrap();
    let mut statement = a.prepare("SELECT count(*) FROM log").unwrap();
    assert_eq!(
        statement.query_row([], |row| row.get::<_, i64>(0)).unwrap(),
        0
    );
    assert_busy(fence.raise(&b, &new.tenure));
    a.execute_batch("COMMIT").unwrap();
    assert_never_fenced(fence.seen(&b));
    fence.raise(&b, &new.tenure).unwrap();
}
