//! Candidates whose clocks are an hour off, either way: only etcd's clock counts.

use std::process::Command;
use std::time::Duration;

use tenure::{Acquired, Store};
use tenure_testbed::{ClockFault, Etcd, unique};

use crate::support::{PATIENCE, TTL, aside, granted, held, key, open, request, until};

const URL: &str = "TENURE_ETCD_TEST_URL";
const NAME: &str = "TENURE_ETCD_TEST_KEY";

/// Not a test by itself: what the child process with the wrong clock does. It asks for the
/// key, says who has it, and holds it for two seconds if it gets it.
#[test]
#[ignore = "started by the other tests of this file"]
fn child() {
    let (Ok(url), Ok(name)) = (std::env::var(URL), std::env::var(NAME)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let asked = request(&key(&name), "child", Duration::from_secs(2));
        match open(&url).acquire(&asked).await.unwrap() {
            Acquired::Granted(_) => eprintln!("CHILD: granted"),
            Acquired::Held(lease) => eprintln!("CHILD: held by {}", lease.holder),
        }
    });
}

async fn ask_as_child(clock: ClockFault, url: &str, name: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["clocks::child", "--exact", "--ignored", "--nocapture"])
        .env(URL, url)
        .env(NAME, name);
    clock.apply(&mut command);
    let output = aside(move || command.output().unwrap()).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.lines().find_map(|line| line.split_once("CHILD: "));
    said.unwrap_or_else(|| panic!("the child said nothing: {text}"))
        .1
        .to_owned()
}

#[tokio::test]
async fn a_candidate_an_hour_off_neither_steals_nor_starves() {
    if !ClockFault::is_available() {
        return;
    }
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let (store, url) = (open(&etcd.url()), etcd.url());
    for hours in [-1, 1] {
        let clock = ClockFault::offset(hours * 3600);
        let name = unique("clock");
        // What a right clock holds, a wrong one does not get,
        let first = granted(store.acquire(&request(&key(&name), "ours", TTL)).await);
        assert_eq!(
            ask_as_child(clock.clone(), &url, &name).await,
            "held by ours"
        );
        store.release(&first).await.unwrap();
        // what is free it gets, and what it holds nobody else does,
        assert_eq!(ask_as_child(clock, &url, &name).await, "granted");
        let next = request(&key(&name), "ours", TTL);
        let seen = held(store.acquire(&next).await);
        assert_eq!(seen.holder.as_str(), "child");
        assert!(seen.rest.is_some_and(|rest| rest <= Duration::from_secs(2)));
        // until its term has ended by etcd's clock, and no hour later.
        let last = until("our turn", PATIENCE, async || {
            match store.acquire(&next).await.unwrap() {
                Acquired::Granted(lease) => Some(lease),
                Acquired::Held(_) => None,
            }
        })
        .await;
        assert!(last.token > seen.token && seen.token > first.token);
    }
}
