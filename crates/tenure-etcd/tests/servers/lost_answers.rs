//! Answers that are lost after etcd has done what was asked: unknown, then found out.

use std::time::Duration;

use tenure::{Acquired, Error, ErrorKind, Loss, Released, Renewed, Result, Store};
use tenure_etcd::EtcdStore;
use tenure_testbed::{Etcd, Proxy, unique};

use crate::support::{PATIENCE, TTL, aside, granted, held, key, open, renewed, request, take};

async fn through_a_proxy() -> Option<(EtcdStore, EtcdStore, Proxy)> {
    let etcd = aside(Etcd::shared).await?;
    let proxy = aside(|| etcd.server().proxy()).await;
    let faulty = open(&etcd.url_at(&[proxy.address()]));
    Some((faulty, open(&etcd.url()), proxy))
}

fn unknown<T: std::fmt::Debug>(answer: Result<T>) -> Error {
    let error = answer.expect_err("its answer was cut off");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.may_have_worked(), "{error}");
    error
}

async fn within<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call)
        .await
        .expect("a cut connection is noticed")
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_is_found_again() {
    let Some((faulty, other, proxy)) = through_a_proxy().await else {
        return;
    };
    let name = unique("cut-acquire");
    let asked = request(&key(&name), "a", TTL);
    let cut = proxy.cut_answer_to(&name);
    unknown(within(faulty.acquire(&asked)).await);
    assert!(cut.is_done());
    // Its etcd lease is granted beside it, and if the cut answer was "no such lease", then
    // nothing was written: unknown all the same. The waiter's below is surely written.
    let seen = other.read(&asked.key).await.unwrap();
    let lease = granted(within(faulty.acquire(&asked)).await);
    if let Some(seen) = seen {
        assert_eq!(
            (seen.token, seen.attempt),
            (lease.token, Some(asked.attempt))
        );
    }
    held(other.acquire(&request(&asked.key, "b", TTL)).await);
}

/// Likewise when the acquire used a spare etcd lease, as a waiter's does.
#[tokio::test]
async fn a_waiters_acquire_whose_answer_was_lost_is_found_again() {
    let Some((faulty, other, proxy)) = through_a_proxy().await else {
        return;
    };
    let name = unique("cut-waiter");
    let first = take(&other, &key(&name), "b").await;
    let asked = request(&key(&name), "a", TTL);
    held(within(faulty.acquire(&asked)).await);
    assert_eq!(other.release(&first).await.unwrap(), Released::Released);
    let cut = proxy.cut_answer_to(&name);
    unknown(within(faulty.acquire(&asked)).await);
    assert!(cut.is_done());
    let done = other.read(&asked.key).await.unwrap().expect("it was done");
    let lease = granted(within(faulty.acquire(&asked)).await);
    assert_eq!(lease.token, done.token, "the same tenure");
    assert!(lease.token > first.token);
    let seen = other.read(&asked.key).await.unwrap().unwrap();
    assert_eq!(
        (seen.token, seen.attempt),
        (lease.token, Some(asked.attempt))
    );
    assert!(
        seen.rest.is_some_and(|rest| rest > TTL / 2),
        "its term began anew"
    );
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_repeated() {
    let Some((faulty, _, proxy)) = through_a_proxy().await else {
        return;
    };
    let name = unique("cut-renew");
    let lease = take(&faulty, &key(&name), "a").await;
    let cut = proxy.cut_answer_to(&name);
    unknown(within(faulty.renew(&lease, TTL)).await);
    assert!(cut.is_done());
    let again = renewed(within(faulty.renew(&lease, TTL)).await);
    assert_eq!(again.token, lease.token);
    // Also one that changed the ttl, and so the etcd lease.
    let longer = TTL * 2;
    let cut = proxy.cut_answer_to(format!("\"ttl_ns\":{}", longer.as_nanos()));
    unknown(within(faulty.renew(&lease, longer)).await);
    assert!(cut.is_done());
    let again = renewed(within(faulty.renew(&lease, longer)).await);
    assert_eq!((again.token, again.ttl), (lease.token, longer));
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_has_freed_the_key() {
    let Some((faulty, other, proxy)) = through_a_proxy().await else {
        return;
    };
    let name = unique("cut-release");
    let lease = take(&faulty, &key(&name), "a").await;
    let cut = proxy.cut_answer_to(&name);
    unknown(within(faulty.release(&lease)).await);
    assert!(cut.is_done());
    let next = take(&other, &lease.key, "b").await;
    assert_eq!(
        within(faulty.release(&lease)).await.unwrap(),
        Released::NotHeld
    );
    let answer = within(faulty.renew(&lease, TTL)).await.unwrap();
    assert!(
        matches!(answer, Renewed::Lost(Loss::Superseded { .. })),
        "{answer:?}"
    );
    renewed(other.renew(&next, TTL).await);
}

/// A write is sent once, whatever becomes of its answer, and although there is another
/// member that could be asked.
#[tokio::test]
async fn a_write_is_never_sent_twice() {
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let proxy = aside(|| etcd.server().proxy()).await;
    let store = open(&etcd.url_at(&[proxy.address(), etcd.server().address()]));
    let name = unique("cut-once");
    let lease = take(&store, &key(&name), "a").await;
    // If the release were sent again after its answer was lost, it would be answered
    // "not held", and that is wrong: it was.
    let cut = proxy.cut_answer_to(&name);
    unknown(within(store.release(&lease)).await);
    assert!(cut.is_done());
    assert_eq!(store.read(&lease.key).await.unwrap(), None);
}

#[tokio::test]
async fn what_was_never_sent_has_surely_not_worked() {
    let Some((faulty, _, proxy)) = through_a_proxy().await else {
        return;
    };
    let lease = take(&faulty, &key(&unique("refused")), "a").await;
    proxy.refuse();
    let mut errors = Vec::new();
    // The first may find the broken connection; from then on none comes about.
    for _ in 0..3 {
        let asked = request(&key("other"), "a", TTL);
        errors.push(within(faulty.acquire(&asked)).await.unwrap_err());
    }
    let last = errors.last().unwrap();
    assert_eq!(last.kind(), ErrorKind::Unavailable);
    assert!(!last.may_have_worked(), "{last}");
    assert!(last.to_string().contains("no connection"), "{last}");
    proxy.heal();
    renewed(within(faulty.renew(&lease, TTL)).await);
}

/// A call that is dropped gives up its connection, so that the next does not hang with it.
#[tokio::test]
async fn a_hung_connection_is_left_with_the_call_that_hung() {
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let proxy = aside(|| etcd.server().proxy()).await;
    // Two ways to the same member, of which the first goes dead.
    let store = open(&etcd.url_at(&[proxy.address(), etcd.server().address()]));
    let lease = take(&store, &key(&unique("hung")), "a").await;
    proxy.black_hole();
    let hung = tokio::time::timeout(Duration::from_millis(300), store.renew(&lease, TTL)).await;
    assert!(hung.is_err(), "nothing can come back: {hung:?}");
    renewed(within(store.renew(&lease, TTL)).await);
    proxy.heal();
    let asked = request(&lease.key, "b", TTL);
    assert!(matches!(store.acquire(&asked).await, Ok(Acquired::Held(_))));
}

/// Dropped calls reset their own stream only: who shares the connection goes on.
#[tokio::test]
async fn a_dropped_call_harms_no_other_call() {
    let Some((faulty, _, proxy)) = through_a_proxy().await else {
        return;
    };
    let lease = take(&faulty, &key(&unique("shared")), "a").await;
    proxy.delay(Duration::from_millis(150));
    let (one, two) = (faulty.clone(), faulty.clone());
    let (held, kept) = (lease.clone(), lease.clone());
    let dropped = tokio::spawn(async move { one.renew(&held, TTL).await });
    let going_on = tokio::spawn(async move { two.renew(&kept, TTL).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    renewed(within(going_on).await.unwrap());
}
