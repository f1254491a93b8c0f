//! Figures: client-go and ours side by side on one real API server, at client-go's default
//! timings (LeaseDuration 15 s, RenewDeadline 10 s, RetryPeriod 2 s; ours with a ttl of 15 s).
//!
//! `crates/tenure-testbed/build-kubernetes && cargo bench -p tenure-kubernetes`
//! takes about four minutes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it prints, and a failure ends it"
)]

#[path = "../tests/kubernetes/go.rs"]
mod go;
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use go::{Go, Timings};
use http::Request;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::Signal;
use support::Place;
use tenure::{BootClock, Clock, Elector, Event, Holder, Moment, Settings, Timing};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore, kube};
use tower::service_fn;

/// client-go's defaults, as controller-runtime and the components of Kubernetes have them.
const DEFAULTS: Timings = Timings(15_000, 10_000, 2_000);
const TTL: Duration = Duration::from_secs(15);
const HANDOVERS: usize = 15;
const CRASHES: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    // `cargo test --benches` asks only whether it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let Some(place) = Place::shared().await else {
            return;
        };
        let Some(go) = graceful_by_client_go(&place).await else {
            return;
        };
        let ours = graceful_by_us(&place).await;
        print("graceful handover", "client-go", go);
        print("graceful handover", "tenure", ours);
        requests(&place).await;
        let (go, ours) = tokio::join!(crash_of_client_go(&place), crash_of_ours(&place));
        print("crash failover", "client-go", go);
        print("crash failover", "tenure", ours);
    });
}

fn print(what: &str, who: &str, mut times: Vec<Duration>) {
    times.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what:20} {who:10} median {:9.1} ms   least {:9.1}   most {:9.1}   of {}",
        millis(times[times.len() / 2]),
        millis(times[0]),
        millis(times[times.len() - 1]),
        times.len()
    );
}

fn now() -> Moment {
    BootClock.now()
}

/// From SIGTERM of the leader to OnStartedLeading of the other.
async fn graceful_by_client_go(place: &Place) -> Option<Vec<Duration>> {
    let mut times = Vec::new();
    let mut leader = Go::on(place, "by-go", "go-0", DEFAULTS)?;
    leader.says("leading").await;
    for round in 1..=HANDOVERS {
        let mut next = Go::on(place, "by-go", &format!("go-{round}"), DEFAULTS)?;
        next.says(&format!("sees go-{}", round - 1)).await;
        // At any point of its interval, not always at its beginning.
        let part = u32::try_from(round * 7 % HANDOVERS).unwrap();
        tokio::time::sleep(Duration::from_secs(2) * part / u32::try_from(HANDOVERS).unwrap()).await;
        let sent = now();
        leader.signal(Signal::SIGTERM);
        next.says("leading").await;
        times.push(now() - sent);
        leader = next;
    }
    Some(times)
}

fn settings(key: &str, holder: &str) -> Settings {
    Settings::new(key)
        .unwrap()
        .holder(Holder::new(holder).unwrap())
        .timing(Timing::with_ttl(TTL))
}

/// A candidate that follows somebody.
async fn follower(store: KubernetesStore, key: &str, holder: &str) -> Elector {
    let elector = Elector::start(store, settings(key, holder)).unwrap();
    let mut events = elector.events();
    while !matches!(events.next().await, Some(Event::Following(_))) {}
    elector
}

/// From the order to stop to the tenure of the other.
async fn graceful_by_us(place: &Place) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut leader = Elector::start(place.store(), settings("by-us", "us-0")).unwrap();
    leader.elected().await.unwrap();
    for round in 1..=HANDOVERS {
        let next = follower(place.store(), "by-us", &format!("us-{round}")).await;
        // The watch begins with the first look.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sent = now();
        let (_, elected) = tokio::join!(leader.stop(), next.elected());
        elected.unwrap();
        times.push(now() - sent);
        leader = next;
    }
    leader.stop().await;
    times
}

/// A store whose requests are counted.
async fn counted(place: &Place) -> (KubernetesStore, Arc<AtomicU64>) {
    let path = place.kubeconfig(place.address(), place.kubernetes.admin_token());
    let file = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let real = Client::try_from(config).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let service = service_fn(move |request: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        let real = real.clone();
        async move { real.send(request).await }
    });
    let client = Client::new(service, namespace);
    let store = KubernetesStore::with_client(client, KubernetesOptions::new()).unwrap();
    (store, sent)
}

async fn requests(place: &Place) {
    let (leads, lead_sent) = counted(place).await;
    let leader = Elector::start(leads, settings("count-us", "leader")).unwrap();
    leader.elected().await.unwrap();
    let (follows, follow_sent) = counted(place).await;
    let following = follower(follows, "count-us", "follower").await;
    let Some(mut go) = Go::on(place, "count-go", "leader", DEFAULTS) else {
        return;
    };
    go.says("leading").await;
    let Some(mut waits) = Go::on(place, "count-go", "follower", DEFAULTS) else {
        return;
    };
    waits.says("sees leader").await;
    // What it takes to begin is not counted.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = [
        go.requests().await,
        waits.requests().await,
        lead_sent.load(Ordering::Relaxed),
        follow_sent.load(Ordering::Relaxed),
    ];
    tokio::time::sleep(MINUTE).await;
    let after = [
        go.requests().await,
        waits.requests().await,
        lead_sent.load(Ordering::Relaxed),
        follow_sent.load(Ordering::Relaxed),
    ];
    let names = [
        "client-go leader",
        "client-go follower",
        "tenure leader",
        "tenure follower",
    ];
    for ((name, before), after) in names.iter().zip(before).zip(after) {
        println!("requests a minute    {name:20} {}", after - before);
    }
    tokio::join!(leader.stop(), following.stop());
}

/// From SIGKILL of the leader to OnStartedLeading of the other.
async fn crash_of_client_go(place: &Place) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..CRASHES {
        let name = format!("crash-go-{round}");
        let mut leader = Go::on(place, &name, "a", DEFAULTS).unwrap();
        leader.says("leading").await;
        let mut next = Go::on(place, &name, "b", DEFAULTS).unwrap();
        next.says("sees a").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sent = now();
        leader.signal(Signal::SIGKILL);
        next.says("leading").await;
        times.push(now() - sent);
    }
    times
}

/// From the death of the leader, whose whole runtime goes away, to the other's tenure.
async fn crash_of_ours(place: &Place) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..CRASHES {
        let name = format!("crash-us-{round}");
        let dying = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let leader = Elector::builder(place.store(), settings(&name, "a"));
        let leader = leader.runtime(dying.handle().clone()).start().unwrap();
        leader.elected().await.unwrap();
        let next = follower(place.store(), &name, "b").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sent = now();
        dying.shutdown_background();
        next.elected().await.unwrap();
        times.push(now() - sent);
        drop(leader);
        next.stop().await;
    }
    times
}
