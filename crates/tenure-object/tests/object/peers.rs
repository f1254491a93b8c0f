//! Beside LeaderElection.S3: its records are respected and taken over, and it can read ours.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{ErrorKind, HolderRequest, Loss, Renewed, Store, Token};
use tenure_object::{BucketStore, ObjectOptions};
use tenure_testbed::{Minio, unique};

use crate::support::{get, granted, held, key, put, request, store};

fn peer(holder: &str, until: &str) -> String {
    json!({ "holderId": holder, "leaseUntilUtc": until }).to_string()
}

#[tokio::test]
async fn a_peer_can_read_our_record() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("ours");
    let store = store(minio, &prefix);
    let key = key("k");
    let lease = granted(&store, &request(&key, "web-1", 1)).await;
    let record: Value = serde_json::from_str(&get(minio, &prefix, &key).await).unwrap();
    assert_eq!(record["holderId"], "web-1");
    let until = record["leaseUntilUtc"].as_str().unwrap();
    let until = chrono::DateTime::parse_from_rfc3339(until).unwrap();
    let acquired: chrono::DateTime<chrono::Utc> = lease.acquired_at.unwrap().into();
    let term = until.to_utc() - acquired;
    assert!((30..40).contains(&term.num_seconds()), "{record}");
    store.release(&lease).await.unwrap();
    let record: Value = serde_json::from_str(&get(minio, &prefix, &key).await).unwrap();
    assert_eq!(record["holderId"], "", "an empty holder is nobody");
    assert_eq!(record["leaseUntilUtc"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(record["tenure"]["token"], lease.token.0, "the token stays");
}

#[tokio::test]
async fn a_record_of_a_peer_is_respected_whatever_its_clock_says() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("theirs");
    let store = store(minio, &prefix);
    for (name, until) in [
        ("now", "2000-01-01T00:00:00Z"),
        ("later", "2999-01-01T00:00:00Z"),
        ("bare", "2026-01-01T00:00:00"),
    ] {
        let key = key(name);
        put(minio, &prefix, &key, peer("web-7", until)).await;
        let mut asked = request(&key, "b", 1);
        let seen = held(&store, &asked).await;
        assert_eq!((seen.holder.as_str(), seen.token), ("web-7", Token(0)));
        assert!(seen.ttl >= Duration::from_secs(30), "{:?}", seen.ttl);
        assert_eq!(held(&store, &asked).await.version, seen.version);
        let error = store.ask(&key, HolderRequest::StepDown).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        // Nobody renews or releases a peer's lease, whatever he has read.
        assert!(matches!(
            store.renew(&seen, seen.ttl).await.unwrap(),
            Renewed::Lost(_)
        ));
        assert_eq!(
            store.release(&seen).await.unwrap(),
            tenure::Released::NotHeld
        );
        // Watched to its end, it is taken over.
        asked.ended = Some(seen.version);
        let lease = granted(&store, &asked).await;
        assert!(lease.token > Token(1_000_000_000_000), "{}", lease.token);
    }
}

#[tokio::test]
async fn a_peer_takes_over_and_back() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("turns");
    let store = store(minio, &prefix);
    let key = key("k");
    let first = granted(&store, &request(&key, "a", 1)).await;
    put(minio, &prefix, &key, peer("web-7", "2999-01-01T00:00:00Z")).await;
    let lost = store.renew(&first, first.ttl).await.unwrap();
    let Renewed::Lost(Loss::Superseded { holder, .. }) = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(holder.as_str(), "web-7");
    assert_eq!(
        store.release(&first).await.unwrap(),
        tenure::Released::NotHeld
    );
    put(minio, &prefix, &key, peer("", "2000-01-01T00:00:00Z")).await;
    let second = granted(&store, &request(&key, "a", 2)).await;
    assert!(
        second.token > first.token,
        "although the peer wrote over the token"
    );
}

#[tokio::test]
async fn the_object_of_a_peer_by_its_own_name() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("named");
    let url = minio.url(&prefix);
    let open = |url: &str| BucketStore::open(ObjectOptions::from_url(url).unwrap()).unwrap();
    let store = open(&format!("{url}&object=leader-lock.json"));
    assert_eq!(
        store.object_of(&key("k")).unwrap(),
        format!("{prefix}/leader-lock.json")
    );
    granted(&store, &request(&key("k"), "a", 1)).await;
    let error = store
        .acquire(&request(&key("other"), "a", 2))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("\"k\""), "{error}");
    assert!(!store.traits().list);
    assert_eq!(
        store.list("", 1).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    // The term of peers, if it is not the usual one.
    let store = open(&format!("{url}&object=other.json&peer-ttl=2m"));
    let path = object_store::path::Path::parse(format!("{prefix}/other.json")).unwrap();
    let body = peer("web-7", "2000-01-01T00:00:00Z");
    object_store::ObjectStoreExt::put(&*crate::support::by_hand(minio), &path, body.into())
        .await
        .unwrap();
    let seen = held(&store, &request(&key("k"), "a", 3)).await;
    assert_eq!(seen.ttl, Duration::from_secs(120));
}
