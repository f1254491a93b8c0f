//! The bed for planted breaks: the in-memory store, with one rule of it broken.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, Clock, HolderRequest, Key, Lease, ManualClock, MemoryStore,
    Notice, Released, Renewed, Result, Store, StoreTraits,
};
use tenure_conformance::{Harness, Restart};

/// One broken rule: whatever it does not override works.
#[async_trait]
pub trait Break: Debug + Default + Send + Sync + 'static {
    const OWN_CLOCK: bool = true;
    /// Whether what the break remembers lies in the backend, or in each store object.
    const IN_THE_BACKEND: bool = true;

    fn traits(&self, inner: &MemoryStore) -> StoreTraits {
        inner.traits()
    }
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        inner.acquire(request).await
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        inner.renew(lease, ttl).await
    }
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        inner.release(lease).await
    }
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        inner.read(key).await
    }
    async fn list(&self, inner: &MemoryStore, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        inner.list(prefix, limit).await
    }
    async fn watch(&self, inner: &MemoryStore, key: &Key) -> Result<BoxStream<'static, Notice>> {
        inner.watch(key).await
    }
    async fn ask(&self, inner: &MemoryStore, key: &Key, asked: HolderRequest) -> Result<Asked> {
        inner.ask(key, asked).await
    }
    /// None: one renewal after the other, by [`renew`](Self::renew).
    async fn renew_many(
        &self,
        _inner: &MemoryStore,
        _leases: &[(Lease, Duration)],
    ) -> Option<Vec<Result<Renewed>>> {
        None
    }
    /// The operator has deleted a record.
    fn deleted(&self, _key: &Key) {}
    /// The backend was restarted.
    fn restarted(&self, _inner: &MemoryStore) {}
}

#[derive(Debug)]
struct Broken<B> {
    inner: MemoryStore,
    rule: Arc<B>,
}

#[async_trait]
impl<B: Break> Store for Broken<B> {
    fn traits(&self) -> StoreTraits {
        self.rule.traits(&self.inner)
    }
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.rule.acquire(&self.inner, request).await
    }
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.rule.renew(&self.inner, lease, ttl).await
    }
    async fn release(&self, lease: &Lease) -> Result<Released> {
        self.rule.release(&self.inner, lease).await
    }
    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        self.rule.read(&self.inner, key).await
    }
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        self.rule.list(&self.inner, prefix, limit).await
    }
    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        self.rule.watch(&self.inner, key).await
    }
    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        self.rule.ask(&self.inner, key, request).await
    }
    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        if let Some(answers) = self.rule.renew_many(&self.inner, leases).await {
            return answers;
        }
        let mut answers = Vec::new();
        for (lease, ttl) in leases {
            answers.push(self.renew(lease, *ttl).await);
        }
        answers
    }
}

/// The harness of a store with this rule broken, on a clock that the suite turns.
pub struct Bed<B> {
    inner: MemoryStore,
    rule: Arc<B>,
    clock: ManualClock,
}

#[async_trait]
impl<B: Break> Harness for Bed<B> {
    async fn start() -> Self {
        let clock = ManualClock::new();
        let shared = Arc::new(clock.clone());
        let inner = if B::OWN_CLOCK {
            MemoryStore::with_clock(shared)
        } else {
            MemoryStore::watched_with_clock(shared)
        };
        let rule = Arc::default();
        Self { inner, rule, clock }
    }

    async fn store(&self) -> Arc<dyn Store> {
        let inner = self.inner.clone();
        let rule = if B::IN_THE_BACKEND {
            Arc::clone(&self.rule)
        } else {
            Arc::default()
        };
        Arc::new(Broken { inner, rule })
    }

    async fn delete_record(&self, key: &Key) {
        self.inner.delete(key);
        self.rule.deleted(key);
    }

    async fn restart(&self) -> Restart {
        self.rule.restarted(&self.inner);
        Restart::Done
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    async fn pass_time(&self, time: Duration) {
        self.clock.advance(time);
    }
}
