//! What the tests share: stores on a real etcd, and requests to them.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::time::Duration;

use tenure::{AcquireRequest, Acquired, Attempt, Holder, Key, Lease, Renewed, Result, Store};
use tenure_etcd::{EtcdOptions, EtcdStore};

pub const TTL: Duration = Duration::from_secs(30);
/// No call of a test takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn open(url: &str) -> EtcdStore {
    EtcdStore::open(EtcdOptions::from_url(url).unwrap()).unwrap()
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn request(key: &Key, holder: &str, ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        holder: Holder::new(holder).unwrap(),
        ttl,
        attempt: Attempt::first(fastrand::Rng::new().u64(..)),
        ended: None,
    }
}

pub fn granted(answer: Result<Acquired>) -> Lease {
    match answer {
        Ok(Acquired::Granted(lease)) => lease,
        other => panic!("must be granted, but: {other:?}"),
    }
}

pub fn held(answer: Result<Acquired>) -> Lease {
    match answer {
        Ok(Acquired::Held(lease)) => lease,
        other => panic!("somebody has it, but: {other:?}"),
    }
}

pub fn renewed(answer: Result<Renewed>) -> Lease {
    match answer {
        Ok(Renewed::Renewed(lease, _)) => lease,
        other => panic!("must be renewed, but: {other:?}"),
    }
}

pub async fn take(store: &EtcdStore, key: &Key, holder: &str) -> Lease {
    granted(store.acquire(&request(key, holder, TTL)).await)
}

/// Asks again until the answer is there that must come in the end.
pub async fn until<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(limit, found).await;
    found.unwrap_or_else(|_| panic!("{what} has not come about within {limit:?}"))
}

/// Runs a blocking step of the testbed without stopping the runtime.
pub async fn aside<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(step).await.unwrap()
}
