//! A server that is restarted, stopped, compacted or full while a lease is held.

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{Acquired, ErrorKind, Loss, Notice, Released, Renewed, Store};
use tenure_testbed::{Etcd, EtcdOptions as Testbed};

use crate::bare::Bare;
use crate::support::{
    PATIENCE, TTL, aside, granted, held, key, open, renewed, request, take, until,
};

#[tokio::test]
async fn a_restart_of_the_server_costs_no_lease() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let store = open(&etcd.url());
    let lease = take(&store, &key("restarted"), "a").await;
    aside({
        let etcd = etcd.clone();
        move || etcd.server().restart()
    })
    .await;
    // The old connection is broken: one call may find that out.
    let answer = until("a renewal", PATIENCE, async || {
        store.renew(&lease, TTL).await.ok()
    })
    .await;
    assert_eq!(renewed(Ok(answer)).token, lease.token);
    held(
        open(&etcd.url())
            .acquire(&request(&lease.key, "b", TTL))
            .await,
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let next = take(&store, &lease.key, "b").await;
    assert!(next.token > lease.token);
}

/// A store that is opened while the server is away works as soon as it is there.
#[tokio::test]
async fn a_store_opens_during_an_outage() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let server = etcd.server().clone();
    aside({
        let server = server.clone();
        move || server.kill()
    })
    .await;
    let store = open(&etcd.url());
    let asked = request(&key("early"), "a", TTL);
    let error = store.acquire(&asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_worked(), "{error}");
    aside(move || server.start_again()).await;
    let answer = until("an answer", PATIENCE, async || {
        store.acquire(&asked).await.ok()
    })
    .await;
    granted(Ok(answer));
}

/// Stopped for longer than the ttl: no call comes through, and the record ends when the
/// server goes on, or later; nobody leads twice meanwhile.
#[tokio::test]
async fn a_server_that_stands_still_for_longer_than_the_ttl() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let ttl = Duration::from_secs(2);
    let store = open(&etcd.url());
    let lease = granted(store.acquire(&request(&key("stopped"), "a", ttl)).await);
    let server = etcd.server().clone();
    aside({
        let server = server.clone();
        move || server.pause()
    })
    .await;
    let waited = tokio::time::timeout(ttl + Duration::from_secs(1), async {
        loop {
            let call =
                tokio::time::timeout(Duration::from_millis(500), store.renew(&lease, ttl)).await;
            assert!(
                !matches!(call, Ok(Ok(_))),
                "nobody can have answered: {call:?}"
            );
        }
    });
    assert!(waited.await.is_err());
    aside(move || server.resume()).await;
    // etcd goes by its own monotonic clock, which ran on: the term has ended.
    let next = request(&lease.key, "b", TTL);
    let taken = until("the next tenure", PATIENCE, async || {
        match store.acquire(&next).await {
            Ok(Acquired::Granted(lease)) => Some(lease),
            _ => None,
        }
    })
    .await;
    assert!(taken.token > lease.token);
    let answer = store.renew(&lease, ttl).await.unwrap();
    let (holder, token) = (taken.holder.clone(), taken.token);
    assert_eq!(answer, Renewed::Lost(Loss::Superseded { holder, token }));
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    renewed(store.renew(&taken, TTL).await);
}

/// History is thrown away under a holder, a waiter and a watch.
#[tokio::test]
async fn compaction_costs_nothing() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let store = open(&etcd.url());
    let bare = Bare::to(etcd.server().address());
    let lease = take(&store, &key("compacted"), "a").await;
    let waiting = request(&lease.key, "b", TTL);
    held(store.acquire(&waiting).await);
    let mut notices = store.watch(&lease.key).await.unwrap();
    for round in 0..3 {
        for n in 0..50 {
            bare.put("elsewhere", format!("{round}/{n}").as_bytes(), 0)
                .await;
        }
        let now = bare
            .get("elsewhere")
            .await
            .unwrap()
            .mod_revision
            .to_string();
        let etcd = etcd.clone();
        aside(move || etcd.ctl(&["compact", "--physical=true", &now])).await;
        assert_eq!(renewed(store.renew(&lease, TTL).await).token, lease.token);
    }
    assert_eq!(
        store.read(&lease.key).await.unwrap().unwrap().token,
        lease.token
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let freed = async { while notices.next().await != Some(Notice::Free) {} };
    tokio::time::timeout(PATIENCE, freed)
        .await
        .expect("the watch goes on");
    assert!(granted(store.acquire(&waiting).await).token > lease.token);
}

/// A full database: nothing new is written, and that is said; who holds goes on holding.
#[tokio::test]
async fn a_full_database_costs_no_holder_its_lease() {
    let options = Testbed::new().argument("--quota-backend-bytes=1000000");
    let Some(etcd) = aside(move || options.start()).await else {
        return;
    };
    let store = open(&etcd.url());
    let lease = take(&store, &key("full"), "a").await;
    let asked = request(&key("no room"), "a", TTL);
    let filler = vec![b'x'; 200_000];
    let bare = Bare::to(etcd.server().address());
    let fill = tokio::spawn(async move {
        // It knows its size only when it has written, which it does ten times a second.
        for n in 0..100 {
            bare.put(&format!("filler/{n}"), &filler, 0).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    });
    assert!(fill.await.is_err(), "it never gets full");
    let error = store.acquire(&asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        !error.may_have_worked() && error.to_string().contains("full"),
        "{error}"
    );
    assert_eq!(renewed(store.renew(&lease, TTL).await).token, lease.token);
    assert_eq!(
        store.read(&lease.key).await.unwrap().unwrap().token,
        lease.token
    );
}

/// A store is used by several runtimes, of which one stands still: an elector's thread does
/// not wait for it.
#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let Some(etcd) = Etcd::shared() else {
        return;
    };
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (busy, elector) = (runtime(), runtime());
    let store = open(&etcd.url());
    let lease = busy.block_on(take(&store, &key(&tenure_testbed::unique("runtimes")), "a"));
    // From here on nobody drives the first runtime.
    elector.block_on(async {
        let renewal = tokio::time::timeout(PATIENCE, store.renew(&lease, TTL)).await;
        renewed(renewal.expect("it waits for the other runtime"));
    });
    drop(busy);
    elector.block_on(async { renewed(store.renew(&lease, TTL).await) });
}
