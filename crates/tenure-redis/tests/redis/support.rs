//! What these tests share: stores, requests, waiting, and looking at a server by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{
    AcquireRequest, Acquired, Attempt, BootClock, Clock, Error, ErrorKind, Holder, Key, Lease,
    Result, Store,
};
use tenure_redis::{RedisOptions, RedisStore};
use tenure_testbed::{Redis, Reply};

pub const LONG: Duration = Duration::from_secs(600);
/// No wait in these tests is longer.
pub const LIMIT: Duration = Duration::from_secs(30);

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn open(url: &str) -> RedisStore {
    RedisStore::open(RedisOptions::from_url(url).unwrap()).unwrap()
}

/// A request of a new attempt.
pub fn request(key: &str, holder: &str, ttl: Duration) -> AcquireRequest {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
    AcquireRequest {
        key: self::key(key),
        holder: Holder::new(holder).unwrap(),
        ttl,
        attempt: Attempt::first(ATTEMPTS.fetch_add(1, Ordering::Relaxed)),
        ended: None,
    }
}

pub fn lease_of(acquired: Result<Acquired>) -> Lease {
    match acquired.unwrap() {
        Acquired::Granted(lease) => lease,
        Acquired::Held(lease) => panic!("held: {lease:?}"),
    }
}

pub async fn granted(store: &dyn Store, key: &str, holder: &str, ttl: Duration) -> Lease {
    lease_of(store.acquire(&request(key, holder, ttl)).await)
}

pub async fn held(store: &dyn Store, key: &str, holder: &str) -> Lease {
    match store.acquire(&request(key, holder, LONG)).await.unwrap() {
        Acquired::Held(lease) => lease,
        Acquired::Granted(lease) => panic!("{key} was granted: {lease:?}"),
    }
}

/// Waits until `ready` gives something, at most [`LIMIT`].
pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = BootClock.now() + LIMIT;
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(BootClock.now() < limit, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `ready` works, at most [`LIMIT`]; then its last error is shown.
pub async fn until_ok<T>(what: &str, mut ready: impl AsyncFnMut() -> Result<T>) -> T {
    let limit = BootClock.now() + LIMIT;
    loop {
        match ready().await {
            Ok(done) => return done,
            Err(error) => assert!(BootClock.now() < limit, "no {what}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The result of something that must not take longer than [`LIMIT`].
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// What has surely not happened, and may be tried again.
pub fn assert_did_not_run<T: std::fmt::Debug>(result: Result<T>, says: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_worked(), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

pub fn assert_kind<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, says: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

pub fn record(key: &str) -> String {
    format!("app_runtime_leases:{key}")
}

/// The hash beside the record of a key without braces.
pub fn beside(key: &str) -> String {
    format!("tenure:{{app_runtime_leases:{key}}}")
}

pub fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        Reply::Text(text) => text.parse().unwrap(),
        other => panic!("no number: {other:?}"),
    }
}

/// How often the server has run this command since its statistics were reset.
pub fn calls(redis: &Redis, command: &str) -> u64 {
    let info = redis.command(&["INFO", "commandstats"]).text().unwrap();
    let begin = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// A server on which every script has run once, with its statistics at zero.
pub async fn warmed(redis: &Redis, store: &dyn Store) {
    let lease = granted(store, "warm", "w", LONG).await;
    store.renew(&lease, LONG).await.unwrap();
    store.read(&lease.key).await.unwrap();
    store
        .ask(&lease.key, tenure::HolderRequest::StepDown)
        .await
        .unwrap();
    store.release(&lease).await.unwrap();
    redis.command(&["CONFIG", "RESETSTAT"]);
}
