//! A real elector waits, and a release is pushed to it.

use std::time::Duration;

use tenure::{Acquired, BootClock, Clock, Elector, Settings, Store, Timing};
use tenure_testbed::{Etcd, unique};

use crate::support::{PATIENCE, TTL, aside, key, open, request, until};

/// Polls so seldom that a handover within a second can only have been pushed.
fn settings(name: &str) -> Settings {
    let timing = Timing {
        poll_every: Duration::from_secs(20),
        ..Timing::with_ttl(Duration::from_secs(60))
    };
    Settings::new(name).unwrap().timing(timing)
}

#[tokio::test]
async fn a_release_is_pushed_to_a_waiting_elector() {
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let name = unique("handover");
    let first = Elector::start(open(&etcd.url()), settings(&name)).unwrap();
    let tenure = tokio::time::timeout(PATIENCE, first.elected())
        .await
        .unwrap()
        .unwrap();
    let second = Elector::start(open(&etcd.url()), settings(&name)).unwrap();
    wait_for_follower(&second).await;
    // Its watch begins right after that.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stopped = BootClock.now();
    let (_, next) = tokio::join!(first.stop(), second.elected());
    let took = BootClock.now() - stopped;
    let next = next.unwrap();
    assert!(next.token() > tenure.token());
    assert!(
        took < Duration::from_secs(10),
        "a push, not a poll: {took:?}"
    );
    second.stop().await;
}

#[tokio::test]
async fn a_step_down_is_pushed_to_the_holder() {
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let name = unique("step-down");
    let store = open(&etcd.url());
    let elector = Elector::start(
        open(&etcd.url()),
        Settings::new(&name).unwrap().timing(Timing::fast()),
    )
    .unwrap();
    let tenure = tokio::time::timeout(PATIENCE, elector.elected())
        .await
        .unwrap()
        .unwrap();
    store
        .ask(&key(&name), tenure::HolderRequest::StepDown)
        .await
        .unwrap();
    let reason = tokio::time::timeout(PATIENCE, tenure.ended())
        .await
        .unwrap();
    assert_eq!(reason.as_str(), "asked-to-step-down");
    // The work ends first, and the release is sent after it.
    until("the release", PATIENCE, async || {
        let next = request(&key(&name), "next", TTL);
        match store.acquire(&next).await.unwrap() {
            Acquired::Granted(lease) => Some(lease),
            Acquired::Held(_) => None,
        }
    })
    .await;
    elector.stop().await;
}

async fn wait_for_follower(elector: &Elector) {
    let follows = async {
        while elector.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, follows)
        .await
        .expect("it follows");
}
