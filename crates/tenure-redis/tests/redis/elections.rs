//! Real electors: a handover is pushed, an expiry is met, an outage is no permission.

use std::time::Duration;

use tenure::{
    BootClock, Clock, Elector, EndReason, Holder, HolderRequest, Settings, Store, Timing,
};
use tenure_redis::RedisStore;
use tenure_testbed::{Redis, RedisCluster};

use crate::support::{granted, key, open, soon, until};

/// With this, polling comes only after twenty seconds.
const SLOW: Duration = Duration::from_secs(60);
/// What comes within this time was pushed, or met at its moment.
const PUSHED: Duration = Duration::from_secs(8);

fn elector(store: RedisStore, holder: &str, ttl: Duration) -> Elector {
    let settings = Settings::new("k").unwrap();
    let settings = settings.holder(Holder::new(holder).unwrap());
    Elector::start(store, settings.timing(Timing::with_ttl(ttl))).unwrap()
}

async fn follows(waiter: &Elector, holder: &str) {
    until("the waiter to follow", async || {
        let leader = waiter.leader()?;
        (leader.holder.as_str() == holder).then_some(())
    })
    .await;
    // It begins to watch when it has somebody to follow.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

async fn handed_over(one: RedisStore, two: RedisStore) {
    let leader = elector(one, "one", SLOW);
    let first = soon("a leader", leader.elected()).await.unwrap();
    let waiter = elector(two, "two", SLOW);
    follows(&waiter, "one").await;
    let began = BootClock.now();
    leader.stop().await;
    let second = soon("the next leader", waiter.elected()).await.unwrap();
    let took = BootClock.now() - began;
    assert!(took < PUSHED, "took {took:?}, so it was polled");
    assert!(second.token() > first.token());
    waiter.stop().await;
}

#[tokio::test]
async fn release_is_pushed_to_the_waiter() {
    let Some(redis) = Redis::start() else { return };
    handed_over(open(&redis.url()), open(&redis.url())).await;
}

#[tokio::test]
async fn release_is_pushed_to_the_waiter_in_a_cluster() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    handed_over(open(&cluster.url()), open(&cluster.url())).await;
}

#[tokio::test]
async fn end_of_a_term_is_met_at_its_moment() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let ttl = Duration::from_secs(2);
    let began = BootClock.now();
    granted(&store, "k", "gone", ttl).await;
    let waiter = elector(store, "two", SLOW);
    soon("the next leader", waiter.elected()).await.unwrap();
    let took = BootClock.now() - began;
    assert!(took >= ttl * 99 / 100 && took < ttl + PUSHED, "{took:?}");
    waiter.stop().await;
}

#[tokio::test]
async fn request_to_step_down_reaches_the_leader_at_once() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let leader = elector(open(&redis.url()), "one", SLOW);
    let tenure = soon("a leader", leader.elected()).await.unwrap();
    // It watches from its first renewal on.
    let renewal = store.read(&key("k")).await.unwrap().unwrap().version;
    until("the first renewal", async || {
        let version = store.read(&key("k")).await.unwrap()?.version;
        (version != renewal).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = BootClock.now();
    store.ask(&key("k"), HolderRequest::StepDown).await.unwrap();
    let reason = soon("the end", tenure.ended()).await;
    assert_eq!(reason, EndReason::AskedToStepDown);
    let took = BootClock.now() - began;
    assert!(took < PUSHED, "took {took:?}");
    leader.stop().await;
}

/// A server that stands still for longer than the term: the leader steps down by its own
/// deadline, and leads again with a greater token when the server goes on.
#[tokio::test]
async fn server_stopped_for_longer_than_the_term_is_no_permission() {
    let Some(redis) = Redis::start() else { return };
    let ttl = Duration::from_secs(3);
    let leader = elector(open(&redis.url()), "one", ttl);
    let first = soon("a leader", leader.elected()).await.unwrap();
    let other = elector(open(&redis.url()), "two", ttl);
    follows(&other, "one").await;
    redis.pause();
    let stopped = BootClock.now();
    soon("the end", first.ended()).await;
    assert!(BootClock.now() - stopped <= ttl, "by its own deadline");
    assert!(!leader.is_leader() && !other.is_leader());
    tokio::time::sleep((stopped + ttl + Duration::from_millis(500)) - BootClock.now()).await;
    assert!(
        !leader.is_leader() && !other.is_leader(),
        "no answer makes no leader"
    );
    redis.resume();
    let next = soon("the next leader", async {
        tokio::select! {
            tenure = leader.elected() => tenure,
            tenure = other.elected() => tenure,
        }
    });
    let next = next.await.unwrap();
    assert!(next.token() > first.token());
    assert!(!(leader.is_leader() && other.is_leader()), "one at a time");
    leader.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn server_restarted_while_held_costs_no_leadership() {
    let Some(redis) = Redis::start() else { return };
    let leader = elector(open(&redis.url()), "one", Duration::from_secs(6));
    let tenure = soon("a leader", leader.elected()).await.unwrap();
    let restart = tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.restart()
    });
    restart.await.unwrap();
    let store = open(&redis.url());
    let before = until("the server", async || {
        store.read(&key("k")).await.ok().flatten()
    })
    .await;
    until("a renewal after it", async || {
        let now = store.read(&key("k")).await.ok().flatten()?;
        (now.version != before.version).then_some(())
    })
    .await;
    assert!(tenure.is_valid() && leader.is_leader());
    leader.stop().await;
}
