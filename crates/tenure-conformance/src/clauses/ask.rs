//! Ask: a request reaches the holder with its renewal; or the right refusal.

use tenure::{Asked, ErrorKind, HolderRequest, Key, Lease, Released};

use crate::stage::{Stage, holder, key, ok};

/// Leaves a step-down; None from a store that says that it cannot, and refuses.
async fn ask(stage: &Stage, key: &Key) -> Option<Asked> {
    let answer = stage.store().ask(key, HolderRequest::StepDown).await;
    if stage.traits.ask {
        return Some(ok("ask", answer));
    }
    match answer {
        Err(e) if e.kind() == ErrorKind::Unsupported => None,
        other => panic!("the store says that it cannot carry requests, but: {other:?}"),
    }
}

async fn found(stage: &Stage, lease: &Lease) -> Option<HolderRequest> {
    let mut lease = lease.clone();
    lease.ttl = stage.long();
    stage.renewed(&lease).await.1
}

/// The holder finds the request in the answer to its next renewal, and not before.
pub(crate) async fn ask_arrives_with_the_next_renewal(stage: &Stage) {
    let lease = stage.take(&key("asked"), "a").await;
    assert_eq!(found(stage, &lease).await, None, "nobody has asked yet");
    let Some(left) = ask(stage, &lease.key).await else {
        return;
    };
    let (holder, token) = (lease.holder.clone(), lease.token);
    assert_eq!(left, Asked::Left { holder, token }, "told who will find it");
    assert_eq!(found(stage, &lease).await, Some(HolderRequest::StepDown));
    // A request to one holder is none to another.
    let other = stage.take(&key("not asked"), "a").await;
    assert_eq!(found(stage, &other).await, None);
}

/// The answer that carried it may have been lost: it is in the next one too, also when
/// it was made twice.
pub(crate) async fn ask_stays_until_the_tenure_ends(stage: &Stage) {
    let lease = stage.take(&key("stays"), "a").await;
    for _ in 0..2 {
        if ask(stage, &lease.key).await.is_none() {
            return;
        }
    }
    for _ in 0..3 {
        assert_eq!(found(stage, &lease).await, Some(HolderRequest::StepDown));
    }
}

/// It is gone with the tenure that it was made to: the next one, even of the same
/// holder, was not asked.
pub(crate) async fn ask_is_gone_after_release(stage: &Stage) {
    let lease = stage.take(&key("gone"), "a").await;
    if ask(stage, &lease.key).await.is_none() {
        return;
    }
    assert_eq!(stage.release(&lease).await, Released::Released);
    let next = stage.take(&lease.key, "a").await;
    assert_eq!(found(stage, &next).await, None);
}

/// Likewise when the tenure ended without a release, or by a deletion.
pub(crate) async fn ask_is_gone_after_takeover(stage: &Stage) {
    let key = key("taken");
    let request = stage.request_for(&key, &holder("a"), stage.long());
    let lease = stage.granted(&request).await;
    if ask(stage, &key).await.is_none() {
        return;
    }
    stage.harness.pass_time(stage.harness.token_step()).await;
    stage.harness.delete_record(&key).await;
    let next = stage.take_briefly(&key, "a").await;
    assert!(next.token > lease.token);
    if let Some(Asked::Left { token, .. }) = ask(stage, &key).await {
        assert_eq!(token, next.token);
    }
    let last = stage.succeed(&next, "a").await;
    assert_eq!(found(stage, &last).await, None);
}

/// Nobody holds it, nobody is asked, and who comes next does not find it.
pub(crate) async fn ask_of_a_free_key_is_not_held(stage: &Stage) {
    let key = key("nobody");
    let Some(answer) = ask(stage, &key).await else {
        return;
    };
    assert_eq!(answer, Asked::NotHeld, "of a key that nobody ever had");
    let lease = stage.take(&key, "a").await;
    assert_eq!(found(stage, &lease).await, None);
    assert_eq!(stage.release(&lease).await, Released::Released);
    let answer = ask(stage, &key).await;
    assert_eq!(answer, Some(Asked::NotHeld), "of a released key");
    if stage.traits.own_clock {
        let lease = stage.take_briefly(&key, "a").await;
        stage.wait_ended(&lease).await;
        let answer = ask(stage, &key).await;
        assert_eq!(answer, Some(Asked::NotHeld), "of an ended lease");
    }
    let next = stage.take(&key, "b").await;
    assert_eq!(found(stage, &next).await, None);
}

/// A request is no loss: the lease stays the holder's, with its token and its term.
pub(crate) async fn ask_disturbs_no_renewal(stage: &Stage) {
    let lease = stage.take(&key("undisturbed"), "a").await;
    let before = stage.live(&lease.key).await;
    if ask(stage, &lease.key).await.is_none() {
        return;
    }
    let after = stage.live(&lease.key).await;
    assert_eq!(
        (&after.holder, after.token, after.ttl),
        (&before.holder, before.token, before.ttl)
    );
    assert!(after.rest <= before.rest, "asking does not lengthen a term");
    stage.held(&stage.request(&lease.key, "b")).await;
    let (renewed, _) = stage.renewed(&lease).await;
    assert_eq!(renewed.token, lease.token);
    stage.renewed(&renewed).await;
    assert_eq!(stage.release(&renewed).await, Released::Released);
}

/// A repeated attempt is the same tenure, so what was asked of it still is.
pub(crate) async fn ask_survives_a_repeated_attempt(stage: &Stage) {
    let request = stage.request(&key("repeated"), "a");
    let lease = stage.granted(&request).await;
    if ask(stage, &lease.key).await.is_none() {
        return;
    }
    let again = stage.granted(&request).await;
    assert_eq!(again.token, lease.token);
    assert_eq!(found(stage, &again).await, Some(HolderRequest::StepDown));
}
