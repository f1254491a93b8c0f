//! The record changes hands behind the leader's back: the tenure ends at once, with the
//! reason, long before its term or its next renewal.

use std::time::Duration;

use serde_json::json;
use tenure::{Elector, EndReason, Holder, HolderRequest, Settings, Store, Tenure, Timing};
use tokio::time::timeout;

use crate::support::{LONG, Place, Watched, until_set};

/// Renewals are far apart, so that only the watch can tell in time.
fn slow(key: &str, holder: &str) -> Settings {
    let timing = Timing {
        call_timeout: Duration::from_secs(10),
        ..Timing::with_ttl(Duration::from_secs(600))
    };
    Settings::new(key)
        .unwrap()
        .holder(Holder::new(holder).unwrap())
        .timing(timing)
}

async fn leader(place: &Place, key: &str) -> (Elector, Tenure) {
    let (store, looked) = Watched::new(place.store());
    let elector = Elector::start(store, slow(key, "me")).unwrap();
    let tenure = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    // What happens from now on is seen by the watch, or not for minutes.
    until_set(&looked).await;
    (elector, tenure)
}

async fn end(tenure: &Tenure) -> EndReason {
    let ended = timeout(LONG, tenure.ended()).await;
    let reason = ended.expect("the tenure must end long before its next renewal");
    assert!(!tenure.is_valid());
    reason
}

/// As client-go from 0.34 on frees a living successor's Lease after a cut.
#[tokio::test]
async fn a_lease_that_somebody_freed_ends_the_tenure() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (elector, tenure) = leader(&place, "freed").await;
    let freed = json!({ "spec": {
        "holderIdentity": "", "leaseDurationSeconds": 1,
        "acquireTime": "2030-01-01T00:00:00.000000Z", "renewTime": "2030-01-01T00:00:00.000000Z",
    } });
    place.patch("freed", freed).await;
    assert_eq!(end(&tenure).await, EndReason::RecordDeleted);
    // It campaigns again, and the free Lease is its own with a greater token.
    let next = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    assert!(next.token() > tenure.token());
    elector.stop().await;
}

#[tokio::test]
async fn a_lease_that_somebody_took_ends_the_tenure() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (elector, tenure) = leader(&place, "taken").await;
    let taken = json!({ "spec": {
        "holderIdentity": "go", "leaseDurationSeconds": 15, "leaseTransitions": 1,
        "acquireTime": "2030-01-01T00:00:00.000000Z", "renewTime": "2030-01-01T00:00:00.000000Z",
    } });
    place.patch("taken", taken).await;
    match end(&tenure).await {
        EndReason::Superseded { holder, token } => {
            assert_eq!(holder.as_str(), "go");
            assert!(token > tenure.token());
        }
        other => panic!("{other:?}"),
    }
    elector.stop().await;
}

#[tokio::test]
async fn a_lease_that_was_deleted_ends_the_tenure_and_tokens_grow() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (elector, tenure) = leader(&place, "deleted").await;
    place.delete("deleted").await;
    assert_eq!(end(&tenure).await, EndReason::RecordDeleted);
    let next = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    assert!(
        next.token() > tenure.token(),
        "leaseTransitions began at 0 again"
    );
    elector.stop().await;
}

/// Deleted, and created at once by one who counts from the beginning.
#[tokio::test]
async fn a_lease_that_was_deleted_and_made_by_client_go_ends_the_tenure() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (elector, tenure) = leader(&place, "remade").await;
    place.delete("remade").await;
    let body = json!({ "metadata": { "name": "remade" }, "spec": {
        "holderIdentity": "go", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2030-01-01T00:00:00.000000Z", "renewTime": "2030-01-01T00:00:00.000000Z",
    } });
    let path = place.path("");
    // Ours may be there first, by right: the key was free.
    let kubernetes = place.kubernetes.clone();
    let made =
        crate::support::aside(move || kubernetes.ask("POST", &path, Some(&body.to_string())));
    let (status, text) = made.await;
    assert!(status == 201 || status == 409, "{status} {text}");
    assert!(matches!(
        end(&tenure).await,
        EndReason::RecordDeleted | EndReason::Superseded { .. }
    ));
    elector.stop().await;
}

/// A release is pushed: nobody waits for the next poll, which is minutes away here.
#[tokio::test]
async fn a_released_lease_is_taken_by_a_follower_at_once() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (leader, tenure) = leader(&place, "released").await;
    let (store, looked) = Watched::new(place.store());
    let follower = Elector::start(store, slow("released", "next")).unwrap();
    until_set(&looked).await;
    leader.stop().await;
    let next = timeout(LONG, follower.elected()).await;
    let next = next.expect("the release was not pushed").unwrap();
    assert!(next.token() > tenure.token());
    follower.stop().await;
}

/// A request to step down is pushed to the holder too.
#[tokio::test]
async fn a_request_to_step_down_reaches_the_leader_at_once() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (elector, tenure) = leader(&place, "asked").await;
    let asked = place
        .store()
        .ask(tenure.key(), HolderRequest::StepDown)
        .await;
    asked.unwrap();
    assert_eq!(end(&tenure).await, EndReason::AskedToStepDown);
    elector.stop().await;
}
