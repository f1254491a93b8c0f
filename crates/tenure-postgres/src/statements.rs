//! The statements: each operation is one, and each judges by the server's clock.
//!
//! What READ COMMITTED means for them: a statement sees the table as it was when the
//! statement began, but a row that it locks as it is once it has the lock. So whatever
//! is decided is decided on a locked row, and the clock is read after the lock was got.
//! Only a candidate that finds the lease held takes no lock: it writes nothing, and what
//! it saw was true when its statement began.

use crate::names::{Table, literal};

/// The greatest token after which there is room for another one below 2^53.
const TOKEN_LAST: i64 = (1 << 53) - 2;

/// All statements on one table.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) acquire: String,
    pub(crate) renew: String,
    pub(crate) renew_many: String,
    pub(crate) release: String,
    pub(crate) read: String,
    pub(crate) list: String,
    pub(crate) ask: String,
    pub(crate) probe: String,
}

impl Statements {
    /// With the limit of each wait for a lock in the statement itself: a setting of the
    /// session would not pass through a pooler, or stay there for others.
    pub(crate) fn new(table: &Table, lock_timeout_ms: u128) -> Self {
        let channel = literal(&table.channel());
        let table = table.to_string();
        let bound = format!(
            "bound AS MATERIALIZED (SELECT set_config('lock_timeout', '{lock_timeout_ms}', true))"
        );
        Self {
            acquire: acquire(&table, &bound, &channel),
            renew: renew(&table, &bound),
            renew_many: renew_many(&table, &bound),
            release: release(&table, &bound, &channel),
            read: read(&table),
            list: list(&table),
            ask: ask(&table, &bound, &channel),
            probe: format!("SELECT pg_notify({channel}, $1)::text"),
        }
    }
}

/// The columns of a record, in the order in which they are read, of types that every
/// client knows without asking the server.
fn columns(of: &str) -> String {
    format!(
        "{of}.lease_name::text AS lease_name, {of}.holder_id::text AS holder_id, \
         {of}.version::bigint AS version, \
         {of}.acquired_at_utc::timestamptz AS acquired_at_utc, \
         {of}.expires_at_utc::timestamptz AS expires_at_utc, \
         {of}.tenure_version::bigint AS tenure_version, \
         {of}.tenure_attempt::bigint AS tenure_attempt, \
         {of}.tenure_ttl_ns::bigint AS tenure_ttl_ns, {of}.tenure_request::text AS tenure_request"
    )
}

/// A record that can be read, and so may be overwritten once it has ended.
fn is_readable(of: &str) -> String {
    format!(
        "({of}.version BETWEEN 0 AND {TOKEN_LAST} AND {of}.holder_id IS NOT NULL \
         AND {of}.acquired_at_utc IS NOT NULL AND {of}.expires_at_utc IS NOT NULL)"
    )
}

/// A record that was granted to this holder and attempt. Columns of ours that stem from
/// an earlier version of the record count for nothing: whoever wrote since knew nothing
/// of them.
fn is_own_attempt(of: &str) -> String {
    format!(
        "({of}.holder_id = $2 AND {of}.tenure_attempt = $3 AND {of}.tenure_version = {of}.version) IS TRUE"
    )
}

fn micros(time: &str) -> String {
    format!("floor(extract(epoch FROM {time}) * 1000000)::bigint")
}

/// The row, locked, and then the clock.
fn judged(table: &str, which: &str) -> String {
    let columns = columns("l");
    format!(
        "locked AS MATERIALIZED (
  SELECT {columns} FROM bound, {table} AS l WHERE {which} FOR NO KEY UPDATE OF l
), judged AS MATERIALIZED (
  SELECT k.*, clock_timestamp() AS now FROM locked AS k
)"
    )
}

/// $1 key, $2 holder, $3 attempt, $4 ttl in µs, $5 ttl in ns.
///
/// Who saw it held does not write. Who did not inserts, and if somebody else was faster
/// judges the row that is there once it is locked; a loser then writes what stood there
/// before, so that the answer is of that very row. All columns come from one reading of
/// the clock.
fn acquire(table: &str, bound: &str, channel: &str) -> String {
    let (of_seen, of_row) = (columns("l"), columns("l"));
    let (seen_readable, seen_own) = (is_readable("s"), is_own_attempt("s"));
    let (row_readable, row_own) = (is_readable("l"), is_own_attempt("l"));
    let (granted, us) = (is_own_attempt("t"), micros("c.now"));
    let (acquired, expires) = (micros("t.acquired_at_utc"), micros("t.expires_at_utc"));
    format!(
        "WITH {bound}, seen AS MATERIALIZED (
  SELECT {of_seen}, clock_timestamp() AS now FROM bound, {table} AS l WHERE l.lease_name = $1
), taken AS (
  INSERT INTO {table} AS l (lease_name, holder_id, version, acquired_at_utc, expires_at_utc,
    tenure_version, tenure_attempt, tenure_ttl_ns)
  SELECT $1, $2, {us}, c.now, c.now + $4 * interval '1 microsecond', {us}, $3, $5
  FROM (SELECT clock_timestamp() AS now FROM bound OFFSET 0) AS c
  WHERE NOT EXISTS (SELECT FROM seen AS s
    WHERE {seen_readable} IS NOT TRUE OR (s.expires_at_utc > s.now AND NOT {seen_own}))
  ON CONFLICT (lease_name) DO UPDATE SET (holder_id, version, acquired_at_utc, expires_at_utc,
    tenure_version, tenure_attempt, tenure_ttl_ns, tenure_request) = (
    SELECT
      CASE WHEN j.free THEN $2 ELSE l.holder_id END,
      CASE WHEN j.free THEN j.token ELSE l.version END,
      CASE WHEN j.free THEN j.now ELSE l.acquired_at_utc END,
      CASE WHEN j.free OR j.again THEN j.now + $4 * interval '1 microsecond' ELSE l.expires_at_utc END,
      CASE WHEN j.free THEN j.token ELSE l.tenure_version END,
      CASE WHEN j.free THEN $3 ELSE l.tenure_attempt END,
      CASE WHEN j.free OR j.again THEN $5 ELSE l.tenure_ttl_ns END,
      CASE WHEN j.free THEN NULL ELSE l.tenure_request END
    FROM (SELECT c.now,
        CASE WHEN {row_readable} THEN l.expires_at_utc <= c.now ELSE false END AS free,
        CASE WHEN {row_readable} THEN l.expires_at_utc > c.now AND {row_own} ELSE false END AS again,
        CASE WHEN {row_readable} THEN greatest(l.version + 1, {us}) END AS token
      FROM (SELECT clock_timestamp() AS now OFFSET 0) AS c OFFSET 0) AS j)
  RETURNING {of_row}, clock_timestamp() AS now
)
SELECT t.*, CASE WHEN {granted} THEN pg_notify({channel}, concat('held', chr(10), t.version,
  chr(10), t.tenure_ttl_ns, chr(10), t.tenure_attempt, chr(10), {acquired}, chr(10), {expires},
  chr(10), t.holder_id, chr(10), t.lease_name))::text END, true AS locked
FROM taken AS t
UNION ALL
SELECT s.*, NULL, false FROM seen AS s WHERE NOT EXISTS (SELECT FROM taken)"
    )
}

/// $1 key, $2 holder, $3 token, $4 ttl in µs, $5 ttl in ns.
fn renew(table: &str, bound: &str) -> String {
    let judged = judged(table, "l.lease_name = $1");
    let set = set_renewed("$4", "$5");
    let columns = columns("l");
    format!(
        "WITH {bound}, {judged}, renewed AS (
  UPDATE {table} AS l SET {set} FROM judged AS j
  WHERE l.lease_name = $1 AND j.holder_id = $2 AND j.version = $3 AND j.expires_at_utc > j.now
    AND j.acquired_at_utc IS NOT NULL
  RETURNING {columns}, j.now
)
SELECT r.*, true AS renewed FROM renewed AS r
UNION ALL
SELECT j.*, false FROM judged AS j WHERE NOT EXISTS (SELECT FROM renewed)"
    )
}

/// The term begins anew; what is known of the tenure stays, if it is of this tenure.
fn set_renewed(ttl_us: &str, ttl_ns: &str) -> String {
    format!(
        "expires_at_utc = j.now + {ttl_us} * interval '1 microsecond', \
         tenure_version = l.version, tenure_ttl_ns = {ttl_ns}, \
         tenure_attempt = CASE WHEN l.tenure_version = l.version THEN l.tenure_attempt END, \
         tenure_request = CASE WHEN l.tenure_version = l.version THEN l.tenure_request END"
    )
}

/// $1 keys, $2 holders, $3 tokens, $4 ttls in µs, $5 ttls in ns; each key once. The rows
/// are locked in one order by all, so that two batches never wait for each other.
fn renew_many(table: &str, bound: &str) -> String {
    let judged = judged(table, "l.lease_name = ANY ($1) ORDER BY l.lease_name");
    let set = set_renewed("w.ttl_us", "w.ttl_ns");
    let columns = columns("l");
    format!(
        "WITH {bound}, wanted AS MATERIALIZED (
  SELECT * FROM unnest($1, $2, $3, $4, $5) AS w(lease_name, holder_id, version, ttl_us, ttl_ns)
), {judged}, renewed AS (
  UPDATE {table} AS l SET {set} FROM judged AS j, wanted AS w
  WHERE l.lease_name = j.lease_name AND w.lease_name = j.lease_name
    AND j.holder_id = w.holder_id AND j.version = w.version AND j.expires_at_utc > j.now
    AND j.acquired_at_utc IS NOT NULL
  RETURNING {columns}, j.now
)
SELECT r.*, true AS renewed FROM renewed AS r
UNION ALL
SELECT j.*, false FROM judged AS j
WHERE NOT EXISTS (SELECT FROM renewed AS r WHERE r.lease_name = j.lease_name)"
    )
}

/// $1 key, $2 holder, $3 token. The row stays, because the token lives in it; its end is
/// long past, so that it is free for a peer too that goes by a wrong clock of its own.
fn release(table: &str, bound: &str, channel: &str) -> String {
    format!(
        "WITH {bound}, freed AS (
  UPDATE {table} AS l SET holder_id = '', expires_at_utc = 'epoch', tenure_version = NULL,
    tenure_attempt = NULL, tenure_ttl_ns = NULL, tenure_request = NULL
  FROM bound WHERE l.lease_name = $1 AND l.holder_id = $2 AND l.version = $3
  RETURNING l.lease_name
)
SELECT pg_notify({channel}, concat('free', chr(10), f.lease_name))::text FROM freed AS f"
    )
}

/// $1 key. One row even if there is no record, for what it says of the server.
fn read(table: &str) -> String {
    let columns = columns("l");
    format!(
        "SELECT {columns}, n.now, n.standby
FROM (SELECT clock_timestamp() AS now, pg_is_in_recovery() AS standby OFFSET 0) AS n
LEFT JOIN {table} AS l ON l.lease_name = $1"
    )
}

/// $1 prefix, $2 limit. Likewise.
fn list(table: &str) -> String {
    let columns = columns("l");
    format!(
        "SELECT {columns}, n.now, n.standby
FROM (SELECT clock_timestamp() AS now, pg_is_in_recovery() AS standby OFFSET 0) AS n
LEFT JOIN LATERAL (
  SELECT * FROM {table} AS l
  WHERE starts_with(l.lease_name, $1) AND l.expires_at_utc > n.now
  ORDER BY l.lease_name COLLATE \"C\" LIMIT $2
) AS l ON true
ORDER BY l.lease_name COLLATE \"C\""
    )
}

/// $1 key, $2 request. Only of a holder that reads requests.
fn ask(table: &str, bound: &str, channel: &str) -> String {
    let judged = judged(table, "l.lease_name = $1");
    format!(
        "WITH {bound}, {judged}, asked AS (
  UPDATE {table} AS l SET tenure_request = $2 FROM judged AS j
  WHERE l.lease_name = $1 AND j.expires_at_utc > j.now AND j.tenure_version = j.version
  RETURNING l.lease_name
)
SELECT j.*, EXISTS (SELECT FROM asked) AS asked,
  CASE WHEN EXISTS (SELECT FROM asked) THEN pg_notify({channel}, concat('look', chr(10), $1))::text END
FROM judged AS j"
    )
}
