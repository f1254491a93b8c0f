//! Acquire: who is granted, who is held, and what an attempt is for.

use std::time::Duration;

use tenure::Released;

use crate::stage::{Stage, holder, key};

/// A free key is granted to whoever asks, as asked.
pub(crate) async fn free_key_is_granted(stage: &Stage) {
    let request = stage.request(&key("free"), "a");
    let lease = stage.granted(&request).await;
    assert_eq!(lease.key, request.key);
    assert_eq!(lease.holder, request.holder);
    assert_eq!(lease.ttl, request.ttl, "the ttl that was asked for");
    assert!(lease.token.0 > 0, "a token is greater than zero");
    if let Some(attempt) = lease.attempt {
        assert_eq!(attempt, request.attempt);
    }
}

/// Whoever comes second is told who has it, and changes nothing.
pub(crate) async fn second_contender_is_held(stage: &Stage) {
    let key = key("one at a time");
    let lease = stage.take(&key, "a").await;
    let before = stage.snapshot(&key).await;
    for contender in ["b", "c", "b"] {
        let seen = stage.held(&stage.request(&key, contender)).await;
        assert_eq!(seen.key, key);
        assert_eq!(seen.holder, lease.holder, "told who has it");
        assert_eq!(seen.token, lease.token, "told with which token");
        assert_eq!(seen.ttl, lease.ttl, "told for which term");
    }
    assert_eq!(
        stage.snapshot(&key).await,
        before,
        "a refused acquire changed it"
    );
    stage.renewed(&lease).await;
}

/// A name is no proof: the holder's own second campaign is refused like anybody's.
pub(crate) async fn same_holder_with_another_attempt_is_held(stage: &Stage) {
    let key = key("twice");
    let lease = stage.take(&key, "a").await;
    let before = stage.snapshot(&key).await;
    let seen = stage.held(&stage.request(&key, "a")).await;
    assert_eq!(
        (seen.holder, seen.token),
        (lease.holder.clone(), lease.token)
    );
    assert_eq!(stage.snapshot(&key).await, before);
    stage.renewed(&lease).await;
}

/// Two electors may draw the same number: the holder counts too.
pub(crate) async fn another_holder_with_the_same_attempt_is_held(stage: &Stage) {
    let request = stage.request(&key("same number"), "a");
    let lease = stage.granted(&request).await;
    let mut other = request.clone();
    other.holder = holder("b");
    let seen = stage.held(&other).await;
    assert_eq!((seen.holder, seen.token), (lease.holder, lease.token));
}

/// A repeated acquire finds the tenure that it was granted before (promise 5).
pub(crate) async fn repeated_attempt_gives_the_same_tenure(stage: &Stage) {
    let request = stage.request(&key("again"), "a");
    let first = stage.granted(&request).await;
    // Often enough to reach both of the stage's stores.
    for _ in 0..4 {
        let again = stage.granted(&request).await;
        assert_eq!(again.token, first.token, "the same attempt, the same token");
        assert_eq!(again.holder, first.holder);
    }
    // Also after renewals: the record is still that attempt's.
    let (renewed, _) = stage.renewed(&first).await;
    assert_eq!(stage.granted(&request).await.token, renewed.token);
}

/// A repeated acquire is confirmed from now on, so its term begins now.
pub(crate) async fn repeated_attempt_begins_the_term_anew(stage: &Stage) {
    let mut request = stage.request(&key("anew"), "a");
    request.ttl = stage.long() / 2;
    let first = stage.granted(&request).await;
    request.ttl = stage.long();
    let again = stage.granted(&request).await;
    let seen = stage.live(&request.key).await;
    assert_eq!(again.ttl, request.ttl);
    assert_eq!(seen.ttl, request.ttl, "the record has the new term");
    if stage.traits.own_clock {
        let rest = seen.rest.unwrap_or_default();
        assert!(
            rest > first.ttl,
            "the new term is {:?}, but {rest:?} is left",
            again.ttl
        );
    } else {
        assert_ne!(
            seen.version, first.version,
            "watchers must see that it lives"
        );
    }
}

/// A tenure ends once and for good: the same attempt cannot bring it back.
pub(crate) async fn repeated_attempt_after_release_is_a_new_tenure(stage: &Stage) {
    let request = stage.request(&key("ended"), "a");
    let first = stage.granted(&request).await;
    assert_eq!(stage.release(&first).await, Released::Released);
    let second = stage.granted(&request).await;
    assert!(second.token > first.token, "{second:?} after {first:?}");
}

/// An attempt that lost its lease to another is refused like anybody.
pub(crate) async fn repeated_attempt_after_takeover_is_held(stage: &Stage) {
    let mut request = stage.request(&key("overtaken"), "a");
    if stage.traits.own_clock {
        request.ttl = stage.short();
    }
    let first = stage.granted(&request).await;
    let next = stage.succeed(&first, "b").await;
    let seen = stage.held(&request).await;
    assert_eq!((seen.holder, seen.token), (next.holder, next.token));
}

/// What happens to one key is nothing to another.
pub(crate) async fn keys_are_independent(stage: &Stage) {
    let (one, two) = (key("one"), key("two"));
    let lease_one = stage.take(&one, "a").await;
    let lease_two = stage.take(&two, "b").await;
    let before = stage.snapshot(&two).await;
    stage.renew(&lease_one, Duration::from_secs(60)).await;
    stage.held(&stage.request(&one, "b")).await;
    // The lease of one key is no right to another.
    let mut foreign = lease_one.clone();
    foreign.key = two.clone();
    stage.lost(&foreign).await;
    stage.release_in_vain(&foreign).await;
    assert_eq!(stage.release(&lease_one).await, Released::Released);
    assert_eq!(stage.snapshot(&two).await, before);
    stage.renewed(&lease_two).await;
}
