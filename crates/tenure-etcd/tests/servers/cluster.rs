//! Three members, of which one is lost.

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{Lease, Notice, Released, Store};
use tenure_etcd::EtcdStore;
use tenure_testbed::{Etcd, EtcdOptions as Testbed, Server};

use crate::support::{
    PATIENCE, TTL, aside, granted, held, key, open, renewed, request, take, until,
};

async fn three() -> Option<Etcd> {
    aside(|| Testbed::new().members(3).start()).await
}

/// Renews as an elector does: each call is given up after a while, and tried again.
async fn renew_in_time(store: &EtcdStore, lease: &Lease) {
    let answer = until("a renewal", PATIENCE, async || {
        let call = tokio::time::timeout(Duration::from_secs(1), store.renew(lease, TTL)).await;
        call.ok()?.ok()
    })
    .await;
    assert_eq!(renewed(Ok(answer)).token, lease.token);
}

async fn lose(etcd: &Etcd, lost: Server, lose: fn(&Server)) {
    let store = open(&etcd.url());
    let lease = take(&store, &key("lost member"), "a").await;
    let waiting = request(&lease.key, "b", TTL);
    held(store.acquire(&waiting).await);
    aside(move || lose(&lost)).await;
    for _ in 0..5 {
        renew_in_time(&store, &lease).await;
    }
    // A waiter elsewhere gets it when it is freed, and knows at once.
    let other = open(&etcd.url());
    let mut notices = until("a watch", PATIENCE, async || {
        let watch = tokio::time::timeout(Duration::from_secs(1), other.watch(&lease.key)).await;
        watch.ok()?.ok()
    })
    .await;
    let freed = until("a release", PATIENCE, async || {
        store.release(&lease).await.ok()
    })
    .await;
    assert_eq!(freed, Released::Released);
    let pushed = async { while notices.next().await != Some(Notice::Free) {} };
    tokio::time::timeout(PATIENCE, pushed)
        .await
        .expect("a push");
    let next = until("the next tenure", PATIENCE, async || {
        other.acquire(&waiting).await.ok()
    })
    .await;
    assert!(granted(Ok(next)).token > lease.token);
}

#[tokio::test]
async fn a_leader_that_dies_costs_no_lease() {
    let Some(etcd) = three().await else {
        return;
    };
    let leader = aside({
        let etcd = etcd.clone();
        move || etcd.leader().clone()
    })
    .await;
    lose(&etcd, leader, Server::kill).await;
}

#[tokio::test]
async fn a_member_that_hangs_costs_no_lease() {
    let Some(etcd) = three().await else {
        return;
    };
    // The one that the stores ask first.
    let first = etcd.members()[0].clone();
    lose(&etcd, first.clone(), Server::pause).await;
    aside(move || first.resume()).await;
}

/// A member that cannot be reached is left for the next within the same call.
#[tokio::test]
async fn a_dead_member_costs_no_call() {
    let Some(etcd) = three().await else {
        return;
    };
    let first = etcd.members()[0].clone();
    aside(move || first.kill()).await;
    aside({
        let etcd = etcd.clone();
        move || etcd.leader().address()
    })
    .await;
    for n in 0..3 {
        let store = open(&etcd.url());
        let lease = take(&store, &key(&format!("dead member/{n}")), "a").await;
        renewed(store.renew(&lease, TTL).await);
    }
}

/// Without a majority nobody gets or keeps anything, and a member left alone says so.
#[tokio::test]
async fn without_a_majority_there_is_no_answer() {
    let Some(etcd) = three().await else {
        return;
    };
    let store = open(&etcd.url());
    let lease = take(&store, &key("alone"), "a").await;
    let [_, two, three] = etcd.members() else {
        panic!("three members");
    };
    let (two, three) = (two.clone(), three.clone());
    aside(move || {
        two.kill();
        three.kill();
    })
    .await;
    let limit = Duration::from_secs(9);
    for _ in 0..3 {
        let renewal = tokio::time::timeout(limit, store.renew(&lease, TTL)).await;
        assert!(
            !matches!(renewal, Ok(Ok(_))),
            "no majority, no renewal: {renewal:?}"
        );
        let asked = request(&lease.key, "b", TTL);
        let acquire = tokio::time::timeout(limit, store.acquire(&asked)).await;
        assert!(
            !matches!(acquire, Ok(Ok(_))),
            "no majority, no answer: {acquire:?}"
        );
        let read = tokio::time::timeout(limit, store.read(&lease.key)).await;
        assert!(
            !matches!(read, Ok(Ok(_))),
            "reads are linearizable: {read:?}"
        );
    }
    let watch = tokio::time::timeout(limit, store.watch(&lease.key)).await;
    assert!(!matches!(watch, Ok(Ok(_))), "a watch there would be silent");
}
