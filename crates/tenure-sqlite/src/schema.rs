//! The format of the database: its tables, and how a connection to it is made.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use tenure::{Clock, Error, Result};

use crate::failure::of_sqlite;
use crate::file::check_format;
use crate::wait;

/// "tenu", so that `file` and we can tell our databases from others.
pub(crate) const APPLICATION_ID: u32 = 0x7465_6E75;

/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;

/// How long the log may be before whoever opens the file folds it. The first to open it
/// reads the log once through, so this is what a start costs at most.
pub(crate) const LOG_BYTES: u32 = 512 * 1024;

/// The trigger keeps the promise that tokens only grow, whoever deletes a record, and
/// even if the wall clock was set back: the floor is below no token that ever was.
const TABLES: &str = "
CREATE TABLE leases (
  key         TEXT    NOT NULL PRIMARY KEY,
  holder      TEXT,
  token       INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  ttl_ns      INTEGER NOT NULL,
  ends_at     INTEGER NOT NULL,
  boot        TEXT    NOT NULL,
  acquired_at INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  request     TEXT,
  liveness    TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  floor    INTEGER NOT NULL,
  swept_at INTEGER NOT NULL,
  boot     TEXT    NOT NULL
) STRICT;
INSERT INTO meta VALUES (1, 0, 0, '');
CREATE TRIGGER leases_floor AFTER DELETE ON leases BEGIN
  UPDATE meta SET floor = max(floor, OLD.token);
END;
";

/// Opens a connection whose SQL knows the boot clock as `boot_now()`.
///
/// The function is called inside the statement, when SQLite has the write lock: so no
/// wait for the lock makes the time that a lease is judged by an old one.
pub(crate) fn connect(path: &Path, clock: &Arc<dyn Clock>) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let make = || -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_handler(Some(wait::for_lock))?;
        connection.set_prepared_statement_cache_capacity(32);
        let clock = clock.clone();
        connection.create_scalar_function(
            "boot_now",
            0,
            FunctionFlags::SQLITE_UTF8,
            move |_| Ok(clock.now().as_nanos().cast_signed()),
        )?;
        Ok(connection)
    };
    make().map_err(|error| of_sqlite(path, &error))
}

/// Makes the tables if the database is empty, and sets what a writer needs.
pub(crate) fn prepare(connection: &mut Connection, path: &Path, patience: Duration) -> Result<()> {
    let of = |error| of_sqlite(path, &error);
    if is_empty(connection).map_err(of)? {
        create(connection, path)?;
    }
    let format = number(connection, "user_version").map_err(of)?;
    check_format(path, format)?;
    if number(connection, "application_id").map_err(of)? != APPLICATION_ID || format == 0 {
        return Err(Error::misconfigured(format!(
            "{} is no tenure database: choose another path",
            path.display()
        )));
    }
    use_write_ahead_log(connection, patience).map_err(of)?;
    // A lease never outlives the boot, and the token follows the clock, so nothing is
    // lost with the last writes: see docs/stores/sqlite.md.
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .map_err(of)?;
    connection
        .pragma_update(None, "journal_size_limit", LOG_BYTES)
        .map_err(of)
}

fn create(connection: &mut Connection, path: &Path) -> Result<()> {
    let of = |error| of_sqlite(path, &error);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(of)?;
    // Another process may have made them while this one waited for the lock.
    if is_empty(&transaction).map_err(of)? {
        transaction.execute_batch(TABLES).map_err(of)?;
        transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(of)?;
        transaction
            .pragma_update(None, "user_version", FORMAT)
            .map_err(of)?;
    }
    transaction.commit().map_err(of)
}

/// SQLite does not call the busy handler for every lock of this change, so it is asked again.
fn use_write_ahead_log(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    wait::at_most(patience);
    let mut tries = 0;
    loop {
        let changed = connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        });
        match changed {
            Ok(_) => return Ok(()),
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && wait::for_lock(tries) =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    })?;
    Ok(tables == 0 && number(connection, "application_id")? == 0)
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
