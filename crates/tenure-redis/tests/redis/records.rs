//! The record as others see it, and what stands beside it, for how long.

use std::time::Duration;

use tenure::{Released, Store};
use tenure_redis::{RedisOptions, RedisStore};
use tenure_testbed::{Redis, Reply};

use crate::support::{LONG, beside, granted, number, open, record};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn field(redis: &Redis, key: &str, field: &str) -> String {
    redis
        .command(&["HGET", &beside(key), field])
        .text()
        .unwrap()
}

#[tokio::test]
async fn record_is_the_one_that_others_read() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let ttl = Duration::from_millis(20_000);
    let lease = granted(&store, "jobs/nightly", "node-1", ttl).await;
    let record = record("jobs/nightly");
    assert_eq!(
        redis.command(&["GET", &record]).text().as_deref(),
        Some("node-1")
    );
    let rest = number(&redis.command(&["PTTL", &record]));
    assert!((15_000..=20_000).contains(&rest), "{rest}");
    let ends = redis.command(&["PEXPIRETIME", &record]);
    let name = "jobs/nightly";
    assert_eq!(field(&redis, name, "token"), lease.token.to_string());
    assert_eq!(field(&redis, name, "holder"), "node-1");
    assert_eq!(field(&redis, name, "until"), number(&ends).to_string());
    assert_eq!(field(&redis, name, "ttl"), "20000000000");
    let attempt = lease.attempt.unwrap().as_u64().to_string();
    assert_eq!(field(&redis, name, "attempt"), attempt);
    // Two keys for a lease, and no more.
    assert_eq!(redis.command(&["DBSIZE"]), Reply::Int(2));
}

/// The token is the server's clock in microseconds, to the digit.
#[tokio::test]
async fn token_follows_the_clock_of_the_server() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let clock = || {
        let Reply::List(time) = redis.command(&["TIME"]) else {
            panic!("TIME gives two numbers");
        };
        u64::try_from(number(&time[0]) * 1_000_000 + number(&time[1])).unwrap()
    };
    let before = clock();
    let lease = granted(&store, "k", "a", LONG).await;
    let after = clock();
    assert!(
        (before..=after).contains(&lease.token.0),
        "{before} {lease:?} {after}"
    );
    assert_eq!(field(&redis, "k", "since"), lease.token.to_string());
}

/// What stands beside a record goes within two days of the lease, so their number is
/// bounded, and not within one.
#[tokio::test]
async fn what_stands_beside_ends_a_day_or_two_after_the_lease() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let beside = beside("k");
    let rest = |name: &str| number(&redis.command(&["PTTL", name]));
    let close = |is: i64, should: i64| (is - should).abs() < 20_000;
    let lease = granted(&store, "k", "a", Duration::from_secs(60)).await;
    let long = 2 * DAY_MS + 60_000;
    assert!(close(rest(&beside), long), "{}", rest(&beside));
    // Not with every renewal, but before less than a day would be left.
    store.renew(&lease, LONG).await.unwrap();
    assert!(close(rest(&beside), long), "{}", rest(&beside));
    // Counted from the end of the term before, which is not later than the new one.
    for by_hand in [DAY_MS + 1_300_000, DAY_MS + 1_100_000] {
        let ends: i64 = field(&redis, "k", "until").parse().unwrap();
        let kept = (ends - 600_000 + by_hand).to_string();
        redis.command(&["PEXPIREAT", &beside, &kept]);
        redis.command(&["HSET", &beside, "kept", &kept]);
        store.renew(&lease, LONG).await.unwrap();
        let prolonged = by_hand < DAY_MS + 1_200_000;
        let should = if prolonged {
            2 * DAY_MS + 600_000
        } else {
            by_hand
        };
        assert!(close(rest(&beside), should), "{}", rest(&beside));
        let kept = field(&redis, "k", "kept");
        let ends = redis.command(&["PEXPIRETIME", &beside]);
        assert_eq!(kept, number(&ends).to_string());
    }
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert!(close(rest(&beside), DAY_MS), "{}", rest(&beside));
    assert_eq!(redis.command(&["EXISTS", &record("k")]), Reply::Int(0));
    // After that the clock alone makes tokens grow.
    redis.command(&["DEL", &beside]);
    assert!(granted(&store, "k", "a", LONG).await.token > lease.token);
}

#[tokio::test]
async fn other_prefixes_are_other_leases() {
    let Some(redis) = Redis::start() else { return };
    let prefixed = |prefix: &str| {
        let options = RedisOptions::from_url(&redis.url()).unwrap().prefix(prefix);
        RedisStore::open(options).unwrap()
    };
    let (one, two) = (prefixed("my-app/runtime-leases:"), prefixed("[*]?:"));
    granted(&one, "k", "a", LONG).await;
    granted(&two, "k", "b", LONG).await;
    let value = redis.command(&["GET", "my-app/runtime-leases:k"]);
    assert_eq!(value.text().as_deref(), Some("a"));
    let listed = two.list("", 10).await.unwrap();
    assert_eq!(listed.len(), 1, "a prefix is no pattern");
    assert_eq!(listed[0].holder.as_str(), "b");
}

/// More leases than one step of SCAN or one batch of reads takes.
#[tokio::test]
async fn list_goes_on_over_many_steps() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let fill = "for n = 1, 3000 do redis.call('SET', 'other:' .. n, n) end \
        for n = 1000, 1999 do redis.call('PSETEX', 'app_runtime_leases:' .. n, 600000, 'h') end";
    redis.command(&["EVAL", fill, "0"]);
    let all = store.list("", usize::MAX).await.unwrap();
    assert_eq!(all.len(), 1000);
    let some = store.list("15", 30).await.unwrap();
    let names: Vec<_> = some.iter().map(|lease| lease.key.to_string()).collect();
    let expected: Vec<_> = (1500..1530).map(|n: u32| n.to_string()).collect();
    assert_eq!(names, expected);
}
