//! One record of the table, read and checked.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use tenure::{Attempt, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};
use tiberius::time::DateTime2;
use tiberius::{ColumnData, Row};

use crate::names::of_stored;

/// Tokens stay below this, so that every language can hold them.
const TOKEN_END: u64 = 1 << 53;
/// From the first day of year 1, where SQL Server counts from, to 1970.
const EPOCH_DAYS: i64 = 719_162;
const DAY_TICKS: i64 = 864_000_000_000;

/// Ticks of 100 ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(pub(crate) i64);

/// One record, with the server's time at which it was judged.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) key: Key,
    /// None once it was released: the record stays, because the token lives in it.
    pub(crate) holder: Option<Holder>,
    pub(crate) token: Token,
    until: Ticks,
    now: Ticks,
    /// What we know beyond the article's columns, if it is of this state of the record.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    attempt: Option<Attempt>,
    ttl: Option<Duration>,
    since: Option<Ticks>,
    request: Option<HolderRequest>,
}

/// The answer of a batch.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether it has written what was asked for.
    pub(crate) done: bool,
    /// None if there is no record of this key.
    pub(crate) record: Option<Record>,
}

impl Answer {
    /// Reads the columns in the order of the batches.
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let done = number(row, 0)? == Some(1);
        let Some(stored) = text(row, 3)? else {
            return Ok(Self { done, record: None });
        };
        let name = of_stored(&stored);
        if number(row, 1)? != Some(1) {
            return Err(Error::misconfigured(format!(
                "the table takes this key and {name:?} for one, because its column LeaseKey ignores case, accents or blanks: give it a binary collation, as `tenure schema` prints it, or choose another key"
            )));
        }
        let record = Record::read(row, name)?;
        Ok(Self {
            done,
            record: Some(record),
        })
    }
}

impl Record {
    fn read(row: &Row, name: &str) -> Result<Self> {
        let wrong =
            |what: &dyn std::fmt::Display| unreadable(&format!("the record of {name:?}"), what);
        let key = Key::new(name).map_err(|error| wrong(&error))?;
        let ours = number(row, 2)? == Some(1);
        let token = number(row, 5)?.and_then(|token| u64::try_from(token).ok());
        let Some(token) = token.filter(|token| *token < TOKEN_END) else {
            return Err(wrong(&"its Token has to be a number from 0 to 2^53 - 1"));
        };
        // The article's holders have none: later than the last of ours.
        let token = Token(if ours { token } else { token.saturating_add(1) });
        let until = time(row, 6)?.ok_or_else(|| wrong(&"its ExpiresAtUtc is NULL"))?;
        let now = time(row, 11)?.ok_or_else(|| wrong(&"the server told no time"))?;
        let holder = match text(row, 4)? {
            None => return Err(wrong(&"its OwnerId is NULL")),
            // An ended record is free, whatever its holder is called.
            Some(name) if until > now => Some(Holder::new(name).map_err(|error| wrong(&error))?),
            Some(name) => Holder::new(name).ok(),
        };
        let own = match ours {
            true => Some(Own::read(row)?),
            false => None,
        };
        Ok(Self {
            key,
            holder,
            token,
            until,
            now,
            own,
        })
    }

    /// Whether its term has not ended, by the server's clock when it was judged.
    pub(crate) fn is_live(&self) -> bool {
        self.until > self.now
    }

    /// Whether the record holds a term of this length from the moment that was judged by.
    pub(crate) fn holds(&self, ttl: Duration) -> bool {
        self.own.is_some() && between(self.now, self.until) >= ttl
    }

    /// It has ended, but nobody can take it. Tokens follow the clock and get there in
    /// the year 2255: somebody wrote this one by hand.
    pub(crate) fn no_more_tokens(&self) -> Error {
        let why = format!("after its Token {} none is left below 2^53", self.token);
        unreadable(&format!("the record of {:?}", self.key.as_str()), &why)
    }

    /// Whether the one who wrote it reads requests.
    pub(crate) fn is_ours(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) fn request(&self) -> Option<HolderRequest> {
        self.own.as_ref()?.request.clone()
    }

    /// The lease that it is, if it is live.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let holder = self.holder.clone().filter(|_| self.is_live())?;
        let rest = between(self.now, self.until);
        let own = self.own.as_ref();
        // The article keeps no ttl: what is left of it is all that is known.
        let ttl = own.and_then(|own| own.ttl).unwrap_or(rest);
        // The end is rounded up to whole milliseconds, and has one more.
        let rounded = rest > ttl && rest - ttl < Duration::from_millis(3);
        Some(Lease {
            key: self.key.clone(),
            holder,
            token: self.token,
            attempt: own.and_then(|own| own.attempt),
            ttl,
            rest: Some(if rounded { ttl } else { rest }),
            acquired_at: own.and_then(|own| own.since).and_then(Ticks::system_time),
            version: Version::new(format!("{}.{}", self.token, self.until.0)),
        })
    }
}

impl Own {
    fn read(row: &Row) -> Result<Self> {
        let ttl = number(row, 8)?.and_then(|ns| u64::try_from(ns).ok());
        let request = text(row, 10)?;
        Ok(Self {
            attempt: number(row, 7)?.map(|number| Attempt::from_u64(number.cast_unsigned())),
            ttl: ttl.map(Duration::from_nanos),
            since: time(row, 9)?,
            // One of a newer version is not for us, and no reason to lose the lease.
            request: request
                .filter(|text| text == "step-down")
                .map(|_| HolderRequest::StepDown),
        })
    }
}

/// A request as the record has it.
pub(crate) fn request_text(request: &HolderRequest) -> Result<&'static str> {
    match request {
        HolderRequest::StepDown => Ok("step-down"),
        other => Err(Error::unsupported(format!(
            "the sqlserver store cannot carry the request {other:?}"
        ))),
    }
}

fn cell(row: &Row, column: usize) -> Result<&ColumnData<'static>> {
    let cell = row.cells().nth(column).map(|(_, cell)| cell);
    cell.ok_or_else(|| unreadable("the answer", &format!("it has no column {column}")))
}

fn number(row: &Row, column: usize) -> Result<Option<i64>> {
    match cell(row, column)? {
        ColumnData::I64(number) => Ok(*number),
        ColumnData::I32(number) => Ok(number.map(i64::from)),
        other => Err(odd(column, other)),
    }
}

fn text(row: &Row, column: usize) -> Result<Option<String>> {
    match cell(row, column)? {
        ColumnData::String(text) => Ok(text.clone().map(Cow::into_owned)),
        other => Err(odd(column, other)),
    }
}

fn time(row: &Row, column: usize) -> Result<Option<Ticks>> {
    match cell(row, column)? {
        ColumnData::DateTime2(time) => Ok(time.and_then(Ticks::of)),
        other => Err(odd(column, other)),
    }
}

fn odd(column: usize, cell: &ColumnData<'_>) -> Error {
    let why = format!("its column {column} is of another kind: {cell:?}");
    unreadable("the answer", &why)
}

fn unreadable(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "{what} cannot be read ({why}): look at it with `sqlcmd`, and delete it if nobody holds it"
    ))
}

fn between(from: Ticks, to: Ticks) -> Duration {
    let ticks = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    Duration::from_nanos(ticks.saturating_mul(100))
}

impl Ticks {
    pub(crate) fn of(time: DateTime2) -> Option<Self> {
        let part = time.time();
        let to_ticks = 10_u64.checked_pow(7_u32.checked_sub(part.scale().into())?)?;
        let of_day = i64::try_from(part.increments().checked_mul(to_ticks)?).ok()?;
        let days = i64::from(time.date().days()) - EPOCH_DAYS;
        days.checked_mul(DAY_TICKS)?.checked_add(of_day).map(Self)
    }

    fn system_time(self) -> Option<SystemTime> {
        let since = Duration::from_nanos(self.0.unsigned_abs().saturating_mul(100));
        match self.0 >= 0 {
            true => SystemTime::UNIX_EPOCH.checked_add(since),
            false => SystemTime::UNIX_EPOCH.checked_sub(since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiberius::time::{Date, Time};

    fn ticks(days: u32, increments: u64, scale: u8) -> Option<Ticks> {
        Ticks::of(DateTime2::new(
            Date::new(days),
            Time::new(increments, scale),
        ))
    }

    #[test]
    fn times_are_read_in_every_scale() {
        assert_eq!(ticks(719_162, 0, 7), Some(Ticks(0)));
        assert_eq!(ticks(719_162, 1, 7), Some(Ticks(1)));
        assert_eq!(ticks(719_162, 1, 3), Some(Ticks(10_000)));
        assert_eq!(ticks(719_163, 2, 0), Some(Ticks(DAY_TICKS + 20_000_000)));
        assert_eq!(ticks(719_162, 1, 9), None, "no such scale");
        assert!(
            ticks(3_652_058, 863_999_999_999, 7) > ticks(0, 0, 7),
            "9999-12-31"
        );
        assert_eq!(Ticks(0).system_time(), Some(SystemTime::UNIX_EPOCH));
        assert!(Ticks(-1).system_time() < Ticks(0).system_time());
    }

    #[test]
    fn a_time_between_is_never_negative() {
        assert_eq!(between(Ticks(5), Ticks(3)), Duration::ZERO);
        assert_eq!(between(Ticks(3), Ticks(5)), Duration::from_nanos(200));
    }
}
