//! Networks and servers that break at the worst moment.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::time::Duration;

use tenure::{
    Acquired, BootClock, Clock, Elector, ErrorKind, Loss, Released, Renewed, Settings, Store,
    Timing,
};
use tenure_postgres::PostgresStore;
use tenure_testbed::{Postgres, PostgresOptions, Proxy};

use support::{Bed, LONG, blocking, failed, granted, held, key, request, soon, until};

/// A server, a proxy before it, a store directly on it and one through the proxy.
struct Scene {
    server: Postgres,
    proxy: Proxy,
    near: PostgresStore,
    far_bed: Bed,
    far: PostgresStore,
}

impl Scene {
    async fn new() -> Option<Self> {
        let server = blocking(Postgres::start).await?;
        let bed = Bed::on(&server).await;
        let proxy = server.proxy();
        let far_bed = bed.elsewhere(&server.url_at(proxy.address()));
        Some(Self {
            near: bed.store(),
            far: far_bed.store(),
            far_bed,
            server,
            proxy,
        })
    }
}

fn assert_unknown<T: std::fmt::Debug>(answer: tenure::Result<T>) {
    let error = failed(answer);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.may_have_worked(), "it did happen: {error}");
}

fn assert_not_sent<T: std::fmt::Debug>(answer: tenure::Result<T>) -> String {
    let error = failed(answer);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_worked(), "nothing was sent: {error}");
    error.to_string()
}

#[tokio::test]
async fn acquire_whose_answer_was_cut_is_found_again() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let sample = request("cut-acquire", "a", LONG);
    let cut = scene.proxy.cut_answer_to("cut-acquire");
    assert_unknown(soon("the call", scene.far.acquire(&sample)).await);
    soon("the cut", cut.done()).await;
    let there = scene.near.read(&sample.key).await.unwrap().unwrap();
    assert_eq!(there.attempt, Some(sample.attempt), "it was committed");
    // Somebody else is refused, the same holder's other attempt too, this one is not.
    assert_eq!(
        held(&scene.near, "cut-acquire", "b").await.token,
        there.token
    );
    assert_eq!(
        held(&scene.far, "cut-acquire", "a").await.token,
        there.token
    );
    let Acquired::Granted(lease) = scene.far.acquire(&sample).await.unwrap() else {
        panic!("an attempt was refused because of itself");
    };
    assert_eq!(lease.token, there.token);
}

#[tokio::test]
async fn renewal_whose_answer_was_cut_has_happened_and_can_be_repeated() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let lease = granted(&scene.far, "cut-renew", "a", Duration::from_secs(60)).await;
    let cut = scene.proxy.cut_answer_to("cut-renew");
    assert_unknown(soon("the call", scene.far.renew(&lease, LONG)).await);
    soon("the cut", cut.done()).await;
    let there = scene.near.read(&lease.key).await.unwrap().unwrap();
    assert_eq!(
        (there.ttl, there.token),
        (LONG, lease.token),
        "it was committed"
    );
    let Renewed::Renewed(renewed, _) = scene.far.renew(&lease, LONG).await.unwrap() else {
        panic!("it is the holder's");
    };
    assert_eq!(renewed.token, lease.token);
}

#[tokio::test]
async fn release_whose_answer_was_cut_has_happened() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let lease = granted(&scene.far, "cut-release", "a", LONG).await;
    let cut = scene.proxy.cut_answer_to("cut-release");
    assert_unknown(soon("the call", scene.far.release(&lease)).await);
    soon("the cut", cut.done()).await;
    assert_eq!(
        scene.near.read(&lease.key).await.unwrap(),
        None,
        "it was committed"
    );
    let next = granted(&scene.near, "cut-release", "b", LONG).await;
    assert_eq!(scene.far.release(&lease).await.unwrap(), Released::NotHeld);
    assert_eq!(held(&scene.far, "cut-release", "c").await.token, next.token);
}

#[tokio::test]
async fn elector_finds_its_tenure_after_a_cut() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let cut = scene.proxy.cut_answer_to("cut-elector");
    let settings = Settings::new("cut-elector").unwrap().timing(Timing::fast());
    let elector = Elector::start(scene.far.clone(), settings).unwrap();
    let tenure = soon("the election", elector.elected()).await.unwrap();
    assert!(cut.is_done());
    let there = scene.near.read(&key("cut-elector")).await.unwrap().unwrap();
    assert_eq!(
        tenure.token(),
        there.token,
        "the tenure that was granted first"
    );
    elector.stop().await;
    assert_eq!(scene.near.read(&key("cut-elector")).await.unwrap(), None);
}

#[tokio::test]
async fn lease_survives_a_restart_of_the_server() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let store = scene.near.clone();
    let lease = granted(&store, "k", "a", LONG).await;
    let server = scene.server.clone();
    blocking(move || server.kill()).await;
    let error = failed(soon("a call to nobody", store.renew(&lease, LONG)).await);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_not_sent(soon("a call to nobody", store.renew(&lease, LONG)).await);
    let server = scene.server.clone();
    blocking(move || server.start_again()).await;
    let Renewed::Renewed(renewed, _) = soon("the renewal", store.renew(&lease, LONG))
        .await
        .unwrap()
    else {
        panic!("nobody took it");
    };
    assert_eq!(renewed.token, lease.token);
    assert_eq!(held(&store, "k", "b").await.token, lease.token);
    // A planned one, too; its idle connections were told.
    let server = scene.server.clone();
    blocking(move || server.restart()).await;
    let renewed = until("the server", async || store.renew(&lease, LONG).await.ok()).await;
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
}

#[tokio::test]
async fn server_that_stood_still_for_longer_than_the_term() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let ttl = Duration::from_millis(700);
    let store = scene.near.clone();
    let lease = granted(&store, "k", "a", ttl).await;
    scene.server.pause();
    let sent = BootClock.now();
    let hung = tokio::time::timeout(ttl, store.renew(&lease, ttl)).await;
    assert!(hung.is_err(), "a stopped server answers nothing: {hung:?}");
    BootClock.sleep_until(sent + ttl * 2).await;
    scene.server.resume();
    // The renewal that was given up lies in the server's buffer still: whatever it finds,
    // it finds the term ended.
    let lost = until("the server", async || store.renew(&lease, ttl).await.ok()).await;
    assert_eq!(lost, Renewed::Lost(Loss::Expired));
    let next = granted(&store, "k", "b", LONG).await;
    assert!(next.token > lease.token);
    let lost = store.renew(&lease, ttl).await.unwrap();
    assert!(
        matches!(lost, Renewed::Lost(Loss::Superseded { .. })),
        "{lost:?}"
    );
}

#[tokio::test]
async fn leader_steps_down_while_the_server_stands_still_and_leads_again() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let settings = Settings::new("still").unwrap().timing(Timing::fast());
    let ttl = settings.timing.ttl;
    let elector = Elector::start(scene.near.clone(), settings).unwrap();
    let first = soon("the election", elector.elected()).await.unwrap();
    scene.server.pause();
    let paused = BootClock.now();
    until("the leader to step down", async || {
        (!elector.is_leader()).then_some(())
    })
    .await;
    assert!(BootClock.now() - paused <= ttl + Duration::from_millis(200));
    BootClock.sleep_until(paused + ttl).await;
    scene.server.resume();
    let second = soon("the next election", elector.elected()).await.unwrap();
    assert!(second.token() > first.token());
    elector.stop().await;
}

#[tokio::test]
async fn exhausted_pool_sends_nothing() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&pool=1&connect_timeout=300ms&lock_timeout=20s");
    let lease = granted(&store, "k", "a", LONG).await;
    let lock = bed.by_hand().await;
    let take = format!("BEGIN; SELECT 1 FROM public.\"{}\" FOR UPDATE", bed.table);
    lock.batch_execute(&take).await.unwrap();
    let busy = tokio::spawn({
        let (store, lease) = (store.clone(), lease.clone());
        async move { store.renew(&lease, LONG).await }
    });
    let text = until("the only connection to be in use", async || {
        let answer = store.read(&lease.key).await;
        answer.err().map(|error| {
            assert!(!error.may_have_worked());
            error.to_string()
        })
    })
    .await;
    assert!(text.contains("in use") && text.contains("pool="), "{text}");
    lock.batch_execute("COMMIT").await.unwrap();
    let renewed = soon("the renewal", busy).await.unwrap().unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)));
    store.read(&lease.key).await.unwrap().unwrap();
}

#[tokio::test]
async fn server_without_room_for_connections() {
    let options = PostgresOptions::new()
        .setting("max_connections", "5")
        .setting("superuser_reserved_connections", "3");
    let Some(server) = blocking(move || options.start()).await else {
        return;
    };
    server.create_user("app", None);
    let bed = Bed::on(&server).await;
    let grant = format!("GRANT ALL ON public.\"{}\" TO app", bed.table);
    server.sql(&grant);
    let url = Postgres::url_for(server.address(), "app", None, "postgres");
    let app = bed.elsewhere(&url);
    let _taken = (app.by_hand().await, app.by_hand().await);
    let store = app.store();
    let text = assert_not_sent(store.acquire(&request("k", "a", LONG)).await);
    assert!(
        text.contains("reserved") || text.contains("too many"),
        "{text}"
    );
    drop(_taken);
    until("a free connection", async || {
        store.read(&key("k")).await.ok()
    })
    .await;
}

/// A call that was given up takes its connection with it, and what was idle beside it.
#[tokio::test]
async fn given_up_call_gives_up_its_connection() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let store = &scene.far;
    let lease = granted(store, "k", "a", LONG).await;
    let (one, two, three) = tokio::join!(
        store.read(&lease.key),
        store.read(&lease.key),
        store.read(&lease.key)
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    let before = scene.proxy.traffic();
    assert!(before.open >= 2, "several are open: {before:?}");
    scene.proxy.black_hole();
    let hung = tokio::time::timeout(Duration::from_millis(200), store.renew(&lease, LONG)).await;
    assert!(hung.is_err());
    scene.proxy.heal();
    let renewed = soon("the next call", store.renew(&lease, LONG))
        .await
        .unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)));
    assert!(
        scene.proxy.traffic().connections > before.connections,
        "on a new connection"
    );
    until("the old ones to be closed", async || {
        (scene.proxy.traffic().open == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn connections_that_were_reset_are_replaced() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let lease = granted(&scene.far, "k", "a", LONG).await;
    scene.proxy.reset();
    let renewed = until("a new connection", async || {
        scene.far.renew(&lease, LONG).await.ok()
    })
    .await;
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    scene.proxy.refuse();
    until("the refusal", async || {
        let error = scene.far.renew(&lease, LONG).await.err()?;
        (!error.may_have_worked()).then_some(())
    })
    .await;
    scene.proxy.heal();
    let renewed = until("the way back", async || {
        scene.far.renew(&lease, LONG).await.ok()
    })
    .await;
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
}

/// An elector that is started while there is no server campaigns on.
#[tokio::test]
async fn store_is_opened_without_a_server() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    scene.proxy.refuse();
    let store = scene.far_bed.store();
    assert_not_sent(store.acquire(&request("k", "a", LONG)).await);
    let settings = Settings::new("late").unwrap().timing(Timing::fast());
    let elector = Elector::start(store, settings).unwrap();
    BootClock
        .sleep_until(BootClock.now() + Duration::from_millis(300))
        .await;
    assert!(!elector.is_leader(), "no answer makes no leader");
    scene.proxy.heal();
    soon("the election", elector.elected()).await.unwrap();
    elector.stop().await;
}

/// The caller's one connection: once it was given up, it is not used again.
#[tokio::test]
async fn given_client_is_not_used_after_it_was_given_up() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let client = std::sync::Arc::new(scene.far_bed.by_hand().await);
    let options = scene.far_bed.options("&listen=off");
    let store = PostgresStore::with_client(client, options).unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    scene.proxy.black_hole();
    let hung = tokio::time::timeout(Duration::from_millis(200), store.renew(&lease, LONG)).await;
    assert!(hung.is_err());
    scene.proxy.heal();
    let text = assert_not_sent(store.renew(&lease, LONG).await);
    assert!(text.contains("give it a new one"), "{text}");
}

/// The caller's pool.
#[tokio::test]
async fn given_pool_works() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (url, _) = bed.url.split_once('?').unwrap();
    let mut config = tenure_postgres::deadpool_postgres::Config::new();
    config.url = Some(url.to_owned());
    let runtime = Some(tenure_postgres::deadpool_postgres::Runtime::Tokio1);
    let pool = config.create_pool(runtime, tokio_postgres::NoTls).unwrap();
    let options = tenure_postgres::PostgresOptions::for_pool().table("public", &bed.table);
    let store = PostgresStore::with_pool(pool.clone(), options).unwrap();
    assert!(!store.traits().watch, "no server is named to listen at");
    let lease = granted(&store, "k", "a", LONG).await;
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert_eq!(pool.status().size, 1, "it was given back");
    let pool_options = bed.options("");
    let store = PostgresStore::with_pool(pool, pool_options).unwrap();
    assert!(store.traits().watch);
    drop(soon("the watch", store.watch(&key("k"))).await.unwrap());
}
