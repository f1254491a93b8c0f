//! Redis Sentinel: a primary, a replica, and three sentinels that move from one to the other.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::ports::Port;
use crate::redis::{KIND, Redis, RedisOptions, by_hand};
use crate::resp::Reply;
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wait::{SERVER_LIMIT, wait_until};
use crate::wire::Wire;

const SENTINELS: usize = 3;

/// A private set of a Redis primary, one replica and three sentinels. A primary that does
/// not answer for two seconds is replaced.
#[derive(Clone, Debug)]
pub struct RedisSentinel {
    nodes: Vec<Redis>,
    sentinels: Vec<Server>,
}

impl RedisSentinel {
    /// What the sentinels call the primary.
    pub const NAME: &str = "mymaster";

    /// Starts it and waits until the sentinels know the replica and one another. `None`
    /// if this machine has no Redis, which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of a log.
    pub fn start() -> Option<Self> {
        let [program] = KIND.need(&["redis-server"])?.try_into().ok()?;
        let node = |options: &RedisOptions| {
            begin_on_free_port(|| options.begin(&program, vec![Port::claim()]))
        };
        let primary = node(&RedisOptions::new());
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = node(&RedisOptions::new().setting("replicaof", &of));
        wait_until("the replica to follow", SERVER_LIMIT, || {
            let info = replica.command(&["INFO", "replication"]).text()?;
            info.contains("master_link_status:up").then_some(())
        });
        let sentinel = |_| begin_on_free_port(|| begin_sentinel(&program, &primary));
        let set = Self {
            sentinels: (0..SENTINELS).map(sentinel).collect(),
            nodes: vec![primary, replica],
        };
        wait_until("the sentinels to know all", SERVER_LIMIT, || {
            let all = set.sentinels.iter().all(knows_all);
            all.then_some(())
        });
        Some(set)
    }

    /// Both data nodes, whoever leads.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The sentinels, to be paused, killed and started again.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The addresses of the sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(Server::address).collect()
    }

    /// The URL with all sentinels: `redis+sentinel://…/mymaster`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::NAME)
    }

    /// The node that most sentinels name as the primary and that is one.
    ///
    /// # Panics
    /// If there is none for long.
    pub fn primary(&self) -> &Redis {
        wait_until("a primary", SERVER_LIMIT, || {
            self.nodes.iter().find(|node| self.is_primary(node))
        })
    }

    /// The node that is not the primary.
    ///
    /// # Panics
    /// If there is no primary for long.
    pub fn replica(&self) -> &Redis {
        let primary = self.primary().port();
        let other = usize::from(self.nodes[0].port() == primary);
        &self.nodes[other]
    }

    /// Waits until another node than `old` is the primary.
    ///
    /// # Panics
    /// If that takes long.
    pub fn failed_over_from(&self, old: &Redis) -> &Redis {
        wait_until("a failover", SERVER_LIMIT, || {
            let mut others = self.nodes.iter().filter(|node| node.port() != old.port());
            others.find(|node| self.is_primary(node))
        })
    }

    fn is_primary(&self, node: &Redis) -> bool {
        let port = Reply::Text(node.port().to_string());
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        let named = self.sentinels.iter().filter(|sentinel| {
            let reply = by_hand(sentinel.folder(), None, &words);
            matches!(reply, Ok(Reply::List(parts)) if parts.get(1) == Some(&port))
        });
        if named.count() * 2 <= SENTINELS {
            return false;
        }
        let role = by_hand(node.folder(), None, &["ROLE"]);
        matches!(role, Ok(Reply::List(parts)) if parts.first() == Some(&Reply::Text("master".to_owned())))
    }
}

fn begin_sentinel(program: &Path, primary: &Redis) -> Result<Server, Failure> {
    let port = Port::claim();
    let folder = run::folder("sentinel", Place::Disk);
    let config = folder.join("sentinel.conf");
    let name = RedisSentinel::NAME;
    let text = format!(
        "port {}\n\
         bind 127.0.0.1\n\
         dir {}\n\
         unixsocket {}\n\
         sentinel monitor {name} 127.0.0.1 {} 2\n\
         sentinel down-after-milliseconds {name} 2000\n\
         sentinel failover-timeout {name} 3000\n",
        port.number(),
        folder.display(),
        folder.join("socket").display(),
        primary.port(),
    );
    fs::write(&config, text).unwrap_or_else(|e| panic!("{}: {e}", config.display()));
    let socket = folder.clone();
    Server::begin(Spec {
        name: "redis-server --sentinel",
        program: program.to_path_buf(),
        args: vec![OsString::from(config), OsString::from("--sentinel")],
        user: None,
        clock: None,
        folder,
        ports: vec![port],
        stop_signal: Signal::SIGTERM,
        wire: Wire::Redis,
        ready: Box::new(move || {
            let reply = by_hand(&socket, None, &["PING"]);
            reply.is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
        }),
    })
}

/// Whether a sentinel has found the replica and the other sentinels.
fn knows_all(sentinel: &Server) -> bool {
    let words = ["SENTINEL", "MASTER", RedisSentinel::NAME];
    let Ok(Reply::List(parts)) = by_hand(sentinel.folder(), None, &words) else {
        return false;
    };
    let value = |name: &str| {
        let mut pairs = parts.chunks_exact(2);
        pairs.find_map(|pair| (pair[0].text()? == name).then(|| pair[1].text())?)
    };
    value("num-slaves").as_deref() == Some("1")
        && value("num-other-sentinels").as_deref() == Some("2")
        && value("flags").as_deref() == Some("master")
}
