//! Credentials that run out: a service account's token whose time is over, and a new one in
//! the same file.

use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tenure::{BootClock, Clock, ErrorKind, Renewed, Store};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore};

use crate::support::{LONG, Place, aside, take};

/// Signs a token of a service account as the API server does, with whatever end. The server
/// itself gives none for less than ten minutes.
fn token(place: &Place, account: &Value, lasts: Duration) -> String {
    let pem = std::fs::read_to_string(place.kubernetes.certs().server_key()).unwrap();
    let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(der).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).unwrap();
    let now = BootClock.wall().duration_since(SystemTime::UNIX_EPOCH);
    // The server allows a minute for clocks that differ.
    let begin = now.unwrap() - Duration::from_secs(60);
    let name = account["metadata"]["name"].as_str().unwrap();
    let namespace = &place.namespace;
    let claims = json!({
        "iss": "https://tenure.test",
        "aud": ["https://tenure.test"],
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "iat": begin.as_secs(),
        "nbf": begin.as_secs(),
        "exp": (begin + lasts).as_secs(),
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": { "name": name, "uid": account["metadata"]["uid"] },
        },
    });
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = encode(json!({ "alg": "ES256", "typ": "JWT" }));
    let text = format!("{head}.{}", encode(claims));
    let signed = key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref()))
}

#[tokio::test]
async fn an_expired_token_is_said_and_a_new_one_is_taken_from_its_file() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let namespace = place.namespace.clone();
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let body = json!({ "metadata": { "name": "app" } });
    let account = place.must("POST", path, Some(body)).await;
    let user = format!("system:serviceaccount:{namespace}:app");
    let kubernetes = place.kubernetes.clone();
    aside(move || {
        let verbs: &[&str] = &["get", "create", "update", "watch"];
        kubernetes.grant(
            &user,
            &namespace,
            &[("coordination.k8s.io", "leases", verbs)],
        );
    })
    .await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token(&place, &account, Duration::from_secs(3))).unwrap();
    let kubeconfig = place
        .kubernetes
        .kubeconfig_by_file(place.address(), &file, &place.namespace);
    let store = KubernetesStore::open(KubernetesOptions::new().kubeconfig(kubeconfig)).unwrap();
    let lease = take(&store, "expiring", "me").await;
    // The server remembers a token for ten seconds: its end is seen a little later.
    let limit = BootClock.now() + LONG;
    let error = loop {
        match store.renew(&lease, Duration::from_secs(600)).await {
            Err(error) => break error,
            Ok(_) => assert!(BootClock.now() < limit, "the token never expires"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(!error.may_have_worked(), "it was refused at the door");
    assert!(error.to_string().contains("may have expired"), "{error}");

    // The kubelet writes a new one into the file, and the next call has it.
    std::fs::write(&file, token(&place, &account, Duration::from_secs(600))).unwrap();
    let renewed = store.renew(&lease, Duration::from_secs(600)).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
}
