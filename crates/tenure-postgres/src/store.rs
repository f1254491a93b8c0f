//! The store: the contract of `tenure`, one statement for each operation.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, HolderRequest, Key, Lease, Loss, Notice, Released,
    Renewed, Result, Store, StoreTraits,
};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::connect::Connector;
use crate::failure::Place;
use crate::listen::Hub;
use crate::options::{Listen, PostgresOptions, Prepare};
use crate::record::{COLUMNS, Record, request_text};
use crate::source::{Parameter, Source};
use crate::statements::Statements;

/// So that others need not wait long for the rows.
const RENEW_MANY_AT_ONCE: usize = 1000;

/// Leases in one PostgreSQL table. Clones share it.
///
/// It connects with the first call and not before, so that an elector that is started
/// during an outage campaigns on. See the crate's documentation for an example.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: PostgresOptions,
    place: Arc<Place>,
    source: Source,
    statements: Statements,
    hub: Option<Hub>,
}

impl PostgresStore {
    /// A store with a pool of its own. Nothing is connected yet.
    pub fn open(options: PostgresOptions) -> Result<Self> {
        let connector = Connector::new(&options, &options.servers)?;
        let prepare = Arc::new(AtomicBool::new(options.prepare != Prepare::Off));
        let to_look_at = (options.prepare == Prepare::Auto).then(|| prepare.clone());
        let pool = connector.pool(options.connections_max, to_look_at)?;
        let own = true;
        Self::new(options, Source::Pool { pool, own, prepare })
    }

    /// A store on the caller's pool. It listens for changes only if the options name
    /// servers: a pool's connections cannot be listened on.
    pub fn with_pool(pool: Pool, options: PostgresOptions) -> Result<Self> {
        let prepare = Arc::new(AtomicBool::new(options.prepare == Prepare::On));
        let own = false;
        Self::new(options, Source::Pool { pool, own, prepare })
    }

    /// A store on the caller's one connection, which the caller drives. Once a call on
    /// it was given up, or it has ended, every call fails: for anything that lives long,
    /// give a pool.
    pub fn with_client(client: Arc<Client>, options: PostgresOptions) -> Result<Self> {
        let given_up = Arc::new(AtomicBool::new(false));
        Self::new(options, Source::Client(client, given_up))
    }

    fn new(options: PostgresOptions, source: Source) -> Result<Self> {
        options.table.check()?;
        let place = Arc::new(Place::new(&options));
        let statements = Statements::new(&options.table, options.lock_timeout.as_millis().max(1));
        let servers = match &options.listen {
            Listen::Off => None,
            Listen::On => Some(&options.servers),
            Listen::At(servers) => Some(servers),
        };
        let hub = match servers {
            Some(servers) if !servers.is_empty() => Some(Hub::new(
                Connector::new(&options, servers)?,
                place.clone(),
                options.table.channel(),
                source.clone(),
                statements.probe.clone(),
            )),
            _ => None,
        };
        let shared = Shared {
            options,
            place,
            source,
            statements,
            hub,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Creates the table, or the columns that it lacks, and says in one sentence what
    /// was done.
    pub async fn init(&self) -> Result<String> {
        let shared = &self.shared;
        crate::schema::init(&shared.options, &shared.source, &shared.place).await
    }

    async fn run(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let shared = &self.shared;
        shared
            .source
            .run(&shared.place, statement, parameters)
            .await
    }

    async fn renew_part(&self, part: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let keys: Vec<&str> = part.iter().map(|(lease, _)| lease.key.as_str()).collect();
        let holders: Vec<&str> = part
            .iter()
            .map(|(lease, _)| lease.holder.as_str())
            .collect();
        let tokens: Vec<i64> = part
            .iter()
            .map(|(lease, _)| signed(lease.token.0))
            .collect();
        let micros: Vec<i64> = part.iter().map(|(_, ttl)| micros(*ttl)).collect();
        let nanos: Vec<i64> = part.iter().map(|(_, ttl)| nanos(*ttl)).collect();
        let parameters: [Parameter<'_>; 5] = [
            (&keys, Type::TEXT_ARRAY),
            (&holders, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&micros, Type::INT8_ARRAY),
            (&nanos, Type::INT8_ARRAY),
        ];
        let rows = match self
            .run(&self.shared.statements.renew_many, &parameters)
            .await
        {
            Ok(rows) => rows,
            Err(error) => return part.iter().map(|_| Err(error.clone())).collect(),
        };
        let by_key: HashMap<&str, &Row> = rows
            .iter()
            .filter_map(|row| Some((row.try_get::<_, &str>(0).ok()?, row)))
            .collect();
        part.iter()
            .map(|(lease, _)| self.renewed(lease, by_key.get(lease.key.as_str()).copied()))
            .collect()
    }

    /// The answer that a row of a renewal is.
    fn renewed(&self, lease: &Lease, row: Option<&Row>) -> Result<Renewed> {
        let Some(row) = row else {
            return Ok(Renewed::Lost(Loss::Deleted));
        };
        let Some(record) = Record::read(row)? else {
            return Ok(Renewed::Lost(Loss::Deleted));
        };
        match record.lease_written() {
            Some(renewed) if self.flag(row, 0)? => Ok(Renewed::Renewed(renewed, record.request())),
            _ => Ok(Renewed::Lost(loss(lease, &record))),
        }
    }

    /// What a statement says beside the record.
    fn flag(&self, row: &Row, place: usize) -> Result<bool> {
        row.try_get(COLUMNS + place)
            .map_err(|error| self.shared.place.of_statement(&error))
    }

    /// A replica's answer may be old.
    fn refuse_standby(&self, rows: &[Row]) -> Result<()> {
        match rows.first().map(|row| self.flag(row, 0)).transpose()? {
            Some(true) => Err(self.shared.place.read_only()),
            _ => Ok(()),
        }
    }
}

fn loss(lease: &Lease, found: &Record) -> Loss {
    let same = found.holder.as_ref() == Some(&lease.holder) && found.token == lease.token;
    match &found.holder {
        Some(_) if same => Loss::Expired,
        Some(holder) if found.is_live() => Loss::Superseded {
            holder: holder.clone(),
            token: found.token,
        },
        _ => Loss::Deleted,
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("url", &self.shared.place.url())
            .field("table", &self.shared.options.table.to_string())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("postgres");
        traits.watch = self.shared.hub.is_some();
        traits.list = true;
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let (key, holder) = (request.key.as_str(), request.holder.as_str());
        let attempt = signed(request.attempt.as_u64());
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::TEXT),
            (&holder, Type::TEXT),
            (&attempt, Type::INT8),
            (&micros(request.ttl), Type::INT8),
            (&nanos(request.ttl), Type::INT8),
        ];
        let rows = self
            .run(&self.shared.statements.acquire, &parameters)
            .await?;
        let place = &self.shared.place;
        let row = rows.first().ok_or_else(|| place.no_answer())?;
        let record = Record::read(row)?.ok_or_else(|| place.no_answer())?;
        let locked = self.flag(row, 1)?;
        if !locked && !record.is_live() {
            return Err(record.no_more_tokens());
        }
        let own = record.holder.as_ref() == Some(&request.holder)
            && record.attempt() == Some(request.attempt);
        let lease = record.lease_written().ok_or_else(|| place.no_answer())?;
        Ok(match locked && own {
            true => Acquired::Granted(lease),
            false => Acquired::Held(lease),
        })
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        let (key, holder) = (lease.key.as_str(), lease.holder.as_str());
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::TEXT),
            (&holder, Type::TEXT),
            (&signed(lease.token.0), Type::INT8),
            (&micros(ttl), Type::INT8),
            (&nanos(ttl), Type::INT8),
        ];
        let rows = self.run(&self.shared.statements.renew, &parameters).await?;
        self.renewed(lease, rows.first())
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let (key, holder) = (lease.key.as_str(), lease.holder.as_str());
        let parameters: [Parameter<'_>; 3] = [
            (&key, Type::TEXT),
            (&holder, Type::TEXT),
            (&signed(lease.token.0), Type::INT8),
        ];
        let rows = self
            .run(&self.shared.statements.release, &parameters)
            .await?;
        Ok(match rows.is_empty() {
            false => Released::Released,
            true => Released::NotHeld,
        })
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let key = key.as_str();
        let rows = self
            .run(&self.shared.statements.read, &[(&key, Type::TEXT)])
            .await?;
        self.refuse_standby(&rows)?;
        let record = rows.first().map(Record::read).transpose()?.flatten();
        Ok(record.and_then(|record| record.lease()))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // No key begins so, and PostgreSQL could not hold it.
        let prefix = if prefix.contains('\0') {
            "\u{1}"
        } else {
            prefix
        };
        let parameters: [Parameter<'_>; 2] = [(&prefix, Type::TEXT), (&limit, Type::INT8)];
        let rows = self.run(&self.shared.statements.list, &parameters).await?;
        self.refuse_standby(&rows)?;
        let mut leases = Vec::with_capacity(rows.len());
        for row in &rows {
            leases.extend(Record::read(row)?.and_then(|record| record.lease()));
        }
        Ok(leases)
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let traits = self.traits();
        let mut answers: Vec<Option<Result<Renewed>>> = leases
            .iter()
            .map(|(_, ttl)| traits.check_ttl(*ttl).err().map(Err))
            .collect();
        loop {
            // Each key at most once in a statement.
            let mut keys = HashSet::new();
            let places: Vec<usize> = (0..leases.len())
                .filter(|place| answers[*place].is_none() && keys.insert(&leases[*place].0.key))
                .take(RENEW_MANY_AT_ONCE)
                .collect();
            if places.is_empty() {
                break;
            }
            let part: Vec<_> = places.iter().map(|place| leases[*place].clone()).collect();
            for (place, answer) in places.into_iter().zip(self.renew_part(&part).await) {
                answers[place] = Some(answer);
            }
        }
        answers.into_iter().flatten().collect()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        match &self.shared.hub {
            Some(hub) => hub.watch(key).await,
            None => Err(self.cannot("push changes here, because it was told not to listen")),
        }
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let (name, text) = (key.as_str(), request_text(&request)?);
        let parameters: [Parameter<'_>; 2] = [(&name, Type::TEXT), (&text, Type::TEXT)];
        let rows = self.run(&self.shared.statements.ask, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(Asked::NotHeld);
        };
        let Some(record) = Record::read(row)?.filter(Record::is_live) else {
            return Ok(Asked::NotHeld);
        };
        let Some(holder) = record.holder.clone() else {
            return Ok(Asked::NotHeld);
        };
        if !self.flag(row, 0)? || !record.is_ours() {
            return Err(Error::unsupported(format!(
                "{name:?} is held by {holder}, whose program reads no requests: stop it there"
            )));
        }
        let token = record.token;
        Ok(Asked::Left { holder, token })
    }
}

/// PostgreSQL's integers have a sign; ours stay far below where it matters.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The term's length for the server's clock: never shorter than what was asked for.
fn micros(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn nanos(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX)
}
