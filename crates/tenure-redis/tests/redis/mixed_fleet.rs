//! One fleet with MaksIT.HAMode: each excludes the other, and neither frees the other's lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tenure::{Acquired, Asked, ErrorKind, HolderRequest, Loss, Notice, Released, Renewed, Store};
use tenure_testbed::{Redis, Reply};

use crate::support::{
    LONG, assert_kind, beside, granted, held, key, number, open, record, request, soon, until,
};

/// HAMode's rule: take if nobody or oneself has it, which is how it renews, too.
const TAKE: &str = "local h = redis.call('GET', KEYS[1]) \
    if h and h ~= ARGV[1] then return 0 end \
    redis.call('PSETEX', KEYS[1], ARGV[2], ARGV[1]) return 1";
/// HAMode's rule: delete if oneself has it.
const FREE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    redis.call('DEL', KEYS[1]) return 1 end return 0";

fn they_take(redis: &Redis, key: &str, holder: &str, ttl_ms: u64) -> bool {
    let ttl_ms = ttl_ms.to_string();
    redis.command(&["EVAL", TAKE, "1", &record(key), holder, &ttl_ms]) == Reply::Int(1)
}

fn they_free(redis: &Redis, key: &str, holder: &str) -> bool {
    redis.command(&["EVAL", FREE, "1", &record(key), holder]) == Reply::Int(1)
}

#[tokio::test]
async fn theirs_excludes_ours_while_it_lives() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    assert!(they_take(&redis, "k", "theirs", 60_000));
    for holder in ["ours", "theirs"] {
        let seen = held(&store, "k", holder).await;
        assert_eq!(seen.holder.as_str(), "theirs");
        assert_eq!(seen.attempt, None, "it was no attempt of ours");
        let rest = seen.rest.unwrap();
        assert!(rest > Duration::from_secs(50) && rest <= Duration::from_millis(60_001));
    }
    // They renew, by taking it again.
    assert!(they_take(&redis, "k", "theirs", 120_000));
    assert!(held(&store, "k", "ours").await.rest > Some(Duration::from_secs(100)));
    let listed = store.list("", 10).await.unwrap();
    assert_eq!(listed[0].holder.as_str(), "theirs");
    assert!(they_free(&redis, "k", "theirs"));
    granted(&store, "k", "ours", LONG).await;
}

#[tokio::test]
async fn theirs_is_taken_when_it_has_ended_and_not_before() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    assert!(they_take(&redis, "k", "theirs", 300));
    let asked = request("k", "ours", LONG);
    until("the end of their term", async || {
        let there = number(&redis.command(&["EXISTS", &record("k")])) == 1;
        match store.acquire(&asked).await.unwrap() {
            Acquired::Granted(lease) => Some(lease),
            Acquired::Held(_) => {
                assert!(there, "it was free before it was asked for");
                None
            }
        }
    })
    .await;
}

#[tokio::test]
async fn ours_excludes_theirs_and_is_free_for_them_afterwards() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "ours", LONG).await;
    assert!(!they_take(&redis, "k", "theirs", 1000));
    assert!(!they_free(&redis, "k", "theirs"));
    store.renew(&lease, LONG).await.unwrap();
    assert!(!they_take(&redis, "k", "theirs", 1000));
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert!(they_take(&redis, "k", "theirs", 60_000));
    // The late ones of ours do nothing to them.
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    let Renewed::Lost(Loss::Superseded { holder, token }) =
        store.renew(&lease, LONG).await.unwrap()
    else {
        panic!("theirs must be seen");
    };
    assert_eq!(holder.as_str(), "theirs");
    assert!(token > lease.token, "they came after");
    assert!(they_free(&redis, "k", "theirs"), "it was still theirs");
    let next = granted(&store, "k", "ours", LONG).await;
    assert!(next.token > token, "and we came after them");
}

/// Ours ended while they took it under the very same name: what stands beside the record
/// is not theirs.
#[tokio::test]
async fn theirs_under_our_name_is_not_taken_for_ours() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let first = request("k", "same", Duration::from_millis(200));
    let Acquired::Granted(lease) = store.acquire(&first).await.unwrap() else {
        panic!("it is free");
    };
    until("the end of our term", async || {
        (redis.command(&["EXISTS", &record("k")]) == Reply::Int(0)).then_some(())
    })
    .await;
    assert!(they_take(&redis, "k", "same", 60_000));
    let before = redis.command(&["PEXPIRETIME", &record("k")]);
    assert!(matches!(
        store.renew(&lease, LONG).await.unwrap(),
        Renewed::Lost(Loss::Superseded { token, .. }) if token > lease.token
    ));
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    let again = store.acquire(&first).await.unwrap();
    assert!(matches!(again, Acquired::Held(l) if l.attempt.is_none()));
    let after = redis.command(&["PEXPIRETIME", &record("k")]);
    assert_eq!(before, after, "nothing was done to it");
}

/// A live one of theirs with our name renews our record by its own rule. It is theirs
/// from then on: one of us has to go, and they cannot know.
#[tokio::test]
async fn live_lease_that_they_renew_under_our_name_is_lost() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "same", Duration::from_secs(60)).await;
    assert!(they_take(&redis, "k", "same", 30_000));
    let lost = store.renew(&lease, LONG).await.unwrap();
    assert!(
        matches!(lost, Renewed::Lost(Loss::Superseded { .. })),
        "{lost:?}"
    );
    // Likewise if they only prolong it.
    let lease = granted(&store, "j", "same", Duration::from_secs(60)).await;
    redis.command(&["PEXPIRE", &record("j"), "61000"]);
    let lost = store.renew(&lease, LONG).await.unwrap();
    assert!(
        matches!(lost, Renewed::Lost(Loss::Superseded { .. })),
        "{lost:?}"
    );
}

#[tokio::test]
async fn lease_that_they_freed_under_our_name_is_lost_and_tokens_grow() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "same", LONG).await;
    assert!(they_free(&redis, "k", "same"));
    let lost = store.renew(&lease, LONG).await.unwrap();
    assert_eq!(lost, Renewed::Lost(Loss::Deleted));
    assert!(granted(&store, "k", "same", LONG).await.token > lease.token);
}

/// Even if the server's clock falls behind the last token, nobody shows a number twice.
#[tokio::test]
async fn tokens_grow_around_theirs_when_the_clock_is_behind() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let ahead = "4000000000000000";
    redis.command(&[
        "HSET",
        &beside("k"),
        "token",
        ahead,
        "holder",
        "",
        "until",
        "0",
    ]);
    assert!(they_take(&redis, "k", "theirs", 60_000));
    let theirs = held(&store, "k", "ours").await.token;
    assert_eq!(theirs.0, 4_000_000_000_000_001);
    assert!(they_free(&redis, "k", "theirs"));
    let ours = granted(&store, "k", "ours", LONG).await.token;
    assert_eq!(ours.0, 4_000_000_000_000_002);
    let kept = redis.command(&["HGET", &beside("k"), "token"]);
    assert_eq!(
        kept.text().as_deref(),
        Some("4000000000000002"),
        "to the digit"
    );
}

#[tokio::test]
async fn their_release_is_pushed_where_the_server_tells_of_its_keys() {
    let Some(redis) = Redis::start() else { return };
    redis.command(&["CONFIG", "SET", "notify-keyspace-events", "Kgx"]);
    let store = open(&redis.url());
    assert!(they_take(&redis, "k", "theirs", 600_000));
    let mut notices = store.watch(&key("k")).await.unwrap();
    assert!(
        they_take(&redis, "k", "theirs", 600_000),
        "a renewal is no change"
    );
    assert!(they_free(&redis, "k", "theirs"));
    let notice = soon("a push", notices.next()).await;
    assert_eq!(notice, Some(Notice::Free));
}

#[tokio::test]
async fn theirs_cannot_be_asked() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    assert!(they_take(&redis, "k", "theirs", 60_000));
    let asked = store.ask(&key("k"), HolderRequest::StepDown).await;
    assert_kind(asked, ErrorKind::Unsupported, "theirs");
    let free = store.ask(&key("free"), HolderRequest::StepDown).await;
    assert_eq!(free.unwrap(), Asked::NotHeld);
}

/// Six of ours and six of theirs count on one counter, each only under the lease.
#[tokio::test(flavor = "multi_thread")]
async fn contended_counter_of_a_mixed_fleet_loses_no_count() {
    const TURNS: u64 = 10;
    const PAUSE: Duration = Duration::from_millis(1);
    let Some(redis) = Redis::start() else { return };
    let shared = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for worker in 0..6 {
        let (counter, store) = (shared.clone(), open(&redis.url()));
        workers.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let asked = request("counter", &format!("ours {worker}"), LONG);
                let lease = loop {
                    if let Acquired::Granted(lease) = store.acquire(&asked).await.unwrap() {
                        break lease;
                    }
                    tokio::time::sleep(PAUSE).await;
                };
                count(&counter).await;
                assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
            }
        }));
        let (counter, redis) = (shared.clone(), redis.clone());
        workers.push(tokio::spawn(async move {
            let holder = format!("theirs {worker}");
            for _ in 0..TURNS {
                while !they_take(&redis, "counter", &holder, 600_000) {
                    tokio::time::sleep(PAUSE).await;
                }
                count(&counter).await;
                assert!(they_free(&redis, "counter", &holder));
            }
        }));
    }
    for worker in workers {
        soon("a worker", worker).await.unwrap();
    }
    assert_eq!(shared.load(Ordering::SeqCst), 12 * TURNS);
}

/// Not atomic, on purpose: only the lease keeps another from counting in between.
async fn count(counter: &AtomicU64) {
    let count = counter.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_micros(200)).await;
    counter.store(count + 1, Ordering::SeqCst);
}
