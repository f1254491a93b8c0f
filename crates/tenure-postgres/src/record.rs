//! One record of the table, read and checked.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use tenure::{Attempt, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type, accepts};

/// Tokens stay below this, so that every language can hold them.
const TOKEN_END: u64 = 1 << 53;
/// From 1970 to 2000, where PostgreSQL counts from.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Microseconds since 1970; an infinite time is the greatest or the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) i64);

/// One record, with the server's time at which it was read.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) key: Key,
    /// None once it was released: the record stays, because the token lives in it.
    pub(crate) holder: Option<Holder>,
    pub(crate) token: Token,
    acquired_at: Micros,
    expires_at: Micros,
    now: Micros,
    /// What we know beyond HAMode's columns, if it is of this state of the record.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    attempt: Option<Attempt>,
    ttl: Option<Duration>,
    request: Option<HolderRequest>,
}

/// How many columns a record has; what a statement says beside comes after them.
pub(crate) const COLUMNS: usize = 10;

impl Record {
    /// Reads the columns in the order of `statements::columns`, and the time after them.
    /// Nothing if there is no record.
    pub(crate) fn read(row: &Row) -> Result<Option<Self>> {
        let odd = |error: tokio_postgres::Error| unreadable("a record", &error);
        let Some(name) = row.try_get::<_, Option<&str>>(0).map_err(odd)? else {
            return Ok(None);
        };
        let wrong =
            |what: &dyn std::fmt::Display| unreadable(&format!("the record of {name:?}"), what);
        let of_column = |error: tokio_postgres::Error| wrong(&error);
        let key = Key::new(name).map_err(|error| wrong(&error))?;
        let version: Option<i64> = row.try_get(2).map_err(of_column)?;
        let token = version
            .and_then(|version| u64::try_from(version).ok())
            .filter(|token| *token < TOKEN_END);
        let Some(token) = token.map(Token) else {
            return Err(wrong(&"its version has to be a number from 0 to 2^53 - 1"));
        };
        let time = |column: usize| -> Result<Micros> {
            let time: Option<Micros> = row.try_get(column).map_err(of_column)?;
            time.ok_or_else(|| wrong(&"a time in it is NULL"))
        };
        let (acquired_at, expires_at, now) = (time(3)?, time(4)?, time(9)?);
        let holder: Option<&str> = row.try_get(1).map_err(of_column)?;
        let holder = match holder {
            None => return Err(wrong(&"its holder_id is NULL")),
            // An ended record is free, whatever its holder is called.
            Some(name) if expires_at > now => {
                Some(Holder::new(name).map_err(|error| wrong(&error))?)
            }
            Some(name) => Holder::new(name).ok(),
        };
        let own_version: Option<i64> = row.try_get(5).map_err(of_column)?;
        let own = match own_version == version {
            true => Some(Own::read(row).map_err(of_column)?),
            false => None,
        };
        Ok(Some(Self {
            key,
            holder,
            token,
            acquired_at,
            expires_at,
            now,
            own,
        }))
    }

    /// Whether its term has not ended, by the server's clock when it was read.
    pub(crate) fn is_live(&self) -> bool {
        self.expires_at > self.now
    }

    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.own.as_ref()?.attempt
    }

    /// It has ended, but nobody can take it. Tokens follow the clock and get there in
    /// the year 2255: somebody wrote this one by hand.
    pub(crate) fn no_more_tokens(&self) -> Error {
        let why = format!(
            "after its version {} no token is left below 2^53",
            self.token
        );
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
        self.lease_written().filter(|_| self.is_live())
    }

    /// The lease that was just written. A very short term may have ended since.
    pub(crate) fn lease_written(&self) -> Option<Lease> {
        let holder = self.holder.clone()?;
        let rest = between(self.now, self.expires_at);
        // HAMode writes both times with each renewal, so what lies between is its ttl.
        let ttl = self.own.as_ref().and_then(|own| own.ttl);
        let ttl = ttl.unwrap_or_else(|| between(self.acquired_at, self.expires_at));
        // The end is rounded up to a whole microsecond.
        let rounded = rest > ttl && rest - ttl < Duration::from_micros(1);
        Some(Lease {
            key: self.key.clone(),
            holder,
            token: self.token,
            attempt: self.attempt(),
            ttl,
            rest: Some(if rounded { ttl } else { rest }),
            acquired_at: self.acquired_at.system_time(),
            version: version_text(self.token, self.expires_at),
        })
    }
}

impl Own {
    fn read(row: &Row) -> std::result::Result<Self, tokio_postgres::Error> {
        let attempt: Option<i64> = row.try_get(6)?;
        let ttl: Option<i64> = row.try_get(7)?;
        let request: Option<&str> = row.try_get(8)?;
        let ttl = ttl.and_then(|ns| u64::try_from(ns).ok());
        Ok(Self {
            attempt: attempt.map(|number| Attempt::from_u64(number.cast_unsigned())),
            ttl: ttl.map(Duration::from_nanos),
            // One of a newer version is not for us, and no reason to lose the lease.
            request: request
                .filter(|text| *text == "step-down")
                .map(|_| HolderRequest::StepDown),
        })
    }
}

/// A request as the record has it.
pub(crate) fn request_text(request: &HolderRequest) -> Result<&'static str> {
    match request {
        HolderRequest::StepDown => Ok("step-down"),
        other => Err(Error::unsupported(format!(
            "the postgres store cannot carry the request {other:?}"
        ))),
    }
}

/// One state of one tenure: each renewal has another end.
pub(crate) fn version_text(token: Token, expires_at: Micros) -> Version {
    Version::new(format!("{token}.{}", expires_at.0))
}

fn unreadable(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "{what} cannot be read ({why}): look at it with `psql`, and delete it if nobody holds it"
    ))
}

fn between(from: Micros, to: Micros) -> Duration {
    let us = to.0.saturating_sub(from.0);
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

impl Micros {
    pub(crate) fn system_time(self) -> Option<SystemTime> {
        let since = Duration::from_micros(self.0.unsigned_abs());
        match self.0 >= 0 {
            true => SystemTime::UNIX_EPOCH.checked_add(since),
            false => SystemTime::UNIX_EPOCH.checked_sub(since),
        }
    }
}

impl<'a> FromSql<'a> for Micros {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        let since_2000 = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(match since_2000 {
            i64::MIN | i64::MAX => since_2000,
            us => us.saturating_add(EPOCH_US),
        }))
    }

    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_microsecond() {
        let read = |us: i64| Micros::from_sql(&Type::TIMESTAMPTZ, &us.to_be_bytes()).unwrap();
        assert_eq!(read(-EPOCH_US), Micros(0));
        assert_eq!(read(1), Micros(EPOCH_US + 1));
        assert_eq!(read(i64::MAX), Micros(i64::MAX), "infinity");
        assert_eq!(read(i64::MIN), Micros(i64::MIN), "-infinity");
        assert_eq!(read(i64::MAX - 1), Micros(i64::MAX));
        assert!(Micros::from_sql(&Type::TIMESTAMPTZ, &[0; 4]).is_err());
        assert_eq!(Micros(0).system_time(), Some(SystemTime::UNIX_EPOCH));
        assert!(Micros(-1).system_time() < Micros(0).system_time());
    }

    #[test]
    fn a_time_between_is_never_negative() {
        assert_eq!(between(Micros(5), Micros(3)), Duration::ZERO);
        assert_eq!(between(Micros(3), Micros(5)), Duration::from_micros(2));
        let ever = between(Micros(i64::MIN), Micros(i64::MAX));
        assert_eq!(ever, Duration::from_micros(i64::MAX.cast_unsigned()));
    }
}
