//! Real servers for tests, started privately on loopback, broken on purpose, gone with
//! the test.
#![doc = include_str!("../README.md")]

#[cfg(not(unix))]
compile_error!("the testbed starts servers as processes of a Unix");

mod azurite;
mod certs;
mod clock;
mod connection;
mod etcd;
mod https;
mod kubernetes;
mod minio;
mod pgbouncer;
mod ports;
mod postgres;
mod processes;
mod program;
mod proxy;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod resp;
mod run;
mod server;
mod wait;
mod wire;

pub use azurite::Azurite;
pub use certs::Certs;
pub use clock::ClockFault;
pub use etcd::{Etcd, EtcdOptions};
pub use kubernetes::{Kubernetes, KubernetesOptions, built_for_kubernetes};
pub use minio::{AccessKey, Minio};
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::{Cut, Direction, Proxy, Traffic};
pub use redis::{Redis, RedisOptions};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use resp::Reply;
pub use server::Server;
pub use wait::wait_until;
pub use wire::Wire;

/// A name that no other test has, of this process or another: for keys, tables, databases.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{}_{number}", std::process::id())
}

/// `user:password@` as it stands in a URL.
fn login(user: &str, password: Option<&str>) -> String {
    let user = percent(user);
    match password {
        Some(password) => format!("{user}:{}@", percent(password)),
        None if user.is_empty() => String::new(),
        None => format!("{user}@"),
    }
}

fn percent(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
}
