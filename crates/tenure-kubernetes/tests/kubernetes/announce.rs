//! What the cluster is told of who leads: the pod's label and the Events.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::Store;
use tenure_kubernetes::KubernetesStore;

use crate::support::{LONG, Place, held, take};

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect(what);
}

async fn label(place: &Place) -> Value {
    let path = format!("/api/v1/namespaces/{}/pods/p-0", place.namespace);
    place.must("GET", path, None).await["metadata"]["labels"]["role"].clone()
}

async fn messages(place: &Place) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{}/events", place.namespace);
    let list = place.must("GET", path, None).await;
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn the_pod_of_the_leader_has_the_label_and_changes_are_events() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let pod = json!({
        "metadata": { "name": "p-0", "labels": { "app": "x", "role": "leader" } },
        "spec": { "containers": [{ "name": "c", "image": "none" }] },
    });
    let path = format!("/api/v1/namespaces/{}/pods", place.namespace);
    place.must("POST", path, Some(pod)).await;
    let options = place.options().pod_label("role", "leader").unwrap();
    let store = KubernetesStore::open(options.pod("p-0").events(true)).unwrap();

    // What a crash left behind goes with the first answer.
    let other = take(&place.store(), "told", "other").await;
    held(&store, "told").await;
    until("no label while another leads", async || {
        label(&place).await.is_null()
    })
    .await;
    place.store().release(&other).await.unwrap();

    let lease = take(&store, "told", "me").await;
    until("the label of the leader", async || {
        label(&place).await == "leader"
    })
    .await;
    store.release(&lease).await.unwrap();
    until("no label after the release", async || {
        label(&place).await.is_null()
    })
    .await;
    let (began, ended) = (
        format!("me became leader, with token {}", lease.token),
        format!("me stopped leading, with token {}", lease.token),
    );
    until("two Events", async || {
        let messages = messages(&place).await;
        messages.contains(&began) && messages.contains(&ended)
    })
    .await;
}

/// A right that is missing costs no lease.
#[tokio::test]
async fn a_pod_that_is_not_there_costs_no_lease() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let options = place.options().pod_label("role", "leader").unwrap();
    let store = KubernetesStore::open(options.pod("not-there")).unwrap();
    let lease = take(&store, "no-pod", "me").await;
    store.renew(&lease, Duration::from_secs(5)).await.unwrap();
    store.release(&lease).await.unwrap();
}

#[test]
fn a_label_without_a_pod_is_refused() {
    let options = tenure_kubernetes::KubernetesOptions::new();
    let options = options.pod_label("role", "leader").unwrap();
    let error = KubernetesStore::open(options).unwrap_err();
    assert!(error.to_string().contains("POD_NAME"), "{error}");
}
