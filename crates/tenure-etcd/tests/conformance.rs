//! The suite that every store passes, on a real etcd.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;

use tenure::{Key, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testbed::{Etcd, unique};

/// A prefix of its own on the server that all tests share.
struct Shared {
    etcd: &'static Etcd,
    prefix: String,
}

fn store(url: &str, prefix: &str) -> Arc<dyn Store> {
    let options = EtcdOptions::from_url(url).unwrap().prefix(prefix);
    Arc::new(EtcdStore::open(options).unwrap())
}

async fn delete(etcd: Etcd, prefix: &str, key: &Key) {
    let at = format!("{prefix}{key}");
    support::aside(move || etcd.ctl(&["del", "--", &at])).await;
}

#[async_trait]
impl Harness for Shared {
    async fn start() -> Self {
        let etcd = support::aside(Etcd::shared).await;
        Self {
            etcd: etcd.expect(
                "etcd is needed for this suite: install it (Debian: etcd-server, etcd-client)",
            ),
            prefix: unique("leases/"),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        store(&self.etcd.url(), &self.prefix)
    }

    async fn delete_record(&self, key: &Key) {
        delete(self.etcd.clone(), &self.prefix, key).await;
    }
}

tenure_conformance::conformance!(Shared);

/// A server of its own, which can be restarted.
struct Own(Etcd);

#[async_trait]
impl Harness for Own {
    async fn start() -> Self {
        let etcd = support::aside(Etcd::start).await;
        Self(etcd.expect("etcd is needed for this suite"))
    }

    async fn store(&self) -> Arc<dyn Store> {
        store(&self.0.url(), "leases/")
    }

    async fn delete_record(&self, key: &Key) {
        delete(self.0.clone(), "leases/", key).await;
    }

    async fn restart(&self) -> Restart {
        let etcd = self.0.clone();
        support::aside(move || etcd.server().restart()).await;
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
