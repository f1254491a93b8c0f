//! Breaks of read, of the clock's and the version's showing, and of cancellation.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, Attempt, Error, Holder, HolderRequest, Key, Lease,
    MemoryStore, Notice, Renewed, Result, Store, StoreTraits, Version,
};

use crate::bed::Break;

/// Keeps a lease alive by looking at it.
#[derive(Debug, Default)]
pub struct ReadRenews;

#[async_trait]
impl Break for ReadRenews {
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let Some(lease) = inner.read(key).await? else {
            return Ok(None);
        };
        inner.renew(&lease, lease.ttl).await?;
        inner.read(key).await
    }
}

/// Makes a record by looking for it.
#[derive(Debug, Default)]
pub struct ReadTakes;

#[async_trait]
impl Break for ReadTakes {
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let request = AcquireRequest {
            key: key.clone(),
            holder: Holder::new("reader").unwrap(),
            ttl: Duration::from_secs(1),
            attempt: Attempt::first(0),
            ended: None,
        };
        let (Acquired::Granted(lease) | Acquired::Held(lease)) = inner.acquire(&request).await?;
        Ok(Some(lease))
    }
}

/// Shows what it has once seen, although it is gone.
#[derive(Debug, Default)]
pub struct ReadRemembers(Mutex<HashMap<Key, Lease>>);

#[async_trait]
impl Break for ReadRemembers {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let answer = inner.acquire(request).await?;
        if let Acquired::Granted(lease) = &answer {
            let mut seen = self.0.lock().unwrap();
            seen.insert(lease.key.clone(), lease.clone());
        }
        Ok(answer)
    }
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let now = inner.read(key).await?;
        Ok(now.or_else(|| self.0.lock().unwrap().get(key).cloned()))
    }
}

/// Does not show which attempt a lease was granted to, although the record says it.
#[derive(Debug, Default)]
pub struct ReadWithoutAttempt;

#[async_trait]
impl Break for ReadWithoutAttempt {
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let mut lease = inner.read(key).await?;
        if let Some(lease) = &mut lease {
            lease.attempt = None;
        }
        Ok(lease)
    }
}

/// Without a clock: a watcher and the holder see different versions of one state.
#[derive(Debug, Default)]
pub struct ReadShowsAnotherVersion;

#[async_trait]
impl Break for ReadShowsAnotherVersion {
    const OWN_CLOCK: bool = false;
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let mut lease = inner.read(key).await?;
        if let Some(lease) = &mut lease {
            lease.version = Version::new(format!("W/{}", lease.version));
        }
        Ok(lease)
    }
}

/// Says a rest where it has no clock to know it by, and none where it has one.
#[derive(Debug, Default)]
pub struct RestIsWrong<const OWN_CLOCK: bool>;

#[async_trait]
impl<const OWN_CLOCK: bool> Break for RestIsWrong<OWN_CLOCK> {
    const OWN_CLOCK: bool = OWN_CLOCK;
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let mut lease = inner.read(key).await?;
        if let Some(lease) = &mut lease {
            lease.rest = (!OWN_CLOCK).then_some(lease.ttl);
        }
        Ok(lease)
    }
}

/// Claims a name that no metric could carry.
#[derive(Debug, Default)]
pub struct StrangeTraits;

#[async_trait]
impl Break for StrangeTraits {
    fn traits(&self, inner: &MemoryStore) -> StoreTraits {
        let mut traits = inner.traits();
        traits.name = "My Store";
        traits
    }
}

/// Says that it can nothing beside the four operations, and does it all the same.
#[derive(Debug, Default)]
pub struct HidesWhatItCan;

#[async_trait]
impl Break for HidesWhatItCan {
    fn traits(&self, inner: &MemoryStore) -> StoreTraits {
        let mut traits = inner.traits();
        (traits.list, traits.watch, traits.ask) = (false, false, false);
        traits
    }
}

/// Says that it can all, and refuses.
#[derive(Debug, Default)]
pub struct ClaimsWhatItCannot;

#[async_trait]
impl Break for ClaimsWhatItCannot {
    async fn list(&self, inner: &MemoryStore, _: &str, _: usize) -> Result<Vec<Lease>> {
        Err(inner.cannot("list leases"))
    }
    async fn watch(&self, inner: &MemoryStore, _: &Key) -> Result<BoxStream<'static, Notice>> {
        Err(inner.cannot("push changes"))
    }
    async fn ask(&self, inner: &MemoryStore, _: &Key, _: HolderRequest) -> Result<Asked> {
        Err(inner.cannot("carry requests to a holder"))
    }
}

/// Refuses what it cannot do, as if the next try might succeed.
#[derive(Debug, Default)]
pub struct RefusesWrongly;

#[async_trait]
impl Break for RefusesWrongly {
    fn traits(&self, inner: &MemoryStore) -> StoreTraits {
        HidesWhatItCan.traits(inner)
    }
    async fn list(&self, _: &MemoryStore, _: &str, _: usize) -> Result<Vec<Lease>> {
        Err(Error::unavailable("not now"))
    }
    async fn watch(&self, _: &MemoryStore, _: &Key) -> Result<BoxStream<'static, Notice>> {
        Err(Error::unavailable("not now"))
    }
    async fn ask(&self, _: &MemoryStore, _: &Key, _: HolderRequest) -> Result<Asked> {
        Err(Error::unavailable("not now"))
    }
}

/// Puts a connection that was given up on back into use: the next question on it fails.
#[derive(Debug, Default)]
pub struct ReusesConnections {
    given_up: AtomicBool,
}

struct InUse<'a>(&'a AtomicBool);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl ReusesConnections {
    async fn call<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        if self.given_up.load(Ordering::SeqCst) {
            return Err(Error::unavailable("this is the answer to another question"));
        }
        let in_use = InUse(&self.given_up);
        tokio::task::yield_now().await;
        let answer = answer.await;
        std::mem::forget(in_use);
        answer
    }
}

#[async_trait]
impl Break for ReusesConnections {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        self.call(inner.acquire(request)).await
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.call(inner.renew(lease, ttl)).await
    }
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        self.call(inner.read(key)).await
    }
}
