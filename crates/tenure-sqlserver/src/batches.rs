//! The batches: each operation is one, and each judges by the server's clock. They stand
//! here together, with the reasons, because they have to be right by reading.
//!
//! # Why they are right
//! - **One decision, one locked row.** Whatever is decided is decided on a row that this
//!   transaction holds an update lock on (`UPDLOCK`), to the end of the transaction. Two
//!   update locks exclude each other, so of two that want to write, one waits. A read with
//!   `UPDLOCK` sees the last committed state, also where READ_COMMITTED_SNAPSHOT is on.
//! - **A row that is not there is locked too.** `HOLDLOCK` on an index seek locks the gap
//!   where the key would stand (RangeS-U), so of two that find nothing, one waits for the
//!   other's INSERT: no duplicate key, and no second winner. `FORCESEEK` makes sure that
//!   it is a seek; a table without an index on LeaseKey is refused (8622).
//! - **The clock is read after the lock.** SYSUTCDATETIME() within a statement is taken
//!   when the statement begins, which may be long before it got its lock. So it is read
//!   by a statement of its own, after the one that locks. It is the only clock here.
//! - **Isolation is set, not assumed.** Each batch sets READ COMMITTED for itself; what a
//!   client has set (SNAPSHOT, READ UNCOMMITTED) comes back when it ends, since all runs
//!   by sp_executesql, and SET goes no further than that. The lock hints do the rest.
//! - **Nothing is confirmed that can be undone.** A transaction that was open before would
//!   make our COMMIT mean nothing, so a batch refuses to run within one (53001). The one
//!   result is given after COMMIT; every error undoes all (XACT_ABORT, and ROLLBACK in the
//!   CATCH), so an error below class 20 means that nothing has happened.
//! - **The table is looked at before the transaction begins**, so that a missing table (208)
//!   or column (207), which no CATCH sees, leaves no transaction behind.
//! - **No deadlock among us**: a batch locks one row or one gap, and waits for no second
//!   one. With others there can be one; the victim (1205) is undone and repeated.
//! - **A candidate that finds the lease held takes no lock** and writes nothing; what it
//!   saw was committed. Judged by a clock that is read later, an ended lease may look
//!   ended and yet have been renewed: then the locked look decides.
//!
//! # The article's rows
//! Its statements know LeaseKey, OwnerId and ExpiresAtUtc only, and leave our columns as
//! they were. So ours count only while `TenureUntil = ExpiresAtUtc`: whoever else takes a
//! lease sets a later end. Its lease has no token; it is shown with the last of ours + 1,
//! and so the next of ours is at least the last + 2.
//!
//! # Names
//! `LeaseKey = @key` goes by the column's collation, so it finds its index, and may find
//! `a` for `A`, or `a` for `a` and a blank. Whether it is the key is then asked byte for
//! byte (length, and a binary collation), and if not, nothing is written and it is said.
//!
//! # Times
//! `@end` is a datetime2(3), which is *rounded*, half a millisecond down at worst: the
//! caller adds one millisecond to the ttl, so that no term is shorter than was asked for.
//! DATEADD takes an int, so the ttl comes as seconds and milliseconds.

use crate::names::Table;

/// Thrown where a transaction is open already.
pub(crate) const OPEN_TRANSACTION: u32 = 53_001;
/// Thrown where the database takes no writes.
pub(crate) const READ_ONLY: u32 = 53_003;

/// The greatest token after which there is room for others below 2^53.
const TOKEN_LAST: i64 = (1 << 53) - 4;

/// Equal byte for byte, whatever the collation, blanks at the end included.
fn same(one: &str, other: &str) -> String {
    format!(
        "DATALENGTH({one}) = DATALENGTH({other}) \
         AND {one} COLLATE Latin1_General_BIN2 = {other} COLLATE Latin1_General_BIN2"
    )
}

/// All batches on one table.
#[derive(Debug)]
pub(crate) struct Batches {
    pub(crate) acquire: String,
    pub(crate) renew: String,
    pub(crate) release: String,
    pub(crate) read: String,
    pub(crate) list: String,
    pub(crate) ask: String,
}

impl Batches {
    pub(crate) fn new(table: &Table, lock_timeout_ms: u128) -> Self {
        let table = table.to_string();
        let head = head(lock_timeout_ms);
        Self {
            acquire: acquire(&table, &head),
            renew: renew(&table, &head),
            release: release(&table, &head),
            read: read(&table, &head),
            list: list(&table, &head),
            ask: ask(&table, &head),
        }
    }
}

fn head(lock_timeout_ms: u128) -> String {
    format!(
        "SET NOCOUNT ON;
SET XACT_ABORT ON;
SET ANSI_WARNINGS ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT {lock_timeout_ms};
IF @@TRANCOUNT <> 0
BEGIN
  THROW {OPEN_TRANSACTION}, N'a transaction is open on this connection', 1;
END;
IF CONVERT(nvarchar(60), DATABASEPROPERTYEX(DB_NAME(), N'Updateability')) <> N'READ_WRITE'
BEGIN
  THROW {READ_ONLY}, N'the database takes no writes', 1;
END;
DECLARE @done int = 0, @found int = 0, @exact int = 0, @ours int = 0, @mine int = 0, @held int = 0;
DECLARE @now datetime2(7), @end datetime2(3), @us bigint, @next bigint;
DECLARE @k nvarchar(4000), @owner nvarchar(4000), @token bigint, @until datetime2(7), @mark datetime2(7);
DECLARE @attempt bigint, @ttl bigint, @since datetime2(7), @request nvarchar(4000);
"
    )
}

/// The row into variables. A SELECT that finds nothing leaves them as they were, so the
/// key is cleared before, and `@found` counts.
fn look(table: &str, hints: &str) -> String {
    format!(
        "SET @k = NULL;
SELECT @k = LeaseKey, @owner = OwnerId, @token = ISNULL(Token, 0), @until = ExpiresAtUtc,
  @mark = TenureUntil, @attempt = TenureAttempt, @ttl = TenureTtlNs, @since = TenureSince,
  @request = TenureRequest
FROM {table}{hints} WHERE LeaseKey = @key;
SET @found = @@ROWCOUNT;
"
    )
}

const LOCKED: &str = " WITH (UPDLOCK, ROWLOCK, FORCESEEK)";
const LOCKED_OR_ITS_GAP: &str = " WITH (UPDLOCK, HOLDLOCK, ROWLOCK, FORCESEEK)";

/// The clock, and what the row is to the caller: `@exact`, it is the key's; `@ours`, our
/// columns are of this state of it; `@mine`, it is this holder's, and written by us.
fn judge() -> String {
    format!("SET @now = SYSUTCDATETIME();\n{}", relate())
}

fn relate() -> String {
    let (key, owner) = (same("@k", "@key"), same("@owner", "@holder"));
    format!(
        "SET @exact = CASE WHEN @found = 1 AND {key} THEN 1 ELSE 0 END;
SET @ours = CASE WHEN @found = 1 AND @mark = @until THEN 1 ELSE 0 END;
SET @mine = CASE WHEN @exact = 1 AND @ours = 1 AND {owner} THEN 1 ELSE 0 END;
"
    )
}

/// The transaction around `work`.
fn transaction(work: &str) -> String {
    format!(
        "BEGIN TRY
BEGIN TRANSACTION;
{work}COMMIT TRANSACTION;
END TRY
BEGIN CATCH
  IF @@TRANCOUNT <> 0
  BEGIN
    ROLLBACK TRANSACTION;
  END;
  THROW;
END CATCH;
"
    )
}

/// The one result. `@now` is the reading that was judged by.
const ANSWER: &str = "SELECT @done AS Done, @exact AS Exact, @ours AS Ours, @k AS LeaseKey, \
@owner AS OwnerId, @token AS Token, @until AS Until, @attempt AS Attempt, @ttl AS Ttl, \
@since AS Since, @request AS Request, @now AS Now;";

/// The end of a term that begins now.
const END: &str = "SET @end = DATEADD(millisecond, @ms, DATEADD(second, @s, @now));\n";

/// @P1 key, @P2 holder, @P3 attempt, @P4 and @P5 ttl in s and ms, @P6 ttl in ns.
fn acquire(table: &str, head: &str) -> String {
    let (seen, judge) = (look(table, ""), judge());
    let (locked, written) = (look(table, LOCKED_OR_ITS_GAP), look(table, LOCKED));
    let relate = relate();
    let work = format!(
        "{locked}{judge}{END}SET @us = CONVERT(bigint, DATEDIFF(day, CONVERT(datetime2(7), N'1970-01-01T00:00:00'), @now)) * CONVERT(bigint, 86400000000)
  + CONVERT(bigint, DATEDIFF(second, CONVERT(datetime2(7), CONVERT(date, @now)), @now)) * 1000000
  + DATEPART(microsecond, @now);
SET @next = CASE WHEN @token > @us - 2 AND @token <= {TOKEN_LAST} THEN @token + 2 ELSE @us END;
IF @found = 0
BEGIN
  INSERT INTO {table} (LeaseKey, OwnerId, ExpiresAtUtc, Token, TenureUntil, TenureAttempt, TenureTtlNs, TenureSince)
  VALUES (@key, @holder, @end, @us, @end, @tried, @ns, @now);
  SET @done = 1;
END
ELSE IF @exact = 1 AND @owner IS NOT NULL AND @token >= 0 AND @token <= {TOKEN_LAST} AND @until <= @now
BEGIN
  UPDATE {table} SET OwnerId = @holder, ExpiresAtUtc = @end, Token = @next, TenureUntil = @end,
    TenureAttempt = @tried, TenureTtlNs = @ns, TenureSince = @now, TenureRequest = NULL
  WHERE LeaseKey = @key;
  SET @done = 1;
END
ELSE IF @mine = 1 AND @attempt = @tried AND @until > @now
BEGIN
  UPDATE {table} SET ExpiresAtUtc = @end, TenureUntil = @end, TenureTtlNs = @ns WHERE LeaseKey = @key;
  SET @done = 1;
END;
IF @done = 1
BEGIN
{written}{relate}END;
"
    );
    let work = transaction(&work);
    format!(
        "{head}DECLARE @key nvarchar(600) = @P1, @holder nvarchar(600) = @P2, @tried bigint = @P3;
DECLARE @s int = @P4, @ms int = @P5, @ns bigint = @P6;
{seen}{judge}SET @held = CASE WHEN @found <> 0 AND @until > @now AND NOT (@mine = 1 AND @attempt = @tried) THEN 1 ELSE 0 END;
IF @held = 0
BEGIN
{work}END;
{ANSWER}"
    )
}

/// @P1 key, @P2 holder, @P3 token, @P4 and @P5 ttl in s and ms, @P6 ttl in ns.
fn renew(table: &str, head: &str) -> String {
    let (seen, locked, judge) = (look(table, ""), look(table, LOCKED), judge());
    let (written, relate) = (look(table, LOCKED), relate());
    let work = transaction(&format!(
        "{locked}{judge}{END}IF @mine = 1 AND @token = @named AND @until > @now
BEGIN
  UPDATE {table} SET ExpiresAtUtc = @end, TenureUntil = @end, TenureTtlNs = @ns WHERE LeaseKey = @key;
  SET @done = 1;
{written}{relate}END;
"
    ));
    format!(
        "{head}DECLARE @key nvarchar(600) = @P1, @holder nvarchar(600) = @P2, @named bigint = @P3;
DECLARE @s int = @P4, @ms int = @P5, @ns bigint = @P6;
{seen}{work}{ANSWER}"
    )
}

/// @P1 key, @P2 holder, @P3 token. The row stays, because the token lives in it; its end
/// is long past, so that it is free for a peer too that goes by a wrong clock of its own.
fn release(table: &str, head: &str) -> String {
    let (seen, locked, judge) = (look(table, ""), look(table, LOCKED), judge());
    let work = transaction(&format!(
        "{locked}{judge}IF @mine = 1 AND @token = @named
BEGIN
  UPDATE {table} SET OwnerId = N'', ExpiresAtUtc = CONVERT(datetime2(3), N'1970-01-01T00:00:00'),
    TenureUntil = NULL, TenureAttempt = NULL, TenureTtlNs = NULL, TenureSince = NULL, TenureRequest = NULL
  WHERE LeaseKey = @key;
  SET @done = 1;
END;
"
    ));
    format!(
        "{head}DECLARE @key nvarchar(600) = @P1, @holder nvarchar(600) = @P2, @named bigint = @P3;
{seen}{work}{ANSWER}"
    )
}

/// @P1 key.
fn read(table: &str, head: &str) -> String {
    let (seen, judge) = (look(table, ""), judge());
    format!(
        "{head}DECLARE @key nvarchar(600) = @P1, @holder nvarchar(600) = NULL;
{seen}{judge}{ANSWER}"
    )
}

/// @P1 prefix, @P2 its length in UTF-16 units. Unordered: the order of UTF-8 bytes is none
/// that every version of the server knows.
fn list(table: &str, head: &str) -> String {
    let begins = same(
        "SUBSTRING(LeaseKey COLLATE Latin1_General_BIN2, 1, @units)",
        "@prefix",
    );
    format!(
        "{head}DECLARE @prefix nvarchar(600) = @P1, @units int = @P2;
SET @now = SYSUTCDATETIME();
SELECT 0 AS Done, 1 AS Exact, CASE WHEN TenureUntil = ExpiresAtUtc THEN 1 ELSE 0 END AS Ours,
  LeaseKey AS LeaseKey, OwnerId AS OwnerId, ISNULL(Token, 0) AS Token, ExpiresAtUtc AS Until,
  TenureAttempt AS Attempt, TenureTtlNs AS Ttl, TenureSince AS Since, TenureRequest AS Request, @now AS Now
FROM {table} WHERE ExpiresAtUtc > @now AND {begins};"
    )
}

/// @P1 key, @P2 request. Only of a holder that reads requests.
fn ask(table: &str, head: &str) -> String {
    let (seen, locked, judge) = (look(table, ""), look(table, LOCKED), judge());
    let work = transaction(&format!(
        "{locked}{judge}IF @exact = 1 AND @ours = 1 AND @until > @now
BEGIN
  UPDATE {table} SET TenureRequest = @asked WHERE LeaseKey = @key;
  SET @done = 1;
END;
"
    ));
    format!(
        "{head}DECLARE @key nvarchar(600) = @P1, @holder nvarchar(600) = NULL, @asked nvarchar(40) = @P2;
{seen}{work}{ANSWER}"
    )
}
