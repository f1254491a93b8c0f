//! Pushed changes: a waiter learns at once, over one connection for all who watch.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{
    BootClock, Clock, Elector, EndReason, ErrorKind, HolderRequest, Notice, Released, Renewed,
    Settings, Store, Timing,
};
use tenure_testbed::Postgres;

use support::{Bed, LONG, blocking, granted, key, soon, until};

/// Polls every 20 s: whatever happens sooner was pushed.
fn patient(name: &str) -> Settings {
    let timing = Timing::with_ttl(Duration::from_secs(60));
    Settings::new(name).unwrap().timing(timing)
}

const PUSHED_MAX: Duration = Duration::from_secs(5);

#[tokio::test]
async fn waiter_leads_at_once_after_a_release() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let first = Elector::start(bed.store(), patient("k")).unwrap();
    let tenure = soon("the first election", first.elected()).await.unwrap();
    let next = Elector::start(bed.store(), patient("k")).unwrap();
    until("the waiter to wait", async || next.leader()).await;
    watched(&bed, 2).await;
    let began = BootClock.now();
    first.stop().await;
    let successor = soon("the handover", next.elected()).await.unwrap();
    let took = BootClock.now() - began;
    assert!(took < PUSHED_MAX, "polled, not pushed: {took:?}");
    assert!(successor.token() > tenure.token());
    next.stop().await;
}

/// Waits until so many stores listen.
async fn watched(bed: &Bed, count: i64) {
    let client = bed.by_hand().await;
    let channel = format!("%{}%", bed.table);
    until("the listeners", async || {
        let row = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND query LIKE $1",
                &[&channel],
            )
            .await
            .unwrap();
        (row.get::<_, i64>(0) >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn holder_that_is_asked_steps_down_at_once() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let elector = Elector::start(bed.store(), patient("k")).unwrap();
    let tenure = soon("the election", elector.elected()).await.unwrap();
    watched(&bed, 1).await;
    let began = BootClock.now();
    bed.store()
        .ask(&key("k"), HolderRequest::StepDown)
        .await
        .unwrap();
    until("the end of the tenure", async || {
        (!tenure.is_valid()).then_some(())
    })
    .await;
    assert!(BootClock.now() - began < PUSHED_MAX);
    assert_eq!(tenure.end_reason(), Some(EndReason::AskedToStepDown));
    elector.stop().await;
}

#[tokio::test]
async fn all_watches_share_one_connection() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let name = tenure_testbed::unique("app");
    let store = bed.store_with(&format!("&application_name={name}&pool=1"));
    let mut watches = Vec::new();
    for n in 0..50 {
        watches.push(store.watch(&key(&format!("k{n}"))).await.unwrap());
    }
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    assert_eq!(
        bed.sql(&count).await.unwrap(),
        "2",
        "one listens, one runs statements"
    );
    let other = bed.store();
    for n in [7, 31] {
        let lease = granted(&other, &format!("k{n}"), "a", LONG).await;
        let Some(Notice::Held(seen)) = soon("the notice", watches[n].next()).await else {
            panic!("an acquire tells who");
        };
        assert_eq!(
            (&seen.holder, seen.token, seen.ttl, seen.attempt),
            (&lease.holder, lease.token, lease.ttl, lease.attempt)
        );
        assert_eq!(
            (seen.version, seen.acquired_at),
            (lease.version.clone(), lease.acquired_at)
        );
        assert_eq!(other.release(&lease).await.unwrap(), Released::Released);
        assert_eq!(
            soon("the notice", watches[n].next()).await,
            Some(Notice::Free)
        );
    }
    drop(watches);
    drop(store);
    until("the connections to go", async || {
        (bed.sql(&count).await.unwrap() == "0").then_some(())
    })
    .await;
}

/// A renewal is told to nobody: it would wake the whole fleet every few seconds.
#[tokio::test]
async fn renewal_is_not_pushed() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let mut notices = store.watch(&key("k")).await.unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    for _ in 0..3 {
        assert!(matches!(
            store.renew(&lease, LONG).await.unwrap(),
            Renewed::Renewed(..)
        ));
        store
            .renew_many(&[(lease.clone(), LONG)])
            .await
            .remove(0)
            .unwrap();
        support::held(&store, "k", "b").await;
        store.read(&lease.key).await.unwrap();
    }
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let first = soon("the acquire", notices.next()).await;
    assert!(matches!(first, Some(Notice::Held(_))), "{first:?}");
    assert_eq!(
        soon("the release", notices.next()).await,
        Some(Notice::Free)
    );
}

/// Names of the greatest length, in characters of many bytes, fit into what is told.
#[tokio::test]
async fn longest_names_are_pushed() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let (name, holder) = ("🔑".repeat(128), "é".repeat(256));
    let mut notices = store.watch(&key(&name)).await.unwrap();
    let lease = granted(&store, &name, &holder, LONG).await;
    let Some(Notice::Held(seen)) = soon("the notice", notices.next()).await else {
        panic!("an acquire tells who");
    };
    assert_eq!((seen.key, seen.holder), (lease.key, lease.holder));
}

#[tokio::test]
async fn watch_ends_with_its_connection_and_can_be_begun_again() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    let bed = Bed::on(&server).await;
    let proxy = server.proxy();
    let far = bed.elsewhere(&server.url_at(proxy.address())).store();
    let mut one = far.watch(&key("k")).await.unwrap();
    let mut two = far.watch(&key("l")).await.unwrap();
    proxy.reset();
    assert_eq!(soon("the end", one.next()).await, None);
    assert_eq!(soon("the end", two.next()).await, None);
    let mut again = until("a new watch", async || far.watch(&key("k")).await.ok()).await;
    let near = bed.store();
    granted(&near, "k", "a", LONG).await;
    assert!(matches!(
        soon("a notice", again.next()).await,
        Some(Notice::Held(_))
    ));
    blocking({
        let server = server.clone();
        move || server.restart()
    })
    .await;
    assert_eq!(soon("the end", again.next()).await, None);
    drop(until("a new watch", async || far.watch(&key("k")).await.ok()).await);
    // A watch that was given up while it connected leaves the next one alone.
    let fresh = bed.elsewhere(&server.url_at(proxy.address())).store();
    proxy.black_hole();
    let given_up = tokio::time::timeout(Duration::from_millis(100), fresh.watch(&key("k"))).await;
    assert!(given_up.is_err());
    proxy.heal();
    drop(
        soon("the next watch", fresh.watch(&key("k")))
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn told_not_to_listen() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&listen=off");
    assert!(!store.traits().watch);
    let error = store.watch(&key("k")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // It still tells the others.
    let listening = bed.store();
    let mut notices = listening.watch(&key("k")).await.unwrap();
    granted(&store, "k", "a", LONG).await;
    assert!(soon("a notice", notices.next()).await.is_some());
    drop(listening);
    assert_eq!(
        soon("the end", notices.next()).await,
        None,
        "it ends with its store"
    );
}
