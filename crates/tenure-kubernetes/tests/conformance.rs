//! The suite that every store passes, on a real kube-apiserver over a real etcd.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;

use tenure::{Key, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_testbed::Kubernetes;

use support::{Place, aside};

const NEEDED: &str = "a kube-apiserver and etcd are needed for this suite: run crates/tenure-testbed/build-kubernetes, and install etcd-server";

/// A namespace of its own on the server that all tests share.
struct Shared(Place);

/// Finds the record by what stands in it, not by the mapping that is under test.
async fn delete(place: &Place, key: &Key) {
    let list = place.must("GET", place.path(""), None).await;
    for item in list["items"].as_array().unwrap() {
        let note = item["metadata"]["annotations"]["tenure/note"].as_str();
        let note: serde_json::Value = serde_json::from_str(note.unwrap_or("{}")).unwrap();
        if note["key"] == key.as_str() {
            place
                .delete(item["metadata"]["name"].as_str().unwrap())
                .await;
        }
    }
}

#[async_trait]
impl Harness for Shared {
    async fn start() -> Self {
        Self(Place::shared().await.expect(NEEDED))
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.store())
    }

    async fn delete_record(&self, key: &Key) {
        delete(&self.0, key).await;
    }
}

tenure_conformance::conformance!(Shared);

/// A server of its own, which can be restarted.
struct Own(Place);

#[async_trait]
impl Harness for Own {
    async fn start() -> Self {
        let own = aside(Kubernetes::start).await;
        Self(Place::on(own.expect(NEEDED)).await)
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.store())
    }

    async fn delete_record(&self, key: &Key) {
        delete(&self.0, key).await;
    }

    async fn restart(&self) -> Restart {
        let kubernetes = self.0.kubernetes.clone();
        aside(move || {
            kubernetes.server().stop();
            kubernetes.etcd().server().restart();
            kubernetes.server().start_again();
        })
        .await;
        Restart::Done
    }
}

mod with_restart {
    #[test]
    fn token_grows_over_restart() {
        tenure_conformance::run::<super::Own>("token_grows_over_restart");
    }

    #[test]
    fn live_lease_survives_restart() {
        tenure_conformance::run::<super::Own>("live_lease_survives_restart");
    }
}
