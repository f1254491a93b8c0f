//! One record of the table of leases, read and checked.

use std::time::{Duration, SystemTime};

use rusqlite::types::{Type, ValueRef};
use tenure::{Attempt, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};

/// Tokens stay below this, so that every language can hold them.
pub(crate) const TOKEN_END: u64 = 1 << 53;

/// No version that is counted up by ones gets here, and there is room above it.
const VERSION_END: u64 = 1 << 62;

/// One record, without its key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// None once it was released: the record stays, because the token lives in it.
    pub(crate) holder: Option<Holder>,
    pub(crate) token: Token,
    pub(crate) attempt: Attempt,
    pub(crate) ttl: Duration,
    /// Nanoseconds on the clock of the boot.
    pub(crate) ends_at: i64,
    pub(crate) boot: String,
    pub(crate) acquired_at: SystemTime,
    pub(crate) version: i64,
    pub(crate) request: Option<HolderRequest>,
    /// The name of the lock file, if the holder has one.
    pub(crate) liveness: Option<String>,
}

impl Row {
    /// How many columns it has.
    pub(crate) const COUNT: usize = 10;

    /// Reads all columns but the key, in the order of the table.
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let holder = match row.get_ref(0)?.as_str_or_null()? {
            Some(name) => Some(Holder::new(name).map_err(|error| wrong(0, Type::Text, error))?),
            None => None,
        };
        Ok(Self {
            holder,
            token: Token(below(TOKEN_END, row, 1)?),
            attempt: Attempt::from_u64(row.get::<_, i64>(2)?.cast_unsigned()),
            ttl: Duration::from_nanos(unsigned(row, 3)?),
            ends_at: unsigned(row, 4)?.cast_signed(),
            boot: row.get(5)?,
            acquired_at: time(unsigned(row, 6)?),
            version: below(VERSION_END, row, 7)?.cast_signed(),
            request: request(row, 8)?,
            liveness: row.get(9)?,
        })
    }

    /// Makes a row of what a renewal returns: attempt, acquired_at, version, request.
    pub(crate) fn of_renewed(
        row: &rusqlite::Row<'_>,
        lease: &Lease,
        ttl: Duration,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            holder: None,
            token: lease.token,
            attempt: Attempt::from_u64(row.get::<_, i64>(0)?.cast_unsigned()),
            ttl,
            ends_at: 0,
            boot: String::new(),
            acquired_at: time(unsigned(row, 1)?),
            version: row.get(2)?,
            request: request(row, 3)?,
            liveness: None,
        })
    }

    /// With the token, so that it is another one after the record was deleted and made again.
    pub(crate) fn version_text(&self) -> Version {
        Version::new(format!("{}.{}", self.token, self.version))
    }
}

/// The key that the table has.
pub(crate) fn key(name: &str) -> rusqlite::Result<Key> {
    Key::new(name).map_err(|error| wrong(Row::COUNT, Type::Text, error))
}

/// A request as the record has it.
pub(crate) fn request_text(request: &HolderRequest) -> Result<&'static str> {
    match request {
        HolderRequest::StepDown => Ok("step-down"),
        other => Err(Error::unsupported(format!(
            "the sqlite store cannot carry the request {other:?}"
        ))),
    }
}

fn request(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<HolderRequest>> {
    match row.get_ref(column)? {
        ValueRef::Text(b"step-down") => Ok(Some(HolderRequest::StepDown)),
        // One of a newer version: not for us, and no reason to lose the lease.
        _ => Ok(None),
    }
}

/// SQLite's integers have a sign; ours stay far below where it matters.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// A number that is counted up: one with no room above it was not counted by us.
fn below(end: u64, row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number = unsigned(row, column)?;
    match number < end {
        true => Ok(number),
        false => Err(rusqlite::Error::IntegralValueOutOfRange(
            column,
            number.cast_signed(),
        )),
    }
}

fn time(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

fn wrong(column: usize, found: Type, error: Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, found, Box::new(error))
}
