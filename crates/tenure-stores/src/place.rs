//! What a URL names: a store that can be prepared, opened, described and set up.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tenure::{MemoryStore, Result, Store};

use crate::open::{OpenOptions, Prepared};

/// A store URL, taken apart and checked. Nothing is opened yet.
#[async_trait]
pub(crate) trait Place: fmt::Debug + Send + Sync {
    /// What has to be done before children are started that are to count as the holder.
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared::default())
    }

    /// Opens the store.
    async fn open(self: Box<Self>, options: OpenOptions) -> Result<Arc<dyn Store>>;

    /// What has to be created before the store can be used, and with which rights.
    fn schema(&self) -> String {
        "-- Nothing has to be created: the store makes what it needs.\n".into()
    }

    /// Creates it, and says what was done.
    async fn init(self: Box<Self>) -> Result<String> {
        Ok("nothing has to be created for this store".into())
    }
}

/// `memory:`
#[derive(Debug)]
pub(crate) struct Memory;

impl Memory {
    pub(crate) fn parse(_scheme: &str, rest: &str) -> Result<Box<dyn Place>> {
        if !rest.trim_matches('/').is_empty() {
            return Err(tenure::Error::invalid(
                "a memory: store takes nothing after the colon, but there is something: write memory:",
            ));
        }
        Ok(Box::new(Self))
    }
}

#[async_trait]
impl Place for Memory {
    async fn open(self: Box<Self>, _options: OpenOptions) -> Result<Arc<dyn Store>> {
        // Nobody outlives the process here, so liveness is of no use.
        Ok(Arc::new(MemoryStore::new()))
    }
}

/// A store that is a server: its options know the rest, and opening it asks nobody.
macro_rules! server {
    ($feature:literal, $options:ty, $store:ty) => {
        #[cfg(feature = $feature)]
        #[async_trait]
        impl Place for $options {
            async fn open(self: Box<Self>, _options: OpenOptions) -> Result<Arc<dyn Store>> {
                Ok(Arc::new(<$store>::open(*self)?))
            }

            fn schema(&self) -> String {
                <$options>::schema(self)
            }

            async fn init(self: Box<Self>) -> Result<String> {
                let store = <$store>::open(*self)?;
                store.init().await
            }
        }
    };
}

server!(
    "postgres",
    tenure_postgres::PostgresOptions,
    tenure_postgres::PostgresStore
);
server!(
    "redis",
    tenure_redis::RedisOptions,
    tenure_redis::RedisStore
);
server!("etcd", tenure_etcd::EtcdOptions, tenure_etcd::EtcdStore);
server!(
    "sqlserver",
    tenure_sqlserver::SqlServerOptions,
    tenure_sqlserver::SqlServerStore
);
server!(
    "kubernetes",
    tenure_kubernetes::KubernetesOptions,
    tenure_kubernetes::KubernetesStore
);
server!(
    "object",
    tenure_object::ObjectOptions,
    tenure_object::BucketStore
);
