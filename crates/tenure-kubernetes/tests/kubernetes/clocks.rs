//! A candidate whose wall clock is an hour off, either way: it neither takes a living
//! leader's Lease, nor waits longer for a dead one's, nor loses its own.

use std::process::Stdio;
use std::time::Duration;

use tenure::{Elector, Event, Holder, Settings, Store, Timing};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore};
use tenure_testbed::ClockFault;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{LONG, Place};

const TTL: Duration = Duration::from_secs(3);

fn settings(key: &str, holder: &str) -> Settings {
    Settings::new(key)
        .unwrap()
        .holder(Holder::new(holder).unwrap())
        .timing(Timing::with_ttl(TTL))
}

/// The child: an elector that says what happens, until its input ends. Not a test by itself.
#[tokio::test]
async fn child_of_the_clock_tests() {
    let Ok(kubeconfig) = std::env::var("TENURE_CLOCK_CHILD") else {
        return;
    };
    let store = KubernetesStore::open(KubernetesOptions::new().kubeconfig(kubeconfig)).unwrap();
    let elector = Elector::start(store, settings("clock", "child")).unwrap();
    let mut events = elector.events();
    while let Some(event) = events.next().await {
        match event {
            Event::Elected(_) => eprintln!("leading"),
            Event::Lost { reason, .. } => eprintln!("lost {reason:?}"),
            Event::Following(_) => eprintln!("following"),
            _ => {}
        }
    }
}

struct Off {
    _child: Child,
    lines: Lines<BufReader<tokio::process::ChildStderr>>,
    _out: Option<ChildStdout>,
}

fn start(place: &Place, hours: i64) -> Off {
    let kubeconfig = place.kubeconfig(place.address(), place.kubernetes.admin_token());
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "clocks::child_of_the_clock_tests", "--nocapture"])
        .env("TENURE_CLOCK_CHILD", kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    ClockFault::offset(hours * 3600).apply(&mut command);
    let mut child = Command::from(command).kill_on_drop(true).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    Off {
        _out: child.stdout.take(),
        _child: child,
        lines,
    }
}

impl Off {
    async fn says(&mut self, wanted: &str) {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line == wanted {
                    return;
                }
            }
            panic!("the child ended before it said {wanted:?}");
        };
        timeout(LONG, found).await.expect(wanted);
    }
}

async fn an_hour_off(hours: i64) {
    if !ClockFault::is_available() {
        return;
    }
    let Some(place) = Place::shared().await else {
        return;
    };
    // It follows a living leader for several terms, and does not take its Lease.
    let ours = Elector::start(place.store(), settings("clock", "ours")).unwrap();
    let tenure = timeout(LONG, ours.elected()).await.unwrap().unwrap();
    let mut off = start(&place, hours);
    off.says("following").await;
    tokio::time::sleep(TTL * 2).await;
    assert!(tenure.is_valid(), "{:?}", tenure.end_reason());
    ours.stop().await;
    off.says("leading").await;
    // Its record shows a time that is an hour off, and nobody minds.
    let record = place.lease("clock").await;
    let shown = record["spec"]["renewTime"].as_str().unwrap();
    let shown = tenure_time(shown);
    let here = tenure_time(record["metadata"]["creationTimestamp"].as_str().unwrap());
    let apart = shown - here;
    assert!((apart - hours * 3600).abs() < 600, "{apart} s apart");
    let watcher = Elector::start(place.store(), settings("clock", "watcher")).unwrap();
    tokio::time::sleep(TTL * 2).await;
    assert!(
        !watcher.is_leader(),
        "the leader with the wrong clock lives"
    );
    let seen = place.store().read(tenure.key()).await.unwrap().unwrap();
    assert_eq!(seen.holder.as_str(), "child");
    // It dies, and its Lease ends after its term like any other.
    drop(off);
    let next = timeout(LONG, watcher.elected()).await.unwrap().unwrap();
    assert!(next.token() > seen.token);
    watcher.stop().await;
}

fn tenure_time(text: &str) -> i64 {
    let time = humantime::parse_rfc3339(text).unwrap();
    let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_secs()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_an_hour_ahead_changes_nothing() {
    an_hour_off(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_an_hour_behind_changes_nothing() {
    an_hour_off(-1).await;
}
