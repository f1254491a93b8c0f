//! Races: many ask at the same time, each over a store of its own (promise 1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{AcquireRequest, Acquired, Key, Released, Renewed, Store};

use crate::stage::{Stage, key, ok};

const ROUNDS: usize = 12;

fn contenders(stage: &Stage, key: &Key, count: usize) -> Vec<AcquireRequest> {
    let names = (0..count).map(|n| format!("contender {n}"));
    names.map(|name| stage.request(key, &name)).collect()
}

/// Two ask for a free key at once: one gets it, the other is told who.
pub(crate) async fn two_contenders_one_is_granted(stage: &Stage) {
    for round in 0..ROUNDS {
        let key = key(&format!("two/{round}"));
        let winner = stage.race(contenders(stage, &key, 2)).await;
        stage.renewed(&winner).await;
    }
}

/// Thirty-two ask for a free key at once: one gets it.
pub(crate) async fn thirty_two_contenders_one_is_granted(stage: &Stage) {
    for round in 0..3 {
        let key = key(&format!("thirty-two/{round}"));
        let winner = stage.race(contenders(stage, &key, 32)).await;
        stage.renewed(&winner).await;
    }
}

/// A key that was released is as free as one that never was: one gets it, with a
/// greater token.
pub(crate) async fn contenders_for_a_released_key_one_is_granted(stage: &Stage) {
    let key = key("released");
    let mut last = stage.take(&key, "first").await;
    for _ in 0..ROUNDS / 3 {
        assert_eq!(stage.release(&last).await, Released::Released);
        let winner = stage.race(contenders(stage, &key, 8)).await;
        assert!(winner.token > last.token, "{winner:?} after {last:?}");
        last = winner;
    }
}

/// An ended lease is taken by one of those who wait for it, with a greater token.
pub(crate) async fn contenders_for_an_ended_lease_one_is_granted(stage: &Stage) {
    let key = key("ended");
    let first = stage.take_briefly(&key, "first").await;
    let sample = stage.succession(&first, "sample").await;
    let mut requests = contenders(stage, &key, 16);
    for request in &mut requests {
        request.ended.clone_from(&sample.ended);
    }
    let winner = stage.race(requests).await;
    assert!(winner.token > first.token, "{winner:?} after {first:?}");
    stage.renewed(&winner).await;
}

/// The same attempt sent several times at once is one tenure (promise 5).
pub(crate) async fn repeated_attempt_at_once_is_one_tenure(stage: &Stage) {
    for round in 0..ROUNDS / 2 {
        let request = stage.request(&key(&format!("again/{round}")), "a");
        let same = (0..6).map(|_| {
            let request = request.clone();
            |store: Arc<dyn Store>| async move { store.acquire(&request).await }
        });
        let mut tokens = Vec::new();
        for answer in stage.at_once(same.collect()).await {
            match ok("acquire", answer) {
                Acquired::Granted(lease) => tokens.push(lease.token),
                held => panic!("an attempt was refused because of itself: {held:?}"),
            }
        }
        tokens.dedup();
        assert_eq!(
            tokens.len(),
            1,
            "one attempt, one tenure, but tokens {tokens:?}"
        );
    }
}

/// Workers read a plain counter, let others run, and write it back, each while it has
/// the lease. No count may be lost.
pub(crate) async fn contended_counter_loses_no_count(stage: &Stage) {
    const WORKERS: usize = 6;
    const TURNS: u64 = 8;
    let key = key("counter");
    let counter = Arc::new(AtomicU64::new(0));
    let workers = (0..WORKERS).map(|worker| {
        let requests: Vec<_> = (0..TURNS)
            .map(|_| stage.request(&key, &format!("worker {worker}")))
            .collect();
        let counter = Arc::clone(&counter);
        |store: Arc<dyn Store>| async move {
            for request in requests {
                count_once(&*store, &request, &counter).await;
            }
        }
    });
    stage.at_once(workers.collect()).await;
    let counted = counter.load(Ordering::SeqCst);
    assert_eq!(
        counted,
        WORKERS as u64 * TURNS,
        "two had the lease at a time"
    );
}

async fn count_once(store: &dyn Store, request: &AcquireRequest, counter: &AtomicU64) {
    let lease = loop {
        match ok("acquire", store.acquire(request).await) {
            Acquired::Granted(lease) => break lease,
            Acquired::Held(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    // Not atomic, on purpose: only the lease keeps another from writing in between.
    let count = counter.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_micros(300)).await;
    counter.store(count + 1, Ordering::SeqCst);
    let released = ok("release", store.release(&lease).await);
    assert_eq!(released, Released::Released, "it was the worker's own");
}

/// At the end of a term the holder renews and another takes over at the same moment:
/// never do both succeed.
pub(crate) async fn renewal_and_takeover_never_both_succeed(stage: &Stage) {
    for round in 0..ROUNDS {
        let key = key(&format!("at the end/{round}"));
        let ttl = stage.short();
        let mut request = stage.request(&key, "a");
        if stage.traits.own_clock {
            request.ttl = ttl;
        }
        let lease = stage.granted(&request).await;
        let mut takeover = stage.request(&key, "b");
        takeover.ended = Some(lease.version.clone());
        if stage.traits.own_clock {
            // Each round a little later, from just before the end to just after it.
            let part = u32::try_from(round).unwrap_or(0) * 4 + 960;
            stage.harness.pass_time(ttl * part / 1000).await;
        }
        let long = stage.long();
        let taker = stage.harness.store().await;
        let take_over = async {
            // Asks on until the term has ended for sure, unless it was renewed.
            for _ in 0..8 {
                let answer = ok("acquire", taker.acquire(&takeover).await);
                if matches!(answer, Acquired::Granted(_)) {
                    return answer;
                }
                stage.harness.pass_time(ttl / 100).await;
            }
            ok("acquire", taker.acquire(&takeover).await)
        };
        let renew = async { ok("renew", stage.store().renew(&lease, long).await) };
        let (renewed, taken) = tokio::join!(renew, take_over);
        let both = (&renewed, &taken);
        let both_won = matches!(both, (Renewed::Renewed(..), Acquired::Granted(_)));
        assert!(
            !both_won,
            "a renewal and a takeover both succeeded: {both:?}"
        );
        if !stage.traits.own_clock {
            let nobody = matches!(both, (Renewed::Lost(_), Acquired::Held(_)));
            assert!(
                !nobody,
                "one compare-and-swap of the two must succeed: {both:?}"
            );
        }
    }
}

/// A release that is sent twice at once is one release.
pub(crate) async fn release_at_once_succeeds_once(stage: &Stage) {
    for round in 0..ROUNDS / 2 {
        let lease = stage.take(&key(&format!("twice/{round}")), "a").await;
        let releases = (0..4).map(|_| {
            let lease = lease.clone();
            |store: Arc<dyn Store>| async move { store.release(&lease).await }
        });
        let answers = stage.at_once(releases.collect()).await;
        let released = answers
            .into_iter()
            .map(|answer| ok("release", answer))
            .filter(|answer| *answer == Released::Released);
        assert_eq!(released.count(), 1, "a lease is released once");
    }
}
