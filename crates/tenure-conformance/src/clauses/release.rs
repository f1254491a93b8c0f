//! Release: nobody frees another's lease (promise 6).

use tenure::{Released, Token};

use crate::stage::{Stage, holder, key};

/// A released key can be taken at once, long before the end of its term.
pub(crate) async fn release_frees_at_once(stage: &Stage) {
    let lease = stage.take(&key("freed"), "a").await;
    assert_eq!(stage.release(&lease).await, Released::Released);
    stage.take(&lease.key, "b").await;
}

/// A release that is repeated does nothing.
pub(crate) async fn second_release_is_not_held(stage: &Stage) {
    let lease = stage.take(&key("twice"), "a").await;
    assert_eq!(stage.release(&lease).await, Released::Released);
    for _ in 0..3 {
        assert_eq!(stage.release(&lease).await, Released::NotHeld);
    }
}

/// The right token in the wrong hands frees nothing.
pub(crate) async fn release_by_another_holder_is_not_held(stage: &Stage) {
    let lease = stage.take(&key("not yours"), "a").await;
    let mut stolen = lease.clone();
    stolen.holder = holder("b");
    stage.release_in_vain(&stolen).await;
    stage.renewed(&lease).await;
}

/// The right holder with a wrong token frees nothing, be it too small or too great.
pub(crate) async fn release_with_another_token_is_not_held(stage: &Stage) {
    let lease = stage.take(&key("token"), "a").await;
    for token in [lease.token.0 - 1, lease.token.0 + 1] {
        let mut wrong = lease.clone();
        wrong.token = Token(token);
        stage.release_in_vain(&wrong).await;
    }
    stage.renewed(&lease).await;
}

/// A late release of the holder's earlier tenure leaves its present one alone.
pub(crate) async fn late_release_of_an_earlier_tenure_changes_nothing(stage: &Stage) {
    let key = key("late");
    let first = stage.take(&key, "a").await;
    assert_eq!(stage.release(&first).await, Released::Released);
    let second = stage.take(&key, "a").await;
    stage.release_in_vain(&first).await;
    stage.renewed(&second).await;
}

/// A holder that comes back after its term does not free its living successor.
pub(crate) async fn late_release_does_not_free_the_successor(stage: &Stage) {
    let first = stage.take_briefly(&key("came back"), "a").await;
    let next = stage.succeed(&first, "b").await;
    stage.release_in_vain(&first).await;
    // Nor with what it may have read meanwhile: the successor's version is no right.
    let mut refreshed = first.clone();
    refreshed.version = stage.live(&first.key).await.version;
    stage.release_in_vain(&refreshed).await;
    stage.renewed(&next).await;
}

/// Where no record is there is nothing to release, and none is made.
pub(crate) async fn release_after_deletion_is_not_held(stage: &Stage) {
    let lease = stage.take(&key("deleted"), "a").await;
    stage.harness.delete_record(&lease.key).await;
    stage.release_in_vain(&lease).await;
    stage.take(&lease.key, "b").await;
}

/// A renewal whose answer was lost has changed the version; the release still names
/// the record's holder and token, so it must succeed.
pub(crate) async fn release_with_an_older_version_works(stage: &Stage) {
    let lease = stage.take(&key("older version"), "a").await;
    stage.renewed(&lease).await;
    assert_eq!(stage.release(&lease).await, Released::Released);
    stage.take(&lease.key, "b").await;
}
