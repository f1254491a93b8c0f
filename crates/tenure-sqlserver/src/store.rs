//! The store: the contract of `tenure`, one batch for each operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, HolderRequest, Key, Lease, Loss, NAME_BYTES_MAX,
    Released, Renewed, Result, Store, StoreTraits,
};
use tiberius::ToSql;

use crate::batches::Batches;
use crate::connect::{Connect, Connection, Connector};
use crate::failure::Place;
use crate::names::stored;
use crate::options::SqlServerOptions;
use crate::pool::Pool;
use crate::record::{Answer, Record, request_text};

/// Leases in one SQL Server table. Clones share it.
///
/// It connects with the first call and not before, so that an elector that is started
/// during an outage campaigns on. See the crate's documentation for an example.
#[derive(Clone)]
pub struct SqlServerStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: SqlServerOptions,
    place: Arc<Place>,
    pool: Pool,
    batches: Batches,
}

impl SqlServerStore {
    /// A store with connections of its own. Nothing is connected yet.
    pub fn open(options: SqlServerOptions) -> Result<Self> {
        let place = Arc::new(Place::new(&options));
        let connector = Connector::new(&options, place.clone())?;
        Self::with(Box::new(connector), options, place)
    }

    /// A store that gets its connections from the caller, for a login that a URL cannot say.
    pub fn with_connector(connect: impl Connect, options: SqlServerOptions) -> Result<Self> {
        let place = Arc::new(Place::new(&options));
        Self::with(Box::new(connect), options, place)
    }

    /// A store on the caller's one connection. Once a call on it was given up, or it has
    /// ended, every call fails: for anything that lives long, give a connector.
    pub fn with_client(connection: Connection, options: SqlServerOptions) -> Result<Self> {
        let place = Arc::new(Place::new(&options));
        let (wait, limit) = (options.connect_timeout, options.command_timeout);
        let pool = Pool::of_one(connection, place.clone(), wait, limit);
        Self::new(pool, options, place)
    }

    fn with(
        connect: Box<dyn Connect>,
        options: SqlServerOptions,
        place: Arc<Place>,
    ) -> Result<Self> {
        let pool = Pool::new(
            connect,
            place.clone(),
            options.connections_max,
            options.connect_timeout,
            options.command_timeout,
        );
        Self::new(pool, options, place)
    }

    fn new(pool: Pool, options: SqlServerOptions, place: Arc<Place>) -> Result<Self> {
        options.table.check()?;
        let batches = Batches::new(&options.table, options.lock_timeout.as_millis().max(1));
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                place,
                pool,
                batches,
            }),
        })
    }

    /// Creates the table, or the columns that it lacks, and says in one sentence what
    /// was done.
    pub async fn init(&self) -> Result<String> {
        crate::schema::init(&self.shared.options, &self.shared.pool).await
    }

    /// A batch that gives one row.
    async fn run(&self, batch: &str, parameters: &[&dyn ToSql]) -> Result<Answer> {
        let rows = self.shared.pool.query(batch, parameters).await?;
        let row = rows.first().ok_or_else(|| self.shared.place.no_answer())?;
        Answer::read(row)
    }

    /// The lease that a batch has written; it must hold the whole term.
    fn written(&self, record: &Record, ttl: Duration) -> Result<Lease> {
        match record.lease() {
            Some(lease) if record.holds(ttl) => Ok(lease),
            _ => Err(self.shared.place.cut_short()),
        }
    }
}

fn loss(lease: &Lease, found: Option<&Record>) -> Loss {
    let Some(found) = found else {
        return Loss::Deleted;
    };
    let same = found.holder.as_ref() == Some(&lease.holder) && found.token == lease.token;
    match &found.holder {
        Some(_) if same && !found.is_live() => Loss::Expired,
        Some(holder) if found.is_live() => Loss::Superseded {
            holder: holder.clone(),
            token: found.token,
        },
        _ => Loss::Deleted,
    }
}

impl fmt::Debug for SqlServerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerStore")
            .field("url", &self.shared.place.url())
            .field("table", &self.shared.options.table.to_string())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqlServerStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("sqlserver");
        traits.list = true;
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let key = stored(request.key.as_str());
        let (holder, attempt) = (request.holder.as_str(), signed(request.attempt.as_u64()));
        let (seconds, millis) = parts(request.ttl);
        let parameters: [&dyn ToSql; 6] = [
            &key,
            &holder,
            &attempt,
            &seconds,
            &millis,
            &nanos(request.ttl),
        ];
        let answer = self.run(&self.shared.batches.acquire, &parameters).await?;
        let place = &self.shared.place;
        let record = answer.record.ok_or_else(|| place.no_answer())?;
        if answer.done {
            let lease = self.written(&record, request.ttl)?;
            let ours = lease.holder == request.holder && lease.attempt == Some(request.attempt);
            return match ours {
                true => Ok(Acquired::Granted(lease)),
                false => Err(place.no_answer()),
            };
        }
        match record.lease() {
            Some(lease) => Ok(Acquired::Held(lease)),
            None => Err(record.no_more_tokens()),
        }
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        let (key, holder) = (stored(lease.key.as_str()), lease.holder.as_str());
        let (seconds, millis) = parts(ttl);
        let parameters: [&dyn ToSql; 6] = [
            &key,
            &holder,
            &signed(lease.token.0),
            &seconds,
            &millis,
            &nanos(ttl),
        ];
        let answer = self.run(&self.shared.batches.renew, &parameters).await?;
        match (answer.done, answer.record) {
            (true, Some(record)) => {
                let renewed = self.written(&record, ttl)?;
                Ok(Renewed::Renewed(renewed, record.request()))
            }
            (true, None) => Err(self.shared.place.no_answer()),
            (false, found) => Ok(Renewed::Lost(loss(lease, found.as_ref()))),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let (key, holder) = (stored(lease.key.as_str()), lease.holder.as_str());
        let parameters: [&dyn ToSql; 3] = [&key, &holder, &signed(lease.token.0)];
        let answer = self.run(&self.shared.batches.release, &parameters).await?;
        Ok(match answer.done {
            true => Released::Released,
            false => Released::NotHeld,
        })
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let key = stored(key.as_str());
        let answer = self.run(&self.shared.batches.read, &[&key]).await?;
        Ok(answer.record.and_then(|record| record.lease()))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        // No key is so long.
        if prefix.len() > NAME_BYTES_MAX {
            return Ok(Vec::new());
        }
        let units = i32::try_from(prefix.encode_utf16().count()).unwrap_or(i32::MAX);
        let parameters: [&dyn ToSql; 2] = [&prefix, &units];
        let batch = &self.shared.batches.list;
        let rows = self.shared.pool.query(batch, &parameters).await?;
        let mut leases = Vec::with_capacity(rows.len());
        for row in &rows {
            let lease = Answer::read(row)?.record.and_then(|record| record.lease());
            leases.extend(lease.filter(|lease| lease.key.as_str().starts_with(prefix)));
        }
        leases.sort_by(|one, other| one.key.cmp(&other.key));
        leases.truncate(limit);
        Ok(leases)
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let (name, text) = (stored(key.as_str()), request_text(&request)?);
        let parameters: [&dyn ToSql; 2] = [&name, &text];
        let answer = self.run(&self.shared.batches.ask, &parameters).await?;
        let Some(record) = answer.record.filter(Record::is_live) else {
            return Ok(Asked::NotHeld);
        };
        let Some(holder) = record.holder.clone() else {
            return Ok(Asked::NotHeld);
        };
        if !answer.done || !record.is_ours() {
            return Err(Error::unsupported(format!(
                "{:?} is held by {holder}, whose program reads no requests: stop it there",
                key.as_str()
            )));
        }
        let token = record.token;
        Ok(Asked::Left { holder, token })
    }
}

/// SQL Server's integers have a sign; ours stay far below where it matters.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The term's length for the server's clock, in seconds and milliseconds: one millisecond
/// more, because the end is rounded to whole ones, and must never come early.
fn parts(ttl: Duration) -> (i32, i32) {
    let millis = ttl.as_nanos().div_ceil(1_000_000) + 1;
    let part = |number: u128| i32::try_from(number).unwrap_or(i32::MAX);
    (part(millis / 1000), part(millis % 1000))
}

fn nanos(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_never_shorter_than_asked_for() {
        assert_eq!(parts(Duration::from_millis(10)), (0, 11));
        assert_eq!(parts(Duration::from_nanos(10_000_001)), (0, 12));
        assert_eq!(parts(Duration::from_millis(1999)), (2, 0));
        assert_eq!(parts(Duration::from_secs(315_360_000)), (315_360_000, 1));
    }
}
