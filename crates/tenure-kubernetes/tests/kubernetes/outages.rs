//! The API server restarts, hangs, turns us away with 429, or is not there.

use std::time::Duration;

use serde_json::json;
use tenure::{Elector, EndReason, ErrorKind, Event, Renewed, Settings, Store, Timing};
use tenure_kubernetes::KubernetesStore;
use tenure_testbed::{Kubernetes, KubernetesOptions as Server};
use tokio::time::timeout;

use crate::support::{LONG, Place, aside, request, take};

fn settings(key: &str, ttl: u64) -> Settings {
    let timing = Timing::with_ttl(Duration::from_secs(ttl));
    Settings::new(key).unwrap().timing(timing)
}

/// A restart that is over within the term costs no leadership.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_survives_a_restart_of_the_api_server() {
    let Some(kubernetes) = aside(Kubernetes::start).await else {
        return;
    };
    let place = Place::on(kubernetes).await;
    let elector = Elector::start(place.store(), settings("restart", 120)).unwrap();
    let mut events = elector.events();
    let tenure = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    let server = place.kubernetes.server().clone();
    aside(move || server.restart()).await;
    // The same client finds the server again, and the watch is begun anew.
    let store = place.store();
    let asked = store
        .ask(tenure.key(), tenure::HolderRequest::StepDown)
        .await;
    asked.unwrap();
    let reason = timeout(Duration::from_secs(200), tenure.ended())
        .await
        .unwrap();
    assert_eq!(reason, EndReason::AskedToStepDown);
    let mut renewed = false;
    while let Ok(Some(event)) = timeout(Duration::from_millis(10), events.next()).await {
        renewed |= matches!(event, Event::Renewed { .. });
    }
    assert!(renewed, "the request came with a renewal");
    elector.stop().await;
}

/// No answer makes no leader, and ends one by its deadline; after it the next one leads with
/// a greater token.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_ends_the_tenure_by_its_deadline_and_the_elector_comes_back() {
    let Some(kubernetes) = aside(Kubernetes::start).await else {
        return;
    };
    let place = Place::on(kubernetes).await;
    let elector = Elector::start(place.store(), settings("outage", 3)).unwrap();
    let tenure = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    let server = place.kubernetes.server().clone();
    server.pause();
    assert_eq!(
        timeout(LONG, tenure.ended()).await.unwrap(),
        EndReason::Expired
    );
    assert!(!elector.is_leader());
    server.resume();
    let next = timeout(LONG, elector.elected()).await.unwrap().unwrap();
    assert!(next.token() > tenure.token());
    elector.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_was_sent_nothing() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let nobody = "127.0.0.1:1".parse().unwrap();
    let store = KubernetesStore::open(place.options_at(nobody, "x")).unwrap();
    let error = store.acquire(&request("a", "me", 10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_worked(), "{error}");
}

/// A hung server: the call ends by itself, and a renewal may have worked.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_hung_server_has_an_end() {
    let Some(kubernetes) = aside(Kubernetes::start).await else {
        return;
    };
    let place = Place::on(kubernetes).await;
    let options = place.options().request_timeout(Duration::from_millis(500));
    let store = KubernetesStore::open(options).unwrap();
    let lease = take(&place.store(), "hung", "me").await;
    // From its own cache, so that the write is the first request.
    let renewed = place.store().renew(&lease, Duration::from_secs(600)).await;
    let Ok(Renewed::Renewed(lease, _)) = renewed else {
        panic!("{renewed:?}");
    };
    store.read(&lease.key).await.unwrap();
    let server = place.kubernetes.server().clone();
    server.pause();
    let read = store.read(&lease.key).await.unwrap_err();
    assert!(!read.may_have_worked(), "a read does nothing: {read}");
    assert!(read.to_string().contains("within 500ms"), "{read}");
    server.resume();
    let renewed = store.renew(&lease, Duration::from_secs(600)).await;
    assert!(matches!(renewed, Ok(Renewed::Renewed(..))), "{renewed:?}");
}

/// A real 429 with Retry-After: the server's own fairness gives this user no seat.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_is_said_at_once_with_the_wait_and_nothing_was_done() {
    let server = Server::new().user("busy");
    let Some(kubernetes) = aside(move || server.start()).await else {
        return;
    };
    let place = Place::on(kubernetes).await;
    let (kubernetes, namespace) = (place.kubernetes.clone(), place.namespace.clone());
    aside(move || {
        let verbs: &[&str] = &["get", "create", "update", "watch"];
        kubernetes.grant(
            "busy",
            &namespace,
            &[("coordination.k8s.io", "leases", verbs)],
        );
    })
    .await;
    let options = place.options_at(place.address(), "busy-token");
    let store = KubernetesStore::open(options).unwrap();
    let lease = take(&store, "busy", "me").await;
    let api = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = json!({
        "metadata": { "name": "no-seat" },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": { "type": "Reject" },
        } },
    });
    let path = format!("{api}/prioritylevelconfigurations");
    place.must("POST", path, Some(level)).await;
    let schema = json!({
        "metadata": { "name": "no-seat" },
        "spec": {
            "priorityLevelConfiguration": { "name": "no-seat" },
            "matchingPrecedence": 2,
            "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": "busy" } }],
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"] }],
            }],
        },
    });
    place
        .must("POST", format!("{api}/flowschemas"), Some(schema))
        .await;
    // One request at a time is let in even so: it takes many to be turned away.
    let refused = async {
        loop {
            let many = (0..48).map(|_| store.read(&lease.key));
            let answers = futures_util::future::join_all(many).await;
            if let Some(error) = answers.into_iter().find_map(Result::err) {
                break error;
            }
        }
    };
    let error = timeout(LONG, refused)
        .await
        .expect("with 48 at once some are turned away, and nobody asks again behind our back");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_worked(), "{error}");
    assert!(error.to_string().contains("asks to wait for"), "{error}");
}
