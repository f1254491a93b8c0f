//! A Redis Cluster of three nodes, each with a third of the slots.

use std::net::SocketAddr;

use crate::ports::Port;
use crate::redis::{KIND, Redis, RedisOptions};
use crate::resp::Reply;
use crate::server::begin_on_free_port;
use crate::wait::{SERVER_LIMIT, wait_until};

const NODES: u32 = 3;
const SLOTS: u32 = 16_384;

/// A private Redis Cluster of three nodes.
#[derive(Clone, Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts it and waits until all nodes agree who has which slots. `None` if this
    /// machine has no Redis, which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of a log.
    pub fn start() -> Option<Self> {
        Self::start_with(RedisOptions::new())
    }

    /// The same with nodes of your own making: a password, a setting.
    ///
    /// # Panics
    /// If it does not start, with the end of a log.
    pub fn start_with(options: RedisOptions) -> Option<Self> {
        let [program] = KIND.need(&["redis-server"])?.try_into().ok()?;
        let node = |_| {
            begin_on_free_port(|| {
                let bus = Port::claim();
                let options = options
                    .clone()
                    .setting("cluster-enabled", "yes")
                    .setting("cluster-port", &bus.number().to_string())
                    .setting("cluster-node-timeout", "2000");
                options.begin(&program, vec![Port::claim(), bus])
            })
        };
        let cluster = Self {
            nodes: (0..NODES).map(node).collect(),
        };
        cluster.join();
        Some(cluster)
    }

    /// The nodes, to be paused, killed and started again.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The addresses of all nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address()).collect()
    }

    /// The URL with all nodes: `redis+cluster://…`.
    pub fn url(&self) -> String {
        crate::redis::url_of_many("redis+cluster", &self.nodes[0], &self.addresses())
    }

    /// The node that has this key.
    ///
    /// # Panics
    /// If no node says so.
    pub fn node_of(&self, key: &str) -> &Redis {
        let mut nodes = self.nodes.iter();
        let has = |node: &&Redis| !matches!(node.command(&["TYPE", key]), Reply::Error(_));
        nodes
            .find(has)
            .unwrap_or_else(|| panic!("no node has {key}"))
    }

    fn join(&self) {
        let first = &self.nodes[0];
        for (number, node) in (0..NODES).zip(&self.nodes) {
            let from = (SLOTS * number / NODES).to_string();
            let to = (SLOTS * (number + 1) / NODES - 1).to_string();
            ok(
                node,
                &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()],
            );
            ok(node, &["CLUSTER", "ADDSLOTSRANGE", &from, &to]);
            if number > 0 {
                let port = node.port().to_string();
                let bus = node.extra_port(1).to_string();
                ok(first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        self.wait_until_whole();
    }

    /// Waits until every node sees all others and all slots served.
    ///
    /// # Panics
    /// If that takes long.
    pub fn wait_until_whole(&self) {
        wait_until("the Redis Cluster to be whole", SERVER_LIMIT, || {
            let whole = self.nodes.iter().all(|node| {
                let info = node
                    .command(&["CLUSTER", "INFO"])
                    .text()
                    .unwrap_or_default();
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
            whole.then_some(())
        });
    }
}

fn ok(node: &Redis, words: &[&str]) {
    let reply = node.command(words);
    assert_eq!(reply, Reply::Text("OK".to_owned()), "{words:?}");
}
