//! What a renewal costs over gRPC, and what it would over the JSON gateway: decision 8.
//!
//! `cargo bench -p tenure-etcd` starts an etcd of its own, on disk, and takes some seconds.
//! What the store costs beside a bare client is what `bench/stores etcd` prints.

#![allow(clippy::unwrap_used, reason = "what must not fail ends the run")]
#![allow(clippy::print_stdout, reason = "figures are for people to read")]

#[path = "../tests/support/bare.rs"]
mod bare;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bare::proto::{RangeRequest, Request, TxnRequest};
use bare::{Bare, op};
use tenure::{
    AcquireRequest, Acquired, Attempt, BootClock, Clock, Holder, Key, Lease, Renewed, Store,
};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testbed::EtcdOptions as Testbed;

const ROUNDS: usize = 400;
const TTL: Duration = Duration::from_secs(60);

fn main() {
    // `cargo test --benches` asks only whether it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let Some(etcd) = Testbed::new().durable().start() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let url = etcd.url();
    let address = etcd.server().address();
    println!("etcd on this machine's disk, one member, {ROUNDS} rounds each, one caller");
    println!("{:<44}{:>12}{:>12}", "", "median", "p99");
    runtime.block_on(async {
        let store = EtcdStore::open(EtcdOptions::from_url(&url).unwrap()).unwrap();
        let bare = Bare::to(address);
        renewals(&store, &bare, address).await;
    });
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{what:<44}{median:>12.1?}{p99:>12.1?}");
}

fn request(name: &str, holder: &str) -> AcquireRequest {
    AcquireRequest {
        key: Key::new(name).unwrap(),
        holder: Holder::new(holder).unwrap(),
        ttl: TTL,
        attempt: Attempt::first(fastrand::Rng::new().u64(..)),
        ended: None,
    }
}

async fn take(store: &EtcdStore, name: &str, holder: &str) -> Lease {
    match store.acquire(&request(name, holder)).await.unwrap() {
        Acquired::Granted(lease) => lease,
        held => panic!("{held:?}"),
    }
}

/// Renewals by the store, by bare gRPC with the same two calls at once, one after the
/// other, and over the JSON gateway.
async fn renewals(store: &EtcdStore, bare: &Bare, address: SocketAddr) {
    let lease = take(store, "bench/renew", "a").await;
    let id = bare
        .get("app_runtime_leases/bench/renew")
        .await
        .unwrap()
        .lease;
    let read = || TxnRequest {
        success: [
            "app_runtime_leases/bench/renew",
            "tenure/app_runtime_leases/bench/renew",
        ]
        .map(|key| {
            op(Request::Range(RangeRequest {
                key: key.into(),
                ..Default::default()
            }))
        })
        .to_vec(),
        ..Default::default()
    };
    let mut gateway = Gateway::to(address);
    let keys = [
        "app_runtime_leases/bench/renew",
        "tenure/app_runtime_leases/bench/renew",
    ]
    .map(base64);
    let ranges = keys
        .map(|key| format!(r#"{{"request_range":{{"key":"{key}"}}}}"#))
        .join(",");
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..ROUNDS + 20 {
        let began = BootClock.now();
        let renewed = store.renew(&lease, TTL).await.unwrap();
        let by_store = BootClock.now() - began;
        assert!(matches!(renewed, Renewed::Renewed(..)));

        let began = BootClock.now();
        let (kept, _) = tokio::join!(bare.keep(id), bare.txn(read()));
        let by_bare = BootClock.now() - began;
        assert!(kept > 0);

        let began = BootClock.now();
        bare.keep(id).await;
        bare.txn(read()).await;
        let in_turn = BootClock.now() - began;

        let began = BootClock.now();
        let kept = gateway.post("/v3/lease/keepalive", &format!(r#"{{"ID":"{id}"}}"#));
        let seen = gateway.post("/v3/kv/txn", &format!(r#"{{"success":[{ranges}]}}"#));
        let by_gateway = BootClock.now() - began;
        assert!(
            kept.contains("TTL") && seen.contains("response_range"),
            "{kept} {seen}"
        );
        if round >= 20 {
            for (times, time) in times
                .iter_mut()
                .zip([by_store, by_bare, in_turn, by_gateway])
            {
                times.push(time);
            }
        }
    }
    let [by_store, by_bare, in_turn, by_gateway] = times;
    show("renew, the store", by_store);
    show("renew, bare gRPC, both calls at once", by_bare);
    show("renew, bare gRPC, one call after the other", in_turn);
    show("renew, JSON gateway, one after the other", by_gateway);
    store.release(&lease).await.unwrap();
}

/// HTTP/1.1 with one connection that is kept: as lean as a JSON client can be.
struct Gateway {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Gateway {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let stream = BufReader::new(stream);
        Self { stream, address }
    }

    fn post(&mut self, path: &str, body: &str) -> String {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream
            .get_mut()
            .write_all([head, body.to_owned()].concat().as_bytes())
            .unwrap();
        let (mut length, mut chunked) = (0, false);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            chunked |= line == "transfer-encoding: chunked";
        }
        if !chunked {
            return self.exactly(length);
        }
        let mut body = String::new();
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            body += &self.exactly(size);
            self.exactly(2);
            if size == 0 {
                return body;
            }
        }
    }

    fn exactly(&mut self, length: usize) -> String {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = text.as_bytes().chunks(3).map(|group| {
        let bits = (0..3).fold(0_u32, |bits, n| {
            bits << 8 | u32::from(*group.get(n).unwrap_or(&0))
        });
        let digits = (0..4).map(|n| match n <= group.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * n)) as usize & 63]),
            false => '=',
        });
        digits.collect::<String>()
    });
    groups.collect()
}
