//! The suite that every store passes: on MinIO, and on a client that the caller brings.
//! `azurite.rs` has it on the emulator of Azure.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tenure::{Key, MemoryStore, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_object::{BucketStore, ObjectOptions};
use tenure_testbed::{Minio, unique};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard};

#[path = "object/support.rs"]
#[allow(dead_code, reason = "for the other tests too")]
mod support;

/// Who restarts the server waits until nobody else uses it.
static IN_USE: RwLock<()> = RwLock::const_new(());

/// One server for all tests, with a prefix for each.
struct OnMinio {
    minio: Option<&'static Minio>,
    prefix: String,
    memory: MemoryStore,
    using: Mutex<Option<RwLockReadGuard<'static, ()>>>,
}

#[async_trait]
impl Harness for OnMinio {
    async fn start() -> Self {
        Self {
            minio: Minio::shared(),
            prefix: unique("conformance"),
            memory: MemoryStore::watched(),
            using: Mutex::new(Some(IN_USE.read().await)),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        match self.minio {
            Some(minio) => {
                let options = ObjectOptions::from_url(&minio.url(&self.prefix)).unwrap();
                Arc::new(BucketStore::open(options).unwrap())
            }
            None => Arc::new(self.memory.clone()),
        }
    }

    async fn delete_record(&self, key: &Key) {
        match self.minio {
            Some(minio) => support::delete(minio, &self.prefix, key).await,
            None => self.memory.delete(key),
        }
    }

    async fn restart(&self) -> Restart {
        let Some(minio) = self.minio else {
            return Restart::Cannot;
        };
        let mut using = self.using.lock().await;
        *using = None;
        let alone = IN_USE.write().await;
        tokio::task::spawn_blocking(|| minio.restart())
            .await
            .unwrap();
        drop(alone);
        *using = Some(IN_USE.read().await);
        Restart::Done
    }

    /// The clock of an object store shows whole seconds.
    fn token_step(&self) -> Duration {
        Duration::from_millis(1100)
    }
}

/// A client that the caller brings, whose clock nobody sees.
struct Given(Arc<InMemory>);

#[async_trait]
impl Harness for Given {
    async fn start() -> Self {
        Self(Arc::new(InMemory::new()))
    }

    async fn store(&self) -> Arc<dyn Store> {
        let client: Arc<dyn ObjectStore> = self.0.clone();
        Arc::new(BucketStore::with_client(client, "leases").unwrap())
    }

    async fn delete_record(&self, key: &Key) {
        let name = support::object("leases/", key);
        self.0.delete(&Path::parse(name).unwrap()).await.unwrap();
    }
}

mod minio {
    use super::*;
    tenure_conformance::conformance!(OnMinio);
}

mod given {
    use super::*;
    tenure_conformance::conformance!(Given);
}
