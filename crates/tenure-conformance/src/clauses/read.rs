//! Read: it shows the live lease and changes nothing.

use std::time::Duration;

use tenure::{Acquired, Released};

use crate::stage::{Stage, holder, key, ok};

/// A key that nobody ever had is nobody's.
pub(crate) async fn read_of_a_free_key_is_nobody(stage: &Stage) {
    assert_eq!(stage.read(&key("free")).await, None);
    stage.take(&key("other"), "a").await;
    assert_eq!(stage.read(&key("free")).await, None);
}

/// Read shows what acquire and renew have confirmed.
pub(crate) async fn read_shows_the_lease(stage: &Stage) {
    let request = stage.request(&key("shown"), "a");
    let lease = stage.granted(&request).await;
    let (renewed, _) = stage.renewed(&lease).await;
    for known in [lease, renewed] {
        let seen = stage.live(&known.key).await;
        assert_eq!(seen.key, known.key);
        assert_eq!(seen.holder, known.holder);
        assert_eq!(seen.token, known.token);
        assert_eq!(seen.ttl, known.ttl);
        assert_eq!(seen.attempt, known.attempt);
    }
}

/// A released key is nobody's.
pub(crate) async fn read_after_release_is_nobody(stage: &Stage) {
    let lease = stage.take(&key("released"), "a").await;
    assert_eq!(stage.release(&lease).await, Released::Released);
    assert_eq!(stage.read(&lease.key).await, None);
}

/// A key whose record was deleted is nobody's, and can be taken.
pub(crate) async fn read_after_deletion_is_nobody(stage: &Stage) {
    let lease = stage.take(&key("deleted"), "a").await;
    stage.harness.delete_record(&lease.key).await;
    assert_eq!(stage.read(&lease.key).await, None);
    stage.take(&lease.key, "b").await;
}

/// With a clock an ended lease is nobody's; without, the record is shown as it stands.
pub(crate) async fn read_after_the_end_of_the_term(stage: &Stage) {
    let request = stage.request_for(&key("ended"), &holder("a"), stage.short());
    let lease = stage.granted(&request).await;
    if stage.traits.own_clock {
        stage.wait_ended(&lease).await;
        assert_eq!(stage.read(&lease.key).await, None);
        stage.harness.pass_time(lease.ttl).await;
        assert_eq!(stage.read(&lease.key).await, None, "it came back");
    } else {
        stage.harness.pass_time(lease.ttl * 2).await;
        assert_eq!(stage.live(&lease.key).await.version, lease.version);
    }
}

/// Reading keeps no lease alive and gives no new version.
pub(crate) async fn read_changes_nothing(stage: &Stage) {
    let lease = stage.take(&key("only looked at"), "a").await;
    let before = stage.live(&lease.key).await;
    for _ in 0..5 {
        stage.harness.pass_time(Duration::from_millis(10)).await;
        let seen = stage.live(&lease.key).await;
        assert_eq!(seen.version, before.version);
        assert!(seen.rest <= before.rest, "its term grew by being read");
    }
    if !stage.traits.own_clock {
        return;
    }
    // Looked at all the time, a lease ends all the same.
    let ttl = stage.short();
    let key = key("looked at to the end");
    stage
        .granted(&stage.request_for(&key, &holder("a"), ttl))
        .await;
    let request = stage.request(&key, "b");
    let limit = stage.now() + ttl + Duration::from_secs(15);
    loop {
        stage.harness.pass_time(ttl / 4).await;
        stage.read(&key).await;
        let answer = ok("acquire", stage.store().acquire(&request).await);
        if let Acquired::Granted(_) = answer {
            return;
        }
        assert!(stage.now() < limit, "reading keeps the lease alive");
    }
}
