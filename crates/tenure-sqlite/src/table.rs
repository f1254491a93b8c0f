//! The statements on the table of leases.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure::{Key, Lease, Loss, Renewed, Token};

use crate::judge::Judge;
use crate::row::{Row, request_text, signed};

/// How long an ended record stays, and how often that is looked at.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 3600);
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// So that one sweep is short: the rest waits for the next.
const SWEEP_FILES_MAX: usize = 64;
/// The term begins anew in one statement, judged by the clock inside the write lock.
/// The last conditions keep it off a record that could then not be read: the change
/// would stand, and the caller would be told of an error.
pub(crate) const RENEW: &str = "
UPDATE leases SET ttl_ns = ?4, ends_at = boot_now() + ?4, version = version + 1, liveness = ?6
WHERE key = ?1 AND holder = ?2 AND token = ?3 AND boot = ?5 AND ends_at > boot_now()
  AND typeof(attempt) = 'integer' AND typeof(acquired_at) = 'integer' AND acquired_at >= 0
  AND typeof(version) = 'integer' AND version BETWEEN 0 AND 4611686018427387903
RETURNING attempt, acquired_at, version, request";

const ONE: &str = "
SELECT holder, token, attempt, ttl_ns, ends_at, boot, acquired_at, version, request, liveness
FROM leases WHERE key = ?1";

const ALL: &str = "
SELECT holder, token, attempt, ttl_ns, ends_at, boot, acquired_at, version, request, liveness, key
FROM leases WHERE key >= ?1 ORDER BY key";

const ENDED: &str = "
SELECT holder, token, attempt, ttl_ns, ends_at, boot, acquired_at, version, request, liveness, key
FROM leases WHERE boot <> ?2 OR ends_at + ?3 <= ?1";

const PUT: &str = "
INSERT INTO leases (key, holder, token, attempt, ttl_ns, ends_at, boot, acquired_at, version, request, liveness)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (key) DO UPDATE SET holder = ?2, token = ?3, attempt = ?4, ttl_ns = ?5, ends_at = ?6,
  boot = ?7, acquired_at = ?8, version = ?9, request = ?10, liveness = ?11";

const RELEASE: &str = "
UPDATE leases SET holder = NULL, ends_at = boot_now(), version = version + 1, request = NULL, liveness = NULL
WHERE key = ?1 AND holder = ?2 AND token = ?3 AND boot = ?4 AND ends_at > boot_now()";

/// Begins a transaction that has the write lock from its start.
pub(crate) fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The record of this key.
pub(crate) fn row(connection: &Connection, key: &Key) -> rusqlite::Result<Option<Row>> {
    connection
        .prepare_cached(ONE)?
        .query_row([key.as_str()], Row::read)
        .optional()
}

/// Begins the term anew, or says how the lease was lost.
pub(crate) fn renew(
    connection: &Connection,
    judge: &Judge,
    lease: &Lease,
    ttl: Duration,
    liveness: Option<&str>,
) -> rusqlite::Result<Renewed> {
    let mut renew = connection.prepare_cached(RENEW)?;
    let ttl_ns = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
    let mut rows = renew.query(params![
        lease.key.as_str(),
        lease.holder.as_str(),
        signed(lease.token.0),
        ttl_ns,
        &*judge.boot,
        liveness,
    ])?;
    if let Some(row) = rows.next()? {
        let row = Row::of_renewed(row, lease, ttl)?;
        // The step that ends the statement is the one that commits, or fails to.
        while rows.next()?.is_some() {}
        let renewed = Lease {
            key: lease.key.clone(),
            holder: lease.holder.clone(),
            token: lease.token,
            attempt: Some(row.attempt),
            ttl,
            rest: Some(ttl),
            acquired_at: Some(row.acquired_at),
            version: row.version_text(),
        };
        return Ok(Renewed::Renewed(renewed, row.request));
    }
    drop(rows);
    let Some(found) = row(connection, &lease.key)? else {
        return Ok(Renewed::Lost(Loss::Deleted));
    };
    let runs = judge.runs(&found);
    Ok(Renewed::Lost(match found.holder {
        Some(holder) if runs && (holder != lease.holder || found.token != lease.token) => {
            Loss::Superseded {
                holder,
                token: found.token,
            }
        }
        Some(_) if found.token == lease.token => Loss::Expired,
        _ => Loss::Deleted,
    }))
}

/// The live leases whose keys begin with `prefix`.
pub(crate) fn list(
    connection: &Connection,
    judge: &Judge,
    prefix: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Lease>> {
    let mut select = connection.prepare_cached(ALL)?;
    let mut rows = select.query([prefix])?;
    let mut leases = Vec::new();
    let mut lives = HashMap::<String, bool>::new();
    while leases.len() < limit
        && let Some(found) = rows.next()?
    {
        let key = found.get_ref(Row::COUNT)?.as_str()?;
        // Keys stand in the order of their bytes: those with the prefix come first.
        if !key.starts_with(prefix) {
            break;
        }
        let row = Row::read(found)?;
        if !judge.runs(&row) {
            continue;
        }
        let key = crate::row::key(key)?;
        // A process with a thousand leases is asked once.
        let alive = match &row.liveness {
            Some(name) => *lives
                .entry(name.clone())
                .or_insert_with(|| !judge.died(&row)),
            None => true,
        };
        leases.extend(judge.lease(&key, &row).filter(|_| alive));
    }
    Ok(leases)
}

/// Writes a record, whether or not there is one.
pub(crate) fn put(connection: &Connection, key: &Key, row: &Row) -> rusqlite::Result<()> {
    connection.prepare_cached(PUT)?.execute(params![
        key.as_str(),
        row.holder.as_ref().map(tenure::Holder::as_str),
        signed(row.token.0),
        signed(row.attempt.as_u64()),
        i64::try_from(row.ttl.as_nanos()).unwrap_or(i64::MAX),
        row.ends_at,
        row.boot,
        signed(micros(row.acquired_at)),
        row.version,
        row.request
            .as_ref()
            .and_then(|request| request_text(request).ok()),
        row.liveness,
    ])?;
    Ok(())
}

/// The token that no deleted record had more than.
pub(crate) fn floor(connection: &Connection) -> rusqlite::Result<Token> {
    connection
        .prepare_cached("SELECT floor FROM meta WHERE id = 1")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|floor| Token(floor.unsigned_abs()))
}

/// Ends every lease of a holder whose processes have died, so that its file can go.
pub(crate) fn end_all_of(
    connection: &Connection,
    judge: &Judge,
    name: &str,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE leases SET ends_at = boot_now(), liveness = NULL, version = version + 1
             WHERE liveness = ?1 AND boot = ?2 AND ends_at > boot_now()",
        )?
        .execute(params![name, &*judge.boot])?;
    Ok(())
}

/// Once an hour, when a record is added: forgets those that ended long ago (their
/// tokens live on in the floor) and gives the lock files of the dead, to be removed.
pub(crate) fn sweep(connection: &Connection, judge: &Judge) -> rusqlite::Result<Vec<String>> {
    let now = signed(judge.clock.now().as_nanos());
    let every = i64::try_from(SWEEP_EVERY.as_nanos()).unwrap_or(i64::MAX);
    let due = connection
        .prepare_cached(
            "UPDATE meta SET swept_at = ?1, boot = ?2 WHERE boot <> ?2 OR swept_at + ?3 <= ?1",
        )?
        .execute(params![now, &*judge.boot, every])?;
    if due == 0 {
        return Ok(Vec::new());
    }
    let keep = i64::try_from(KEEP_ENDED.as_nanos()).unwrap_or(i64::MAX);
    let mut ended = connection.prepare_cached(ENDED)?;
    let mut delete = connection.prepare_cached("DELETE FROM leases WHERE key = ?1")?;
    let mut rows = ended.query(params![now, &*judge.boot, keep])?;
    let mut keys = Vec::new();
    while let Some(found) = rows.next()? {
        // One that cannot be read is for somebody to look at.
        if Row::read(found).is_ok()
            && let Ok(name) = found.get_ref(Row::COUNT)?.as_str()
            && let Ok(key) = crate::row::key(name)
        {
            keys.push(key);
        }
    }
    for key in keys {
        delete.execute([key.as_str()])?;
    }
    let dead = judge.holders.dead(SWEEP_FILES_MAX);
    for name in &dead {
        end_all_of(connection, judge, name)?;
    }
    Ok(dead)
}

/// Microseconds since 1970; a wall clock before that gives zero.
pub(crate) fn micros(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// Ends the lease, if it is the caller's and live; gives whether it was.
pub(crate) fn release(
    connection: &Connection,
    judge: &Judge,
    lease: &Lease,
) -> rusqlite::Result<bool> {
    let freed = connection.prepare_cached(RELEASE)?.execute(params![
        lease.key.as_str(),
        lease.holder.as_str(),
        signed(lease.token.0),
        &*judge.boot
    ])?;
    Ok(freed > 0)
}

/// Leaves a request in the record.
pub(crate) fn ask(connection: &Connection, key: &Key, text: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE leases SET request = ?2, version = version + 1 WHERE key = ?1")?
        .execute(params![key.as_str(), text])?;
    Ok(())
}

/// Whether a live record names this lock file.
pub(crate) fn is_named(
    connection: &Connection,
    judge: &Judge,
    name: &str,
) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM leases WHERE liveness = ?1 AND boot = ?2 AND ends_at > boot_now())",
        params![name, &*judge.boot],
        |row| row.get(0),
    )
}
