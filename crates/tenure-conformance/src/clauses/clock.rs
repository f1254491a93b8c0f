//! Who judges the end of a term: the store's clock, or a watcher who names the version.

use tenure::{Acquired, Loss, Released, Renewed, Version};

use crate::stage::{Stage, holder, key, ok};

/// With a clock: another gets the lease when its term has ended, and not before.
/// Without: never by itself, within its term.
pub(crate) async fn ended_lease_is_taken_but_not_before(stage: &Stage) {
    let key = key("ended");
    let ttl = stage.short();
    let sent = stage.now();
    let first = stage
        .granted(&stage.request_for(&key, &holder("a"), ttl))
        .await;
    let request = stage.request(&key, "b");
    if !stage.traits.own_clock {
        stage.held(&request).await;
        return stage.lacks("record has to be watched");
    }
    let limit = sent + ttl + std::time::Duration::from_secs(15);
    // Asked again and again, as a campaign does: an early grant cannot hide, however
    // slow this machine is.
    let next = loop {
        stage.harness.pass_time(ttl / 10).await;
        let answer = ok("acquire", stage.store().acquire(&request).await);
        let age = stage.now() - sent;
        match answer {
            Acquired::Granted(next) => {
                assert!(
                    age >= ttl * 99 / 100,
                    "taken after {age:?} of a term of {ttl:?}"
                );
                break next;
            }
            Acquired::Held(seen) => {
                assert_eq!((&seen.holder, seen.token), (&first.holder, first.token));
                assert!(stage.now() < limit, "a term of {ttl:?} does not end");
            }
        }
    };
    assert!(next.token > first.token, "{next:?} after {first:?}");
}

/// With a clock: a lease whose term has ended is lost, even if nobody took it since,
/// and a renewal does not bring it back. Without: nobody took it, so it is renewed.
pub(crate) async fn renewal_after_the_end_of_the_term(stage: &Stage) {
    let key = key("too late");
    let request = stage.request_for(&key, &holder("a"), stage.short());
    let lease = stage.granted(&request).await;
    if stage.traits.own_clock {
        stage.wait_ended(&lease).await;
        assert_eq!(stage.lost(&lease).await, Loss::Expired);
        stage.take(&key, "b").await;
    } else {
        stage.harness.pass_time(lease.ttl * 2).await;
        let answer = stage.renew(&lease, stage.long()).await;
        assert!(matches!(answer, Renewed::Renewed(..)), "{answer:?}");
    }
}

/// With a clock: the same attempt after the end of its term is a new tenure, never the
/// old one revived. Without: its tenure is still there.
pub(crate) async fn repeated_attempt_after_the_end_is_a_new_tenure(stage: &Stage) {
    let request = stage.request_for(&key("not revived"), &holder("a"), stage.short());
    let first = stage.granted(&request).await;
    if stage.traits.own_clock {
        stage.wait_ended(&first).await;
        let second = stage.granted(&request).await;
        assert!(second.token > first.token, "{second:?} after {first:?}");
    } else {
        stage.harness.pass_time(first.ttl * 2).await;
        assert_eq!(stage.granted(&request).await.token, first.token);
    }
}

/// With a clock the rest of the term is told, and never more than the term; without,
/// it is unknown, and nobody is told a guess.
pub(crate) async fn rest_is_known_if_the_store_has_a_clock(stage: &Stage) {
    let key = key("rest");
    let sent = stage.now();
    let granted = stage.take(&key, "a").await;
    let held = stage.held(&stage.request(&key, "b")).await;
    let read = stage.live(&key).await;
    let (renewed, _) = stage.renewed(&granted).await;
    // A server may count whole seconds.
    let spent_max = (stage.now() - sent) + std::time::Duration::from_secs(2);
    for (from, lease) in [
        ("acquire", &granted),
        ("a refused acquire", &held),
        ("read", &read),
        ("renew", &renewed),
    ] {
        if !stage.traits.own_clock {
            assert_eq!(
                lease.rest, None,
                "from {from}: there is no clock to know it by"
            );
            continue;
        }
        let Some(rest) = lease.rest else {
            panic!("the store has a clock, but {from} does not tell the rest");
        };
        let ttl = lease.ttl;
        let fits = rest <= ttl && rest + spent_max >= ttl;
        assert!(fits, "from {from}: {rest:?} of {ttl:?}");
    }
}

/// Without a clock: whoever names the present version as ended gets the lease, and
/// nobody else does. With one: what a candidate says of the end is ignored.
pub(crate) async fn named_version_is_taken_if_the_store_has_no_clock(stage: &Stage) {
    let key = key("watched");
    let first = stage.take(&key, "a").await;
    let mut request = stage.request(&key, "b");
    let seen = stage.held(&request).await;
    request.ended = Some(seen.version);
    if stage.traits.own_clock {
        let seen = stage.held(&request).await;
        assert_eq!((seen.holder, seen.token), (first.holder, first.token));
        return;
    }
    let next = stage.granted(&request).await;
    assert_eq!(next.holder, request.holder);
    assert!(next.token > first.token, "{next:?} after {first:?}");
    stage.lost(&first).await;
}

/// A version that the record had before, or never had, takes nothing.
pub(crate) async fn version_that_is_not_the_present_one_is_held(stage: &Stage) {
    let key = key("stale version");
    let first = stage.take(&key, "a").await;
    let (renewed, _) = stage.renewed(&first).await;
    let mut versions = vec![Version::new("0"), Version::new("no version of this store")];
    if !stage.traits.own_clock {
        versions.push(first.version.clone());
    }
    let before = stage.snapshot(&key).await;
    for version in versions {
        let mut request = stage.request(&key, "b");
        request.ended = Some(version);
        let seen = stage.held(&request).await;
        assert_eq!((&seen.holder, seen.token), (&first.holder, first.token));
        assert_eq!(stage.snapshot(&key).await, before);
    }
    stage.renewed(&renewed).await;
}

/// Without a clock a renewal is seen by its new version: each has one, never seen before.
pub(crate) async fn each_renewal_changes_the_version(stage: &Stage) {
    let key = key("versions");
    let mut last = stage.take(&key, "a").await;
    if stage.traits.own_clock {
        return stage.lacks("clock judges, not its versions");
    }
    let mut seen = vec![last.version.clone()];
    for _ in 0..5 {
        (last, _) = stage.renewed(&last).await;
        assert!(!seen.contains(&last.version), "{:?} again", last.version);
        seen.push(last.version.clone());
    }
}

/// A watcher and the holder see the same version of the same state.
pub(crate) async fn version_read_is_the_version_granted(stage: &Stage) {
    let key = key("same version");
    let mut lease = stage.take(&key, "a").await;
    for _ in 0..3 {
        let held = stage.held(&stage.request(&key, "b")).await;
        assert_eq!(stage.live(&key).await.version, lease.version);
        assert_eq!(held.version, lease.version);
        (lease, _) = stage.renewed(&lease).await;
    }
}

/// A version names one state of one tenure: what was watched before a release does not
/// take the lease of whoever came after it.
pub(crate) async fn version_after_release_is_new(stage: &Stage) {
    let key = key("new version");
    let first = stage.take(&key, "a").await;
    assert_eq!(stage.release(&first).await, Released::Released);
    let second = stage.take(&key, "a").await;
    let mut request = stage.request(&key, "b");
    request.ended = Some(first.version);
    let seen = stage.held(&request).await;
    assert_eq!((seen.holder, seen.token), (second.holder, second.token));
}
