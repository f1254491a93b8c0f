//! The suite that every store passes: on one server, by Sentinel, on a Cluster, and on
//! connections that the caller brings.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::sync::{Arc, OnceLock};

use redis::cluster::ClusterClientBuilder;
use tenure::{Key, MemoryStore, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_redis::{RedisOptions, RedisStore};
use tenure_testbed::{Redis, RedisCluster, RedisSentinel, unique};

/// Where there is no Redis the testbed says so, and fails if it must not be missing.
/// Then there is nothing to test, and the suite runs on what is always there.
fn nothing_to_test(memory: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(memory.clone())
}

fn open(url: &str, prefix: &str) -> RedisStore {
    let options = RedisOptions::from_url(url).unwrap().prefix(prefix);
    RedisStore::open(options).unwrap()
}

/// A server of one's own, and connections that the store makes.
struct Own {
    redis: Option<Redis>,
    memory: MemoryStore,
}

#[async_trait]
impl Harness for Own {
    async fn start() -> Self {
        Self {
            redis: Redis::start(),
            memory: MemoryStore::new(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        match &self.redis {
            Some(redis) => Arc::new(open(&redis.url(), "app_runtime_leases:")),
            None => nothing_to_test(&self.memory),
        }
    }

    async fn delete_record(&self, key: &Key) {
        match &self.redis {
            Some(redis) => {
                redis.command(&["DEL", &format!("app_runtime_leases:{key}")]);
            }
            None => self.memory.delete(key),
        }
    }

    async fn restart(&self) -> Restart {
        match &self.redis {
            Some(redis) => {
                redis.restart();
                Restart::Done
            }
            None => Restart::Cannot,
        }
    }
}

/// One server for all tests, yours if TENURE_TEST_REDIS_URL names it, with a prefix for
/// each, and connections that the caller brings.
struct Given {
    url: Option<String>,
    prefix: String,
    memory: MemoryStore,
}

impl Given {
    fn client(&self) -> redis::Client {
        redis::Client::open(self.url.clone().unwrap()).unwrap()
    }
}

#[async_trait]
impl Harness for Given {
    async fn start() -> Self {
        Self {
            url: Redis::shared_url(),
            prefix: unique("leases") + ":",
            memory: MemoryStore::new(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        if self.url.is_none() {
            return nothing_to_test(&self.memory);
        }
        let client = self.client();
        let manager = client.get_connection_manager().await.unwrap();
        let store = RedisStore::with_connection(manager);
        let store = store.pushed_by(client).unwrap();
        Arc::new(store.prefixed(self.prefix.clone()).unwrap())
    }

    async fn delete_record(&self, key: &Key) {
        if self.url.is_none() {
            return self.memory.delete(key);
        }
        let client = self.client();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let record = format!("{}{key}", self.prefix);
        let mut delete = redis::cmd("DEL");
        let delete = delete.arg(record);
        delete.exec_async(&mut connection).await.unwrap();
    }
}

/// One cluster for all tests, with a prefix for each.
struct Cluster<const GIVEN: bool> {
    cluster: Option<&'static RedisCluster>,
    prefix: String,
    memory: MemoryStore,
}

#[async_trait]
impl<const GIVEN: bool> Harness for Cluster<GIVEN> {
    async fn start() -> Self {
        static CLUSTER: OnceLock<Option<RedisCluster>> = OnceLock::new();
        Self {
            cluster: CLUSTER.get_or_init(RedisCluster::start).as_ref(),
            prefix: unique("leases") + ":",
            memory: MemoryStore::new(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        let Some(cluster) = self.cluster else {
            return nothing_to_test(&self.memory);
        };
        if !GIVEN {
            return Arc::new(open(&cluster.url(), &self.prefix));
        }
        let nodes = cluster.nodes().iter().map(Redis::url);
        let client = ClusterClientBuilder::new(nodes).retries(0).build().unwrap();
        let connection = client.get_async_connection().await.unwrap();
        let store = RedisStore::with_cluster_connection(connection);
        Arc::new(store.prefixed(self.prefix.clone()).unwrap())
    }

    async fn delete_record(&self, key: &Key) {
        let record = format!("{}{key}", self.prefix);
        match self.cluster {
            Some(cluster) => {
                cluster.node_of(&record).command(&["DEL", &record]);
            }
            None => self.memory.delete(key),
        }
    }
}

/// One primary with its replica and Sentinels for all tests, with a prefix for each.
struct Sentinel {
    sentinel: Option<&'static RedisSentinel>,
    prefix: String,
    memory: MemoryStore,
}

#[async_trait]
impl Harness for Sentinel {
    async fn start() -> Self {
        static SENTINEL: OnceLock<Option<RedisSentinel>> = OnceLock::new();
        Self {
            sentinel: SENTINEL.get_or_init(RedisSentinel::start).as_ref(),
            prefix: unique("leases") + ":",
            memory: MemoryStore::new(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        match self.sentinel {
            Some(sentinel) => Arc::new(open(&sentinel.url(), &self.prefix)),
            None => nothing_to_test(&self.memory),
        }
    }

    async fn delete_record(&self, key: &Key) {
        let record = format!("{}{key}", self.prefix);
        match self.sentinel {
            Some(sentinel) => {
                sentinel.primary().command(&["DEL", &record]);
            }
            None => self.memory.delete(key),
        }
    }
}

mod own {
    tenure_conformance::conformance!(super::Own);
}

mod given {
    tenure_conformance::conformance!(super::Given);
}

mod cluster {
    tenure_conformance::conformance!(super::Cluster<false>);
}

mod given_cluster {
    tenure_conformance::conformance!(super::Cluster<true>);
}

mod sentinel {
    tenure_conformance::conformance!(super::Sentinel);
}
