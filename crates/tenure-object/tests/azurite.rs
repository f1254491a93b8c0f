//! The suite that every store passes, on the emulator of Azure Blob Storage.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tenure::{Key, MemoryStore, Store};
use tenure_conformance::{Harness, async_trait};
use tenure_testbed::{Azurite, unique};

#[path = "object/support.rs"]
#[allow(dead_code, reason = "for the other tests too")]
mod support;

/// One server for all tests, with a prefix for each.
struct OnAzurite {
    url: Option<String>,
    memory: MemoryStore,
}

#[async_trait]
impl Harness for OnAzurite {
    async fn start() -> Self {
        let prefix = unique("conformance");
        Self {
            url: Azurite::shared().map(|azurite| azurite.url(&prefix)),
            memory: MemoryStore::watched(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        match &self.url {
            Some(url) => Arc::new(support::open(url)),
            None => Arc::new(self.memory.clone()),
        }
    }

    async fn delete_record(&self, key: &Key) {
        match &self.url {
            Some(url) => {
                let store = support::open(url);
                let path = Path::parse(store.object_of(key).unwrap()).unwrap();
                store.client().delete(&path).await.unwrap();
            }
            None => self.memory.delete(key),
        }
    }

    /// The clock of an object store shows whole seconds.
    fn token_step(&self) -> Duration {
        Duration::from_millis(1100)
    }
}

tenure_conformance::conformance!(OnAzurite);
