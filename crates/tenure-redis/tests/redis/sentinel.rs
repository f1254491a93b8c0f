//! Sentinel: the store follows the primary, and the token goes on growing.

use tenure::{ErrorKind, Store};
use tenure_testbed::RedisSentinel;

use crate::support::{LONG, assert_kind, granted, key, lease_of, open, request, until, until_ok};

#[tokio::test]
async fn failover_is_followed_and_tokens_grow() {
    let Some(sentinel) = RedisSentinel::start() else {
        return;
    };
    let store = open(&sentinel.url());
    let lease = granted(&store, "k", "a", LONG).await;
    let old = sentinel.primary().clone();
    tokio::task::spawn_blocking({
        let (sentinel, old) = (sentinel.clone(), old.clone());
        move || {
            old.kill();
            sentinel.failed_over_from(&old);
        }
    })
    .await
    .unwrap();
    // What the replica had not got yet is lost: the lease may be there or not.
    let seen = until("the new primary", async || {
        store.read(&lease.key).await.ok()
    })
    .await;
    assert!(seen.is_none_or(|seen| seen.token == lease.token));
    store.release(&lease).await.unwrap();
    let next = granted(&store, "k", "b", LONG).await;
    assert!(next.token > lease.token);
    // The old primary comes back as a replica; a new store does not fall for it.
    old.start_again();
    let fresh = open(&sentinel.url());
    let asked = request("j", "a", LONG);
    let taken = until_ok("the primary", async || fresh.acquire(&asked).await).await;
    lease_of(Ok(taken));
}

/// A primary that hangs is left by the calls that were dropped, as soon as the Sentinels
/// have another.
#[tokio::test]
async fn primary_that_hangs_is_left() {
    let Some(sentinel) = RedisSentinel::start() else {
        return;
    };
    let store = open(&sentinel.url());
    let lease = granted(&store, "k", "a", LONG).await;
    let old = sentinel.primary().clone();
    old.pause();
    let limit = std::time::Duration::from_secs(1);
    until("the new primary", async || {
        let read = tokio::time::timeout(limit, store.read(&lease.key)).await;
        read.ok()?.ok()
    })
    .await;
    old.resume();
}

#[tokio::test]
async fn name_that_no_sentinel_knows_is_misconfigured() {
    let Some(sentinel) = RedisSentinel::start() else {
        return;
    };
    let url = sentinel.url().replace("mymaster", "other");
    let error = open(&url).read(&key("k")).await;
    assert_kind(error, ErrorKind::Misconfigured, "\"other\"");
    // A Sentinel that is down is passed over.
    sentinel.sentinels()[0].kill();
    granted(&open(&sentinel.url()), "k", "a", LONG).await;
}
