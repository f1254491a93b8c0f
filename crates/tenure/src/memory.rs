//! The in-memory store: the reference, for tests and for one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::broadcast;

use crate::clock::{BootClock, Clock, Moment};
use crate::error::Result;
use crate::store::{
    AcquireRequest, Acquired, Asked, HolderRequest, Lease, Loss, Notice, Released, Renewed, Store,
    StoreTraits,
};
use crate::words::{Attempt, Holder, Key, Token, Version};

/// How many notices a slow watcher may lie behind.
const NOTICES_MAX: usize = 16;

/// Leases in the memory of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    own_clock: bool,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    by_key: BTreeMap<Key, Record>,
    /// One channel for each key that is watched.
    watched: HashMap<Key, broadcast::Sender<Notice>>,
    revision: u64,
}

#[derive(Debug)]
struct Record {
    /// None once it was released: the record stays, because the token lives in it.
    holder: Option<Holder>,
    token: Token,
    attempt: Attempt,
    ttl: Duration,
    ends_at: Moment,
    acquired_at: SystemTime,
    version: u64,
    request: Option<HolderRequest>,
}

impl MemoryStore {
    /// An empty store that judges expiry by the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty store that judges expiry by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::make(clock, true)
    }

    /// An empty store that judges no expiry, as objects and Kubernetes: candidates
    /// watch the record and name the version that has ended.
    pub fn watched() -> Self {
        Self::make(Arc::new(BootClock), false)
    }

    /// As [`watched`](Self::watched), with this clock for the tokens.
    pub fn watched_with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::make(clock, false)
    }

    fn make(clock: Arc<dyn Clock>, own_clock: bool) -> Self {
        let shared = Shared {
            clock,
            own_clock,
            records: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Removes the record, as an operator might do by hand.
    pub fn delete(&self, key: &Key) {
        let mut records = self.records();
        records.by_key.remove(key);
        records.tell(key, Notice::Free);
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // A panic while it was locked cannot have left a record half written: each is
        // replaced as a whole.
        self.shared
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn clock_us(&self) -> u64 {
        let since = self
            .shared
            .clock
            .wall()
            .duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(0))
    }

    fn live<'r>(&self, record: &'r Record, now: Moment) -> Option<&'r Holder> {
        let ended = self.shared.own_clock && record.ends_at <= now;
        record.holder.as_ref().filter(|_| !ended)
    }

    fn lease(&self, key: &Key, record: &Record, holder: &Holder, now: Moment) -> Lease {
        Lease {
            key: key.clone(),
            holder: holder.clone(),
            token: record.token,
            attempt: Some(record.attempt),
            ttl: record.ttl,
            rest: self.shared.own_clock.then(|| record.ends_at - now),
            acquired_at: Some(record.acquired_at),
            version: Version::new(record.version.to_string()),
        }
    }
}

impl Records {
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn watch(&mut self, key: &Key) -> broadcast::Receiver<Notice> {
        let channel = self.watched.entry(key.clone());
        let sender = channel.or_insert_with(|| broadcast::channel(NOTICES_MAX).0);
        sender.subscribe()
    }

    fn tell(&mut self, key: &Key, notice: Notice) {
        // An error means that the last watcher has gone.
        if let Some(sender) = self.watched.get(key)
            && sender.send(notice).is_err()
        {
            self.watched.remove(key);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn traits(&self) -> StoreTraits {
        StoreTraits {
            own_clock: self.shared.own_clock,
            watch: true,
            list: true,
            ask: true,
            ttl_min: Duration::from_millis(1),
            ..StoreTraits::new("memory")
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let mut records = self.records();
        let now = self.shared.clock.now();
        let mut token = None;
        let mut acquired_at = self.shared.clock.wall();
        let mut last = Token(0);
        let mut asked = None;
        if let Some(record) = records.by_key.get(&request.key) {
            last = record.token;
            if let Some(holder) = self.live(record, now) {
                let version = Version::new(record.version.to_string());
                let ended = !self.shared.own_clock && request.ended.as_ref() == Some(&version);
                if *holder == request.holder && record.attempt == request.attempt {
                    token = Some(record.token);
                    acquired_at = record.acquired_at;
                    asked = record.request.clone();
                } else if !ended {
                    let lease = self.lease(&request.key, record, holder, now);
                    return Ok(Acquired::Held(lease));
                }
            }
        }
        let record = Record {
            holder: Some(request.holder.clone()),
            token: token.unwrap_or_else(|| Token::next(last, self.clock_us())),
            attempt: request.attempt,
            ttl: request.ttl,
            ends_at: now + request.ttl,
            acquired_at,
            version: records.next_revision(),
            request: asked,
        };
        let lease = self.lease(&request.key, &record, &request.holder, now);
        records.by_key.insert(request.key.clone(), record);
        records.tell(&request.key, Notice::Held(lease.clone()));
        Ok(Acquired::Granted(lease))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        let mut records = self.records();
        let now = self.shared.clock.now();
        let revision = records.next_revision();
        let Some(record) = records.by_key.get_mut(&lease.key) else {
            return Ok(Renewed::Lost(Loss::Deleted));
        };
        match self.live(record, now).cloned() {
            Some(holder) if holder == lease.holder && record.token == lease.token => {
                record.ttl = ttl;
                record.ends_at = now + ttl;
                record.version = revision;
                let request = record.request.clone();
                let renewed = self.lease(&lease.key, record, &holder, now);
                Ok(Renewed::Renewed(renewed, request))
            }
            Some(holder) => Ok(Renewed::Lost(Loss::Superseded {
                holder,
                token: record.token,
            })),
            None if record.holder.is_some() && record.token == lease.token => {
                Ok(Renewed::Lost(Loss::Expired))
            }
            None => Ok(Renewed::Lost(Loss::Deleted)),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let mut records = self.records();
        let now = self.shared.clock.now();
        let revision = records.next_revision();
        let Some(record) = records.by_key.get_mut(&lease.key) else {
            return Ok(Released::NotHeld);
        };
        if self.live(record, now) != Some(&lease.holder) || record.token != lease.token {
            return Ok(Released::NotHeld);
        }
        record.holder = None;
        record.request = None;
        record.version = revision;
        records.tell(&lease.key, Notice::Free);
        Ok(Released::Released)
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let records = self.records();
        let now = self.shared.clock.now();
        let Some(record) = records.by_key.get(key) else {
            return Ok(None);
        };
        let holder = self.live(record, now);
        Ok(holder.map(|holder| self.lease(key, record, holder, now)))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let records = self.records();
        let now = self.shared.clock.now();
        let matching = records
            .by_key
            .iter()
            .filter(|(key, _)| key.as_str().starts_with(prefix));
        let live = matching.filter_map(|(key, record)| {
            let holder = self.live(record, now)?;
            Some(self.lease(key, record, holder, now))
        });
        Ok(live.take(limit).collect())
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let changes = self.records().watch(key);
        let notices = stream::unfold(changes, |mut changes| async {
            let notice = match changes.recv().await {
                Ok(notice) => notice,
                Err(broadcast::error::RecvError::Lagged(_)) => Notice::Look,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((notice, changes))
        });
        Ok(notices.boxed())
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let mut records = self.records();
        let now = self.shared.clock.now();
        let Some(record) = records.by_key.get_mut(key) else {
            return Ok(Asked::NotHeld);
        };
        let Some(holder) = self.live(record, now).cloned() else {
            return Ok(Asked::NotHeld);
        };
        record.request = Some(request);
        let token = record.token;
        records.tell(key, Notice::Look);
        Ok(Asked::Left { holder, token })
    }
}
