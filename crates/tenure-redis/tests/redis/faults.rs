//! Answers that are lost, connections that hang, servers that restart or stand still.

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{ErrorKind, Loss, Notice, Released, Renewed, Store};
use tenure_redis::RedisStore;
use tenure_testbed::{Redis, RedisOptions, Reply};

use crate::support::{
    LONG, assert_did_not_run, assert_kind, calls, granted, key, lease_of, open, record, request,
    soon, until, until_ok, warmed,
};

#[tokio::test]
async fn answer_cut_on_acquire_is_unknown_and_found_again() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    warmed(&redis, &store).await;
    let cut = proxy.cut_answer_to("cut-key");
    let asked = request("cut-key", "a", LONG);
    let error = assert_kind(store.acquire(&asked).await, ErrorKind::Unavailable, "broke");
    assert!(error.may_have_worked(), "it has worked");
    assert!(cut.is_done());
    assert_eq!(calls(&redis, "evalsha"), 1, "sent once");
    assert_eq!(calls(&redis, "eval"), 0);
    let record = record("cut-key");
    assert_eq!(
        redis.command(&["GET", &record]).text().as_deref(),
        Some("a")
    );
    let written = store.read(&asked.key).await.unwrap().unwrap();
    let again = lease_of(store.acquire(&asked).await);
    assert_eq!(again.token, written.token, "the tenure of the lost answer");
    assert_eq!(again.attempt, Some(asked.attempt));
}

#[tokio::test]
async fn answer_cut_on_renew_is_unknown_and_keeps_the_lease() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    warmed(&redis, &store).await;
    let lease = granted(&store, "cut-key", "a", LONG).await;
    redis.command(&["CONFIG", "RESETSTAT"]);
    let cut = proxy.cut_answer_to("cut-key");
    let error = store.renew(&lease, LONG * 2).await.unwrap_err();
    assert!(cut.is_done() && error.may_have_worked(), "{error}");
    assert_eq!(calls(&redis, "evalsha"), 1, "sent once");
    let seen = store.read(&lease.key).await.unwrap().unwrap();
    assert_eq!(seen.ttl, LONG * 2, "the lost answer was a yes");
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(l, None) if l.token == lease.token));
}

#[tokio::test]
async fn answer_cut_on_release_is_unknown_and_frees() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    warmed(&redis, &store).await;
    let lease = granted(&store, "cut-key", "a", LONG).await;
    redis.command(&["CONFIG", "RESETSTAT"]);
    let cut = proxy.cut_answer_to("cut-key");
    let error = store.release(&lease).await.unwrap_err();
    assert!(cut.is_done() && error.may_have_worked(), "{error}");
    assert_eq!(calls(&redis, "evalsha"), 1, "sent once");
    let next = granted(&store, "cut-key", "b", LONG).await;
    assert!(next.token > lease.token);
    let late = store.release(&lease).await.unwrap();
    assert_eq!(late, Released::NotHeld, "the late release frees nobody");
    assert_eq!(
        store.read(&lease.key).await.unwrap().unwrap().holder,
        next.holder
    );
}

#[tokio::test]
async fn answers_cut_to_many_renewals_are_unknown_for_each() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    warmed(&redis, &store).await;
    let mut leases = Vec::new();
    for name in ["many/1", "many/2", "many/3"] {
        leases.push((granted(&store, name, "a", LONG).await, LONG * 2));
    }
    redis.command(&["CONFIG", "RESETSTAT"]);
    let _cut = proxy.cut_answer_to("many/2");
    for answer in store.renew_many(&leases).await {
        assert!(answer.unwrap_err().may_have_worked());
    }
    assert_eq!(calls(&redis, "evalsha"), 3, "each sent once");
    // Together in one round trip: three requests do not take three times as long.
    proxy.delay(Duration::from_millis(100));
    for answer in store.renew_many(&leases).await {
        assert!(matches!(answer.unwrap(), Renewed::Renewed(..)));
    }
}

#[tokio::test]
async fn refused_connection_is_surely_not_sent() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    let lease = granted(&store, "k", "a", LONG).await;
    proxy.refuse();
    // The first call may have found the connection still there.
    until("a refusal", async || {
        store
            .renew(&lease, LONG)
            .await
            .unwrap_err()
            .to_string()
            .contains("refused")
            .then_some(())
    })
    .await;
    assert_did_not_run(
        store.renew(&lease, LONG).await,
        "cannot connect to Redis at 127.0.0.1",
    );
    proxy.heal();
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
}

/// An elector that starts during an outage campaigns on: opening does not connect.
#[tokio::test]
async fn store_opens_without_its_server() {
    let Some(redis) = Redis::start() else { return };
    redis.kill();
    let store = open(&redis.url());
    assert_did_not_run(store.read(&key("k")).await, "cannot connect");
    redis.start_again();
    granted(&store, "k", "a", LONG).await;
}

#[tokio::test]
async fn dropped_call_gives_up_its_connection_and_harms_no_other() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    let lease = granted(&store, "k", "a", LONG).await;
    assert_eq!(proxy.traffic().connections, 1);
    proxy.hold(tenure_testbed::Direction::ToClient);
    let other = tokio::spawn({
        let store = store.clone();
        async move { store.read(&key("k")).await }
    });
    let dropped = tokio::time::timeout(Duration::from_millis(200), store.renew(&lease, LONG)).await;
    assert!(dropped.is_err(), "it hangs");
    proxy.heal();
    // The one that was not dropped gets its own answer from the old connection.
    let seen = other.await.unwrap().unwrap().unwrap();
    assert_eq!(seen.token, lease.token);
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)));
    assert_eq!(proxy.traffic().connections, 2, "one more was made");
    store.renew(&lease, LONG).await.unwrap();
    assert_eq!(proxy.traffic().connections, 2, "and stays");
}

#[tokio::test]
async fn many_calls_share_one_connection() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    let calls = (0..50).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { granted(&store, &format!("k/{number}"), "a", LONG).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(proxy.traffic().connections, 1);
}

#[tokio::test]
async fn server_restarted_while_held_keeps_the_lease() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "a", LONG).await;
    tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.restart()
    })
    .await
    .unwrap();
    let renewed = until_ok("the server", async || store.renew(&lease, LONG).await).await;
    assert!(matches!(renewed, Renewed::Renewed(l, None) if l.token == lease.token));
}

/// What Redis without persistence loses; the token still grows.
#[tokio::test]
async fn server_that_forgets_loses_leases_but_no_token_falls_back() {
    let Some(redis) = RedisOptions::new().forgetful().start() else {
        return;
    };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "a", LONG).await;
    tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.restart()
    })
    .await
    .unwrap();
    let lost = until_ok("the server", async || store.renew(&lease, LONG).await).await;
    assert_eq!(lost, Renewed::Lost(Loss::Deleted));
    let next = granted(&store, "k", "b", LONG).await;
    assert!(next.token > lease.token);
}

#[tokio::test]
async fn flushed_server_gives_greater_tokens_and_learns_its_scripts_again() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let mut last = granted(&store, "k", "a", LONG).await;
    for _ in 0..3 {
        redis.command(&["FLUSHALL"]);
        redis.command(&["SCRIPT", "FLUSH"]);
        let next = granted(&store, "k", "a", LONG).await;
        assert!(next.token > last.token, "{next:?} after {last:?}");
        last = next;
    }
    redis.command(&["SCRIPT", "FLUSH"]);
    let answers = store
        .renew_many(&[(last.clone(), LONG), (last, LONG)])
        .await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Ok(Renewed::Renewed(..))))
    );
}

/// What a server that stood still finds when it goes on: a lease that has ended is not
/// renewed by a call that waited in the line.
#[tokio::test]
async fn server_that_stood_still_does_not_renew_what_has_ended() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let ttl = Duration::from_millis(500);
    let lease = granted(&store, "k", "a", ttl).await;
    redis.pause();
    let late = tokio::spawn({
        let (store, lease) = (store.clone(), lease.clone());
        async move { store.renew(&lease, ttl).await }
    });
    tokio::time::sleep(ttl * 2).await;
    redis.resume();
    assert_eq!(late.await.unwrap().unwrap(), Renewed::Lost(Loss::Expired));
    let next = granted(&store, "k", "b", LONG).await;
    assert!(next.token > lease.token);
}

/// What the caller brings does not send a write again either.
#[tokio::test]
async fn answer_cut_on_a_connection_of_the_caller_is_not_sent_again() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let client = redis::Client::open(redis.url_at(proxy.address())).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let store = RedisStore::with_connection(manager);
    warmed(&redis, &store).await;
    let _cut = proxy.cut_answer_to("cut-key");
    let asked = request("cut-key", "a", LONG);
    let error = store.acquire(&asked).await.unwrap_err();
    assert!(error.may_have_worked(), "{error}");
    assert_eq!(calls(&redis, "evalsha"), 1, "sent once");
    let again = until_ok("the manager", async || store.acquire(&asked).await).await;
    lease_of(Ok(again));
    assert!(!store.traits().watch, "without a client nothing is pushed");
    let refused = store.watch(&key("k")).await.map(|_| ());
    assert_kind(refused, ErrorKind::Unsupported, "push");
}

/// A stream ends when its connection does, so that the caller asks for a new one.
#[tokio::test]
async fn broken_connection_for_pushes_ends_the_streams_and_a_new_one_is_made() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let mut one = store.watch(&key("one")).await.unwrap();
    let mut two = store.watch(&key("two")).await.unwrap();
    let pushed = redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
    assert_eq!(pushed.unwrap().lines().count(), 1, "one for all watches");
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(soon("the end", one.next()).await, None);
    assert_eq!(soon("the end", two.next()).await, None);
    let mut again = store.watch(&key("one")).await.unwrap();
    let lease = granted(&store, "one", "a", LONG).await;
    let notice = soon("a push", again.next()).await;
    assert!(matches!(notice, Some(Notice::Held(seen)) if seen.token == lease.token));
    // Whoever goes leaves the channel; the last one of a channel ends the subscription.
    drop(again);
    until("no subscription", async || {
        let channels = redis.command(&["PUBSUB", "CHANNELS"]);
        (channels == Reply::List(Vec::new())).then_some(())
    })
    .await;
}

/// A connection that hangs is found out, although nothing is sent on it.
#[tokio::test]
async fn hanging_connection_for_pushes_ends_the_streams() {
    let Some(redis) = Redis::start() else { return };
    let proxy = redis.proxy();
    let store = open(&redis.url_at(proxy.address()));
    let mut notices = store.watch(&key("k")).await.unwrap();
    proxy.black_hole();
    assert_eq!(soon("the end", notices.next()).await, None);
}
