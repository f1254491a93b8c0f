//! A store that can be made to fail, and waiting for conditions with a bound.
//!
//! The faults (a call that hangs for ever, an answer that is lost after the commit, a
//! panic inside a store) are ones that no real in-process store can be made to have.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "not every test file needs every fault")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, HolderRequest, Key, Lease, MemoryStore, Notice,
    Released, Renewed, Result, Store, StoreTraits,
};

/// How a call behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Nothing is done, and no answer comes.
    Hang,
    /// It is done, but no answer comes.
    LoseAnswer,
    /// Nothing is done, and the answer is an error.
    Fail,
    /// The store's code breaks down.
    Panic,
}

/// A memory store with faults that can be switched on, and a count of its calls.
#[derive(Clone, Debug)]
pub struct FaultyStore {
    pub inner: MemoryStore,
    faults: Arc<Mutex<Faults>>,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Faults {
    acquire: Fault,
    renew: Fault,
    release: Fault,
    watch: bool,
}

impl FaultyStore {
    pub fn new(inner: MemoryStore) -> Self {
        let faults = Faults {
            acquire: Fault::None,
            renew: Fault::None,
            release: Fault::None,
            watch: true,
        };
        Self {
            inner,
            faults: Arc::new(Mutex::new(faults)),
            calls: Arc::default(),
        }
    }

    pub fn all(&self, fault: Fault) {
        let mut faults = self.faults.lock().unwrap();
        (faults.acquire, faults.renew, faults.release) = (fault, fault, fault);
    }

    pub fn acquire_fault(&self, fault: Fault) {
        self.faults.lock().unwrap().acquire = fault;
    }

    pub fn renew_fault(&self, fault: Fault) {
        self.faults.lock().unwrap().renew = fault;
    }

    pub fn without_push(self) -> Self {
        self.faults.lock().unwrap().watch = false;
        self
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn pass<T>(&self, fault: Fault, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match fault {
            Fault::None => call.await,
            Fault::Hang => std::future::pending().await,
            Fault::LoseAnswer => {
                let _ = call.await;
                std::future::pending().await
            }
            Fault::Fail => Err(Error::unavailable("planted failure")),
            Fault::Panic => panic!("planted panic"),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = self.inner.traits();
        traits.watch = self.faults.lock().unwrap().watch;
        traits
    }
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        let fault = self.faults.lock().unwrap().acquire;
        self.pass(fault, self.inner.acquire(request)).await
    }
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let fault = self.faults.lock().unwrap().renew;
        self.pass(fault, self.inner.renew(lease, ttl)).await
    }
    async fn release(&self, lease: &Lease) -> Result<Released> {
        let fault = self.faults.lock().unwrap().release;
        self.pass(fault, self.inner.release(lease)).await
    }
    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        self.pass(Fault::None, self.inner.read(key)).await
    }
    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        self.inner.watch(key).await
    }
    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        self.inner.ask(key, request).await
    }
}

/// Waits for a condition, at most ten seconds of the machine's time.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain until {what}");
}

/// Waits for a future, at most ten seconds of the machine's time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(10), future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
