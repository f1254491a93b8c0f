//! The in-memory store in the conformance suite: with a turned clock, the machine's, and none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{Clock, Key, ManualClock, MemoryStore, Store};
use tenure_conformance::Harness;

/// Judges expiry by a clock that the suite turns.
struct Turned {
    store: MemoryStore,
    clock: ManualClock,
}

#[async_trait]
impl Harness for Turned {
    async fn start() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        Self { store, clock }
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn delete_record(&self, key: &Key) {
        self.store.delete(key);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    async fn pass_time(&self, time: Duration) {
        self.clock.advance(time);
    }
}

/// Judges expiry by the machine's clock.
struct Real(MemoryStore);

#[async_trait]
impl Harness for Real {
    async fn start() -> Self {
        Self(MemoryStore::new())
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn delete_record(&self, key: &Key) {
        self.0.delete(key);
    }
}

/// Judges no expiry, as objects and Kubernetes.
struct Watched(MemoryStore);

#[async_trait]
impl Harness for Watched {
    async fn start() -> Self {
        Self(MemoryStore::watched())
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn delete_record(&self, key: &Key) {
        self.0.delete(key);
    }
}

mod turned_clock {
    tenure_conformance::conformance!(super::Turned);
}

mod real_clock {
    tenure_conformance::conformance!(super::Real);
}

mod watched {
    tenure_conformance::conformance!(super::Watched);
}
