//! Tokens only grow (promise 2).

use tenure::{Lease, Released, Token};

use crate::harness::Restart;
use crate::stage::{Stage, key};

/// What JavaScript can still count with.
const TOKEN_LIMIT: Token = Token(1 << 53);

fn assert_grown(earlier: &Lease, later: &Lease) {
    assert!(
        later.token > earlier.token,
        "the token of {:?} must be greater than {}, but is {}",
        later.key,
        earlier.token,
        later.token
    );
}

/// Over release, by the same holder and by another.
pub(crate) async fn token_grows_over_release(stage: &Stage) {
    let key = key("released");
    let mut last = stage.take(&key, "a").await;
    for holder in ["a", "b", "b", "a"] {
        assert_eq!(stage.release(&last).await, Released::Released);
        let next = stage.take(&key, holder).await;
        assert_grown(&last, &next);
        last = next;
    }
}

/// Over the end of a term that nobody released.
pub(crate) async fn token_grows_over_the_end_of_a_term(stage: &Stage) {
    let first = stage.take_briefly(&key("ended"), "a").await;
    let next = stage.succeed(&first, "a").await;
    assert_grown(&first, &next);
}

/// Over the deletion of the record of a live lease, by hand.
pub(crate) async fn token_grows_over_deletion(stage: &Stage) {
    let key = key("deleted");
    let mut last = stage.take(&key, "a").await;
    for holder in ["b", "b", "a"] {
        stage.harness.pass_time(stage.harness.token_step()).await;
        stage.harness.delete_record(&key).await;
        let next = stage.take(&key, holder).await;
        assert_grown(&last, &next);
        last = next;
    }
}

/// Over the deletion of what a release has left behind.
pub(crate) async fn token_grows_over_deletion_after_release(stage: &Stage) {
    let first = stage.take(&key("released, deleted"), "a").await;
    stage.harness.pass_time(stage.harness.token_step()).await;
    assert_eq!(stage.release(&first).await, Released::Released);
    stage.harness.delete_record(&first.key).await;
    let next = stage.take(&first.key, "a").await;
    assert_grown(&first, &next);
}

/// Over every change of hands, of whatever kind, and back.
pub(crate) async fn token_grows_over_change_of_holder(stage: &Stage) {
    let key = key("changes");
    let mut last = stage.take_briefly(&key, "a").await;
    for holder in ["b", "a", "c"] {
        let next = stage.succeed(&last, holder).await;
        assert_grown(&last, &next);
        assert_eq!(stage.release(&next).await, Released::Released);
        let brief = stage.take_briefly(&key, "between").await;
        assert_grown(&next, &brief);
        last = brief;
    }
}

/// Over a restart of the backend, for a released key.
pub(crate) async fn token_grows_over_restart(stage: &Stage) {
    let first = stage.take(&key("restarted"), "a").await;
    assert_eq!(stage.release(&first).await, Released::Released);
    if stage.harness.restart().await == Restart::Cannot {
        return stage.lacks("harness cannot restart its backend");
    }
    let request = stage.request(&first.key, "b");
    let store = stage.harness.store().await;
    let next = match store.acquire(&request).await {
        Ok(tenure::Acquired::Granted(lease)) => lease,
        other => panic!("a released key after a restart: {other:?}"),
    };
    assert_grown(&first, &next);
}

/// A restart of the backend is no permission (promise 4): who had it has it.
pub(crate) async fn live_lease_survives_restart(stage: &Stage) {
    let lease = stage.take(&key("survives"), "a").await;
    if stage.harness.restart().await == Restart::Cannot {
        return stage.lacks("harness cannot restart its backend");
    }
    let store = stage.harness.store().await;
    match store.acquire(&stage.request(&lease.key, "b")).await {
        Ok(tenure::Acquired::Held(seen)) => {
            assert_eq!((seen.holder, seen.token), (lease.holder, lease.token));
        }
        other => panic!("a held key after a restart: {other:?}"),
    }
}

/// A tenure has one token from its beginning to its end.
pub(crate) async fn token_stays_over_renewal(stage: &Stage) {
    let lease = stage.take(&key("stays"), "a").await;
    let mut last = lease.clone();
    for _ in 0..5 {
        (last, _) = stage.renewed(&last).await;
        assert_eq!(last.token, lease.token);
        assert_eq!(stage.live(&lease.key).await.token, lease.token);
    }
}

/// Every language can hold it.
pub(crate) async fn token_is_below_2_to_the_53(stage: &Stage) {
    let key = key("small");
    for _ in 0..5 {
        let lease = stage.take(&key, "a").await;
        assert!(lease.token < TOKEN_LIMIT, "{}", lease.token);
        assert_eq!(stage.release(&lease).await, Released::Released);
    }
}
