//! The record: exactly client-go's, whatever else stands in it is kept, and what cannot be
//! read is left alone.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Acquired, ErrorKind, Loss, Released, Renewed, Store, Token};

use crate::support::{Place, held, key, request, take};

fn token(lease: &Value) -> u64 {
    let note = lease["metadata"]["annotations"]["tenure/note"].as_str();
    let note: Value = serde_json::from_str(note.unwrap()).unwrap();
    note["token"].as_u64().unwrap()
}

/// Only client-go's fields, in client-go's forms.
#[tokio::test]
async fn the_record_is_that_of_client_go() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let store = place.store();
    let lease = take(&store, "record", "me").await;
    let taken = place.lease("record").await;
    let spec = taken["spec"].as_object().unwrap();
    let names: Vec<_> = spec.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "acquireTime",
            "holderIdentity",
            "leaseDurationSeconds",
            "leaseTransitions",
            "renewTime"
        ]
    );
    assert_eq!(spec["holderIdentity"], "me");
    assert_eq!(spec["leaseDurationSeconds"], 600);
    assert_eq!(spec["leaseTransitions"], 0, "as client-go begins");
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(token(&taken), lease.token.0);

    let renewed = store.renew(&lease, Duration::from_secs(30)).await.unwrap();
    let Renewed::Renewed(renewed, None) = renewed else {
        panic!("{renewed:?}");
    };
    let after = place.lease("record").await;
    assert_eq!(after["spec"]["acquireTime"], spec["acquireTime"]);
    assert_ne!(after["spec"]["renewTime"], spec["renewTime"]);
    assert_eq!(after["spec"]["leaseDurationSeconds"], 30);
    assert_eq!(after["spec"]["leaseTransitions"], 0);

    assert_eq!(store.release(&renewed).await.unwrap(), Released::Released);
    let freed = place.lease("record").await;
    assert_eq!(freed["spec"]["holderIdentity"], "");
    assert_eq!(
        freed["spec"]["leaseDurationSeconds"], 1,
        "as client-go leaves it"
    );
    assert_eq!(freed["spec"]["leaseTransitions"], 0);

    let next = take(&store, "record", "me").await;
    assert!(next.token > lease.token);
    let taken = place.lease("record").await;
    assert_eq!(
        taken["spec"]["leaseTransitions"], 1,
        "each change of hands counts"
    );
}

/// Labels, annotations and owners that somebody gave the Lease stay.
#[tokio::test]
async fn what_others_wrote_into_the_lease_stays() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let body = json!({
        "metadata": {
            "name": "kept",
            "labels": { "team": "billing" },
            "annotations": { "note": "ours" },
            "finalizers": ["example.com/keep"],
        },
        "spec": { "strategy": "OldestEmulationVersion", "preferredHolder": "x" },
    });
    // Fields of a newer Kubernetes: which of them the server keeps is its own affair.
    let before = place.must("POST", place.path(""), Some(body)).await;
    let store = place.store();
    let lease = take(&store, "kept", "me").await;
    assert!(matches!(
        store.renew(&lease, Duration::from_secs(9)).await.unwrap(),
        Renewed::Renewed(..)
    ));
    let after = place.lease("kept").await;
    for part in ["labels", "finalizers", "uid"] {
        assert_eq!(after["metadata"][part], before["metadata"][part], "{part}");
    }
    assert_eq!(after["metadata"]["annotations"]["note"], "ours");
    for part in ["strategy", "preferredHolder"] {
        assert_eq!(after["spec"][part], before["spec"][part], "{part}");
    }
    place
        .patch("kept", json!({ "metadata": { "finalizers": null } }))
        .await;
}

/// A Lease by hand that says nothing of a holder is free, whatever else is missing.
#[tokio::test]
async fn a_lease_without_a_holder_is_free() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let specs = [
        json!({}),
        json!({ "holderIdentity": "" }),
        json!({ "leaseDurationSeconds": 15 }),
        json!({ "leaseTransitions": 7 }),
        Value::Null,
    ];
    for (n, spec) in specs.into_iter().enumerate() {
        let name = format!("by-hand-{n}");
        let body = json!({ "metadata": { "name": name }, "spec": spec });
        place.must("POST", place.path(""), Some(body)).await;
        let store = place.store();
        assert_eq!(store.read(&key(&name)).await.unwrap(), None);
        take(&store, &name, "me").await;
        let transitions = &place.lease(&name).await["spec"]["leaseTransitions"];
        assert_eq!(*transitions, if n == 3 { 8 } else { 0 });
    }
}

/// With a holder and a duration it is held, even if the rest is missing.
#[tokio::test]
async fn a_lease_by_hand_with_a_holder_is_held_until_it_was_watched() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let body = json!({
        "metadata": { "name": "by-hand" },
        "spec": { "holderIdentity": "hand", "leaseDurationSeconds": 7 },
    });
    place.must("POST", place.path(""), Some(body)).await;
    let store = place.store();
    let seen = held(&store, "by-hand").await;
    assert_eq!(seen.holder.as_str(), "hand");
    assert_eq!((seen.ttl, seen.rest), (Duration::from_secs(7), None));
    assert_eq!((seen.attempt, seen.acquired_at), (None, None));
    let mut request = request("by-hand", "me", 10);
    request.ended = Some(seen.version.clone());
    let Acquired::Granted(lease) = store.acquire(&request).await.unwrap() else {
        panic!("the version that was watched has ended");
    };
    assert!(lease.token > seen.token);
    // And what the hand believes to hold, it can neither renew nor release.
    assert_eq!(store.release(&seen).await.unwrap(), Released::NotHeld);
    let lost = store.renew(&seen, Duration::from_secs(7)).await.unwrap();
    assert!(matches!(lost, Renewed::Lost(Loss::Superseded { .. })));
}

/// What cannot be read is an error that says so, and is not overwritten.
#[tokio::test]
async fn a_lease_that_cannot_be_read_is_left_alone() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let long = "x".repeat(600);
    let cases = [
        (
            "no-duration",
            json!({ "spec": { "holderIdentity": "hand" } }),
        ),
        (
            "control",
            json!({ "spec": { "holderIdentity": "a\nb", "leaseDurationSeconds": 1 } }),
        ),
        (
            "long",
            json!({ "spec": { "holderIdentity": long, "leaseDurationSeconds": 1 } }),
        ),
        (
            "no-json",
            json!({ "metadata": { "annotations": { "tenure/note": "hello" } } }),
        ),
        (
            "others",
            json!({ "metadata": { "annotations": { "tenure/note":
                "{\"key\":\"another\",\"holder\":\"h\",\"token\":1,\"attempt\":1,\"transitions\":0,\"acquired\":\"\"}" } } }),
        ),
        (
            "too-great",
            json!({ "metadata": { "annotations": { "tenure/note":
                "{\"key\":\"too-great\",\"holder\":\"h\",\"token\":18446744073709551615,\"attempt\":1,\"transitions\":0,\"acquired\":\"\"}" } } }),
        ),
    ];
    let store = place.store();
    for (name, mut body) in cases {
        body["metadata"]["name"] = name.into();
        let before = place.must("POST", place.path(""), Some(body)).await;
        let mut request = request(name, "me", 10);
        let version = before["metadata"]["resourceVersion"].as_str().unwrap();
        request.ended = Some(tenure::Version::new(version));
        let error = store.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains("kubectl get lease"), "{error}");
        let read = store.read(&key(name)).await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Corrupt);
        let after = place.lease(name).await;
        assert_eq!(after["metadata"]["resourceVersion"], *version, "{name}");
    }
}

/// A tenure of a program without tokens has one that fits between ours.
#[tokio::test]
async fn tokens_grow_over_tenures_of_others() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let store = place.store();
    let first = take(&store, "others", "me").await;
    // As client-go takes a Lease: it keeps annotations and counts one more transition.
    let by_go = json!({ "spec": {
        "holderIdentity": "go", "leaseDurationSeconds": 15, "leaseTransitions": 1,
        "acquireTime": "2030-01-01T00:00:00.000000Z", "renewTime": "2030-01-01T00:00:00.000000Z",
    } });
    place.patch("others", by_go).await;
    let go = held(&store, "others").await;
    assert_eq!(go.token, Token(first.token.0 + 1));
    let renewal = json!({ "spec": { "renewTime": "2030-01-01T00:00:02.000000Z" } });
    place.patch("others", renewal).await;
    assert_eq!(
        held(&store, "others").await.token,
        go.token,
        "one tenure, one token"
    );
    let lost = store.renew(&first, Duration::from_secs(600)).await.unwrap();
    let superseded = Loss::Superseded {
        holder: go.holder.clone(),
        token: go.token,
    };
    assert_eq!(lost, Renewed::Lost(superseded));
    let freed = json!({ "spec": { "holderIdentity": "", "leaseDurationSeconds": 1 } });
    place.patch("others", freed).await;
    let last = take(&store, "others", "me").await;
    assert!(last.token > go.token, "{last:?}");
}

/// Sub-second terms are refused, and so is any part of a second.
#[tokio::test]
async fn a_ttl_is_in_whole_seconds() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let store = place.store();
    for ttl in [Duration::from_millis(900), Duration::from_millis(1500)] {
        let mut request = request("whole", "me", 1);
        request.ttl = ttl;
        let error = store.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(store.read(&key("whole")).await.unwrap(), None);
}

/// Keys with slashes and capitals have names that tell them, and are listed as keys.
#[tokio::test]
async fn keys_that_are_no_names_are_mapped() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let store = place.store();
    take(&store, "billing/Nightly", "me").await;
    place.lease("tenure--billing-2f-4eightly").await;
    let long = format!("long/{}", "x".repeat(500));
    take(&store, &long, "me").await;
    let listed = store.list("", 10).await.unwrap();
    let keys: Vec<_> = listed.iter().map(|lease| lease.key.as_str()).collect();
    assert_eq!(keys, ["billing/Nightly", &long]);
}

/// The very store that took it renews what was deleted: it must not come back by that.
/// Kubernetes creates a Lease that is replaced and not there, unless its uid is named.
#[tokio::test]
async fn a_renewal_does_not_bring_back_what_was_deleted() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let store = place.store();
    let lease = take(&store, "gone", "me").await;
    place.delete("gone").await;
    let lost = store.renew(&lease, Duration::from_secs(600)).await.unwrap();
    assert_eq!(lost, Renewed::Lost(Loss::Deleted));
    assert_eq!(place.store().read(&key("gone")).await.unwrap(), None);
    let lease = take(&store, "gone", "me").await;
    place.delete("gone").await;
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    let list = place.must("GET", place.path(""), None).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
}

/// A store outlives the runtime on which it was first used.
#[test]
fn a_store_works_after_its_first_runtime_has_ended() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().build().unwrap()
    };
    let first = runtime();
    let Some(place) = first.block_on(Place::shared()) else {
        return;
    };
    let store = place.store();
    let lease = first.block_on(take(&store, "runtimes", "me"));
    first.shutdown_timeout(Duration::from_secs(5));
    let second = runtime();
    let ttl = Duration::from_secs(600);
    let answer = second.block_on(store.renew(&lease, ttl));
    let answer = match answer {
        Err(error) => {
            assert!(!error.may_have_worked(), "{error}");
            second.block_on(store.renew(&lease, ttl))
        }
        answer => answer,
    };
    assert!(matches!(answer, Ok(Renewed::Renewed(..))), "{answer:?}");
}
