//! A lease service for callers who keep their own loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::elector::IntoStore;
use crate::error::{Error, Result};
use crate::store::{AcquireRequest, Acquired, Lease, Released, Renewed, Store};
use crate::timing::Timing;
use crate::words::{Attempt, Holder, Key, Token, Version};

/// Acquires, renews and releases by name and holder, for callers who keep their own
/// loop. Nothing is renewed unless you call. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// use std::time::Duration;
/// use tenure::{LeaseService, MemoryStore};
/// let leases = LeaseService::new(MemoryStore::new());
/// let ttl = Duration::from_secs(30);
/// let grant = leases.try_acquire("bootstrap", "node-a", ttl).await?.expect("nobody has it");
/// assert!(leases.try_acquire("bootstrap", "node-b", ttl).await?.is_none());
/// // The same holder again: a renewal, with the same token.
/// let again = leases.try_acquire("bootstrap", "node-a", ttl).await?.expect("it is ours");
/// assert_eq!(again.token(), grant.token());
/// leases.release("bootstrap", "node-b").await?; // a no-op: it is not node-b's
/// assert!(grant.is_valid());
/// leases.release("bootstrap", "node-a").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseService {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    call_timeout: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    attempt: Attempt,
    held: HashMap<(Key, Holder), Entry>,
    /// Records of others on a store without a clock: which version, since when.
    seen: HashMap<Key, (Lease, Moment)>,
}

#[derive(Clone, Debug)]
struct Entry {
    attempt: Attempt,
    /// None while an acquire has no answer yet.
    lease: Option<Lease>,
}

/// A lease that was granted or renewed, with its local deadline.
#[derive(Clone, Debug)]
pub struct Grant {
    token: Token,
    deadline: Moment,
    clock: Arc<dyn Clock>,
}

impl LeaseService {
    /// A service on this store, with the machine's clock and ten seconds for a call.
    pub fn new(store: impl IntoStore) -> Self {
        Self::with(store, Arc::new(BootClock), Duration::from_secs(10))
    }

    /// A service with a clock and a time limit for each store call of your own.
    pub fn with(store: impl IntoStore, clock: Arc<dyn Clock>, call_timeout: Duration) -> Self {
        let known = Known {
            attempt: Attempt::first(fastrand::Rng::new().u64(..)),
            held: HashMap::new(),
            seen: HashMap::new(),
        };
        let inner = Inner {
            store: store.into_store(),
            clock,
            call_timeout,
            known: Mutex::new(known),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Acquires the lease, or renews it if this holder has it already: the holder's name
    /// is all that counts here, so it must be unique among live processes. None if
    /// somebody else has it.
    pub async fn try_acquire<K, H>(
        &self,
        name: K,
        holder: H,
        ttl: Duration,
    ) -> Result<Option<Grant>>
    where
        K: TryInto<Key, Error: Into<Error>>,
        H: TryInto<Holder, Error: Into<Error>>,
    {
        let key = name.try_into().map_err(Into::into)?;
        let holder = holder.try_into().map_err(Into::into)?;
        self.inner.store.traits().check_ttl(ttl)?;
        let id = (key, holder);
        let entry = self.known().entry(&id);
        if let Some(lease) = entry.lease
            && let Some(grant) = self.renew(&id, entry.attempt, lease, ttl).await?
        {
            return Ok(Some(grant));
        }
        self.acquire(id, ttl).await
    }

    async fn acquire(&self, id: (Key, Holder), ttl: Duration) -> Result<Option<Grant>> {
        let entry = self.known().entry(&id);
        let sent = self.inner.clock.now();
        let request = AcquireRequest {
            key: id.0.clone(),
            holder: id.1.clone(),
            ttl,
            attempt: entry.attempt,
            ended: self.known().ended(&id.0, sent),
        };
        // On an error the attempt is kept, so that a lost answer is found again.
        match self
            .call("acquire", self.inner.store.acquire(&request))
            .await?
        {
            Acquired::Granted(lease) => {
                let grant = self.grant(sent, &lease);
                self.known().keep(id, entry.attempt, lease);
                Ok(Some(grant))
            }
            // It has it already, from another process or an earlier life.
            Acquired::Held(lease) if lease.holder == id.1 => {
                self.renew(&id, entry.attempt, lease, ttl).await
            }
            Acquired::Held(lease) => {
                let now = self.inner.clock.now();
                let mut known = self.known();
                known.held.remove(&id);
                known.see(lease, now);
                Ok(None)
            }
        }
    }

    async fn renew(
        &self,
        id: &(Key, Holder),
        attempt: Attempt,
        lease: Lease,
        ttl: Duration,
    ) -> Result<Option<Grant>> {
        let sent = self.inner.clock.now();
        match self
            .call("renew", self.inner.store.renew(&lease, ttl))
            .await?
        {
            Renewed::Renewed(lease, _) => {
                let grant = self.grant(sent, &lease);
                self.known().keep(id.clone(), attempt, lease);
                Ok(Some(grant))
            }
            Renewed::Lost(_) => {
                self.known().held.remove(id);
                Ok(None)
            }
        }
    }

    /// Frees the lease if this holder has it; a no-op for anyone else.
    pub async fn release<K, H>(&self, name: K, holder: H) -> Result<Released>
    where
        K: TryInto<Key, Error: Into<Error>>,
        H: TryInto<Holder, Error: Into<Error>>,
    {
        let key = name.try_into().map_err(Into::into)?;
        let holder = holder.try_into().map_err(Into::into)?;
        let id = (key, holder);
        let known = self
            .known()
            .held
            .get(&id)
            .and_then(|entry| entry.lease.clone());
        let lease = match known {
            Some(lease) => Some(lease),
            None => {
                let read = self.call("read", self.inner.store.read(&id.0)).await?;
                read.filter(|lease| lease.holder == id.1)
            }
        };
        let released = match lease {
            Some(lease) => {
                self.call("release", self.inner.store.release(&lease))
                    .await?
            }
            None => Released::NotHeld,
        };
        self.known().held.remove(&id);
        Ok(released)
    }

    async fn call<T>(&self, name: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let clock = &self.inner.clock;
        let until = clock.now() + self.inner.call_timeout;
        tokio::select! {
            biased;
            answer = call => answer,
            () = clock.sleep_until(until) => Err(Error::unavailable(format!(
                "no answer to {name} after {}: it may or may not have worked",
                crate::timing::show(self.inner.call_timeout)
            ))),
        }
    }

    fn grant(&self, sent: Moment, lease: &Lease) -> Grant {
        Grant {
            token: lease.token,
            deadline: Timing::with_ttl(lease.ttl).deadline(sent),
            clock: self.inner.clock.clone(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No code of others runs under this lock, so it is whole even after a panic.
        self.inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What is known of this holder's lease; a fresh attempt if nothing is.
    fn entry(&mut self, id: &(Key, Holder)) -> Entry {
        if let Some(entry) = self.held.get(id) {
            return entry.clone();
        }
        self.attempt = self.attempt.next();
        let entry = Entry {
            attempt: self.attempt,
            lease: None,
        };
        self.held.insert(id.clone(), entry.clone());
        entry
    }

    fn see(&mut self, lease: Lease, now: Moment) {
        if lease.rest.is_some() {
            return; // The store judges it.
        }
        match self.seen.get(&lease.key) {
            Some((seen, _)) if seen.version == lease.version => {}
            _ => drop(self.seen.insert(lease.key.clone(), (lease, now))),
        }
    }

    /// The version that was watched for longer than its record's term.
    fn ended(&self, key: &Key, now: Moment) -> Option<Version> {
        let (lease, since) = self.seen.get(key)?;
        let term = Timing::default().watched_term(lease.ttl);
        (now >= *since + term).then(|| lease.version.clone())
    }

    fn keep(&mut self, id: (Key, Holder), attempt: Attempt, lease: Lease) {
        self.seen.remove(&id.0);
        let lease = Some(lease);
        self.held.insert(id, Entry { attempt, lease });
    }
}

impl Grant {
    /// The fencing token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the term of this grant runs still, by the local clock. A release through
    /// the service does not change it: you know that you released.
    pub fn is_valid(&self) -> bool {
        self.clock.now() < self.deadline
    }

    /// The rest of the term, by the local clock.
    pub fn remaining(&self) -> Duration {
        self.deadline - self.clock.now()
    }
}
