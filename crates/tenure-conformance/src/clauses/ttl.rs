//! The ttl at its limits, and the store's word on what it is.

use std::time::Duration;

use tenure::{ErrorKind, Released, Renewed, Result};

use crate::stage::{Stage, holder, key};

const NANOSECOND: Duration = Duration::from_nanos(1);

fn outside(stage: &Stage) -> Vec<Duration> {
    let (min, max) = (stage.traits.ttl_min, stage.traits.ttl_max);
    let mut outside = vec![
        Duration::ZERO,
        max.saturating_add(NANOSECOND),
        Duration::MAX,
    ];
    outside.push(min.saturating_sub(NANOSECOND));
    // A greatest ttl of all would leave nothing outside above it.
    outside.retain(|ttl| *ttl < min || *ttl > max);
    outside
}

fn assert_invalid<T: std::fmt::Debug>(ttl: Duration, answer: Result<T>) {
    match answer {
        Err(e) if e.kind() == ErrorKind::Invalid => {}
        other => panic!("a ttl of {ttl:?} is outside, but: {other:?}"),
    }
}

/// The smallest ttl is a term like any other: granted, kept word for word, ended.
pub(crate) async fn smallest_ttl_works(stage: &Stage) {
    let key = key("smallest");
    let ttl = stage.traits.ttl_min;
    let request = stage.request_for(&key, &holder("a"), ttl);
    let lease = stage.granted(&request).await;
    assert_eq!(lease.ttl, ttl);
    let next = stage.succeed(&lease, "b").await;
    let answer = stage.renew(&next, ttl).await;
    let Renewed::Renewed(renewed, _) = answer else {
        panic!("a renewal with the smallest ttl: {answer:?}");
    };
    assert_eq!(renewed.ttl, ttl);
    let last = stage.succeed(&renewed, "c").await;
    assert!(last.token > lease.token);
}

/// The greatest ttl is a term like any other: nothing overflows into the past.
pub(crate) async fn greatest_ttl_works(stage: &Stage) {
    let ttl = stage.traits.ttl_max;
    let request = stage.request_for(&key("greatest"), &holder("a"), ttl);
    let lease = stage.granted(&request).await;
    assert_eq!(lease.ttl, ttl);
    for renewal in [false, true] {
        if renewal {
            let answer = stage.renew(&lease, ttl).await;
            assert!(matches!(answer, Renewed::Renewed(..)), "{answer:?}");
        }
        let seen = stage.held(&stage.request(&lease.key, "b")).await;
        assert_eq!((&seen.holder, seen.ttl), (&lease.holder, ttl));
        if stage.traits.own_clock {
            let rest = seen.rest.unwrap_or_default();
            let fits = rest <= ttl && rest >= ttl - ttl / 10;
            assert!(fits, "{rest:?} of {ttl:?}");
        }
    }
    assert_eq!(stage.release(&lease).await, Released::Released);
    stage.take(&lease.key, "b").await;
}

/// A ttl that the record cannot hold is refused, never cut to size, and nothing changes.
pub(crate) async fn ttl_outside_is_invalid_to_acquire(stage: &Stage) {
    let key = key("outside");
    for ttl in outside(stage) {
        let request = stage.request_for(&key, &holder("a"), ttl);
        assert_invalid(ttl, stage.store().acquire(&request).await);
        assert_eq!(stage.read(&key).await, None, "a refused ttl left a record");
    }
    stage.take(&key, "a").await;
}

/// Likewise for a renewal: the lease stays as it was.
pub(crate) async fn ttl_outside_is_invalid_to_renew(stage: &Stage) {
    let lease = stage.take(&key("outside"), "a").await;
    let before = stage.snapshot(&lease.key).await;
    for ttl in outside(stage) {
        assert_invalid(ttl, stage.store().renew(&lease, ttl).await);
        assert_eq!(stage.snapshot(&lease.key).await, before);
    }
    stage.renewed(&lease).await;
}

/// A store says the same of itself every time, and something that can be.
pub(crate) async fn traits_are_sane(stage: &Stage) {
    let traits = &stage.traits;
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    assert!(
        !traits.name.is_empty() && traits.name.chars().all(word),
        "a store's name is one word in lower case: {:?}",
        traits.name
    );
    assert!(traits.ttl_min > Duration::ZERO, "a term has a length");
    assert!(
        traits.ttl_min <= Duration::from_secs(10),
        "the fast profile fits"
    );
    assert!(
        traits.ttl_max >= Duration::from_secs(600),
        "a job may take its time"
    );
    stage.take(&key("something"), "a").await;
    assert_eq!(stage.harness.store().await.traits(), *traits);
    assert_eq!(stage.store().traits(), *traits);
}
