//! One fleet with MaksIT.HAMode: its rule and ours exclude each other, both ways.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Acquired, Asked, ErrorKind, HolderRequest, Loss, Released, Renewed, Store, Token};

use tenure_postgres::PostgresStore;

use support::{Bed, Hamode, LONG, failed, granted, held, key, request, soon, until};

const HOUR: i64 = 3600;

#[tokio::test]
async fn its_lease_is_held_for_us_until_it_releases() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    assert!(
        peer.try_acquire("k", "theirs", Duration::from_secs(60))
            .await
    );
    let seen = held(&store, "k", "ours").await;
    assert_eq!(seen.holder.as_str(), "theirs");
    assert_eq!(seen.token, Token(1), "the best that can be known");
    assert_eq!(seen.attempt, None);
    assert_eq!(seen.ttl, Duration::from_secs(60));
    assert!(seen.rest.unwrap() > Duration::from_secs(50));
    assert_eq!(
        store.read(&key("k")).await.unwrap().unwrap().holder,
        seen.holder
    );
    assert_eq!(store.list("", 9).await.unwrap().len(), 1);
    // It raises the version with each renewal.
    assert!(
        peer.try_acquire("k", "theirs", Duration::from_secs(60))
            .await
    );
    assert_eq!(held(&store, "k", "ours").await.token, Token(2));
    peer.release("k", "theirs").await;
    let lease = granted(&store, "k", "ours", LONG).await;
    assert!(lease.token > Token(2), "{lease:?}");
}

#[tokio::test]
async fn its_ended_lease_is_ours_with_a_greater_token() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    let first = granted(&store, "k", "ours", LONG).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    let ttl = Duration::from_millis(200);
    assert!(peer.try_acquire("k", "theirs", ttl).await);
    let theirs = store.read(&key("k")).await.unwrap().unwrap();
    assert_eq!(theirs.token, Token(first.token.0 + 1), "it counts on");
    let sample = request("k", "ours", LONG);
    let taken = until("the end of its lease", async || {
        match store.acquire(&sample).await.unwrap() {
            Acquired::Granted(lease) => Some(lease),
            Acquired::Held(_) => None,
        }
    })
    .await;
    assert!(taken.token > theirs.token, "{taken:?} after {theirs:?}");
}

#[tokio::test]
async fn our_lease_is_held_for_it_until_we_release() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    let lease = granted(&store, "k", "ours", LONG).await;
    assert!(!peer.try_acquire("k", "theirs", LONG).await);
    let Renewed::Renewed(lease, _) = store.renew(&lease, LONG).await.unwrap() else {
        panic!("our own renewal");
    };
    assert!(!peer.try_acquire("k", "theirs", LONG).await);
    peer.release("k", "theirs").await;
    assert_eq!(held(&store, "k", "other").await.token, lease.token);
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert!(peer.try_acquire("k", "theirs", LONG).await);
    let loss = store.renew(&lease, LONG).await.unwrap();
    let (holder, token) = (
        tenure::Holder::new("theirs").unwrap(),
        Token(lease.token.0 + 1),
    );
    assert_eq!(loss, Renewed::Lost(Loss::Superseded { holder, token }));
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn what_we_released_is_free_for_a_peer_whose_clock_is_behind() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    for hours in [-24 * 365, -1, 1] {
        let name = format!("k{hours}");
        let lease = granted(&store, &name, "ours", Duration::from_secs(60)).await;
        let peer = Hamode::new(&bed).await.clock_ahead(hours * HOUR);
        if hours < 0 {
            assert!(!peer.try_acquire(&name, "theirs", LONG).await);
        }
        assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
        assert_eq!(store.read(&lease.key).await.unwrap(), None);
        assert!(peer.try_acquire(&name, "theirs", LONG).await, "{hours} h");
    }
}

#[tokio::test]
async fn tokens_grow_after_it_deletes_the_row() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    let mut last = Token(0);
    for _ in 0..5 {
        let lease = granted(&store, "k", "ours", LONG).await;
        assert!(lease.token > last, "{lease:?} after {last}");
        last = lease.token;
        assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
        assert!(peer.try_acquire("k", "theirs", LONG).await);
        peer.release("k", "theirs").await;
        assert_eq!(bed.sql("SELECT count(*) FROM TABLE").await.unwrap(), "0");
    }
}

/// Our columns lie in the row that it has overwritten; none of them may be believed.
#[tokio::test]
async fn what_we_wrote_before_it_took_over_counts_for_nothing() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    let sample = request("k", "same name", Duration::from_secs(60));
    let Acquired::Granted(first) = store.acquire(&sample).await.unwrap() else {
        panic!("a free key");
    };
    let asked = store.ask(&key("k"), HolderRequest::StepDown).await.unwrap();
    assert!(matches!(asked, Asked::Left { .. }));
    // A process of the same holder name, by its own rule, takes what is live.
    let ttl = Duration::from_secs(33);
    assert!(peer.try_acquire("k", "same name", ttl).await);
    let stale = bed.sql("SELECT tenure_request FROM TABLE").await;
    assert_eq!(
        stale.as_deref(),
        Some("step-down"),
        "it leaves our columns be"
    );
    let seen = store.read(&key("k")).await.unwrap().unwrap();
    assert_eq!(
        (seen.attempt, seen.ttl),
        (None, ttl),
        "neither attempt nor ttl"
    );
    // The same attempt was granted another tenure, which has ended.
    let Acquired::Held(seen) = store.acquire(&sample).await.unwrap() else {
        panic!("a lease of another tenure was taken for that attempt's");
    };
    assert_eq!(seen.token, Token(first.token.0 + 1));
    let lost = store.renew(&first, LONG).await.unwrap();
    assert!(
        matches!(lost, Renewed::Lost(Loss::Superseded { .. })),
        "{lost:?}"
    );
    // Nor is it asked what the tenure before was asked, nor can it be.
    let error = failed(store.ask(&key("k"), HolderRequest::StepDown).await);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("same name"), "{error}");
    // By holder and token, as the contract has it, its lease can be renewed.
    let Renewed::Renewed(renewed, request) = store.renew(&seen, LONG).await.unwrap() else {
        panic!("holder and token are the record's");
    };
    assert_eq!((renewed.attempt, request), (None, None));
}

/// What a mixed fleet is as safe as: its own clock makes a peer take what is ours. Then
/// the holder learns of it, and the token tells the two apart.
#[tokio::test]
async fn a_peer_whose_clock_is_ahead_takes_ours_and_we_learn_of_it() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let peer = Hamode::new(&bed).await.clock_ahead(HOUR);
    let lease = granted(&store, "k", "ours", Duration::from_secs(60)).await;
    assert!(
        peer.try_acquire("k", "theirs", Duration::from_secs(60))
            .await
    );
    let lost = store.renew(&lease, LONG).await.unwrap();
    let Renewed::Lost(Loss::Superseded { holder, token }) = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(holder.as_str(), "theirs");
    assert!(token > lease.token);
    // By the server's clock its lease lasts an hour longer than it means.
    let seen = held(&store, "k", "ours").await;
    assert!(seen.rest.unwrap() > Duration::from_secs(3600));
    assert_eq!(seen.ttl, Duration::from_secs(60));
}

/// A plain counter that only a lease protects.
#[derive(Default)]
struct Counter {
    count: AtomicU64,
    inside: AtomicBool,
}

impl Counter {
    async fn count(&self) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two at a time");
        let seen = self.count.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_micros(300)).await;
        self.count.store(seen + 1, Ordering::SeqCst);
        assert!(self.inside.swap(false, Ordering::SeqCst));
    }
}

const TURNS: u64 = 12;

async fn count_by_our_rule(store: PostgresStore, name: String, counter: Arc<Counter>) {
    let mut last = Token(0);
    for _ in 0..TURNS {
        let sample = request("counter", &name, LONG);
        let lease = loop {
            match store.acquire(&sample).await.unwrap() {
                Acquired::Granted(lease) => break lease,
                Acquired::Held(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert!(lease.token > last);
        last = lease.token;
        counter.count().await;
        assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    }
}

async fn count_by_its_rule(peer: Hamode, name: String, counter: Arc<Counter>) {
    for _ in 0..TURNS {
        while !peer.try_acquire("counter", &name, LONG).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        counter.count().await;
        peer.release("counter", &name).await;
    }
}

/// Four of each kind contend for one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_kinds_at_once_lose_no_count() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let counter = Arc::<Counter>::default();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        tasks.spawn(count_by_our_rule(
            bed.store(),
            format!("ours {n}"),
            counter.clone(),
        ));
        let peer = Hamode::new(&bed).await;
        tasks.spawn(count_by_its_rule(
            peer,
            format!("theirs {n}"),
            counter.clone(),
        ));
    }
    soon("the contenders", tasks.join_all()).await;
    assert_eq!(counter.count.load(Ordering::SeqCst), 8 * TURNS);
}

/// A table that HAMode has made is used as it is, after our columns were added.
#[tokio::test]
async fn its_table_becomes_ours_too() {
    let Some(url) = support::blocking(tenure_testbed::Postgres::shared_url).await else {
        return;
    };
    let bed = Bed::without_table(&url);
    let create = format!(
        "CREATE TABLE public.\"{}\" (lease_name text NOT NULL PRIMARY KEY,
           holder_id text NOT NULL, version bigint NOT NULL DEFAULT 1,
           acquired_at_utc timestamptz NOT NULL, expires_at_utc timestamptz NOT NULL)",
        bed.table
    );
    bed.by_hand().await.batch_execute(&create).await.unwrap();
    let (store, peer) = (bed.store(), Hamode::new(&bed).await);
    assert!(peer.try_acquire("k", "theirs", LONG).await);
    let error = failed(store.acquire(&request("k", "ours", LONG)).await);
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("tenure_"), "{error}");
    let said = store.init().await.unwrap();
    assert!(said.starts_with("Added tenure_version"), "{said}");
    assert!(store.init().await.unwrap().contains("nothing to do"));
    assert_eq!(held(&store, "k", "ours").await.holder.as_str(), "theirs");
    assert!(peer.try_acquire("k", "theirs", LONG).await, "it goes on");
    peer.release("k", "theirs").await;
    granted(&store, "k", "ours", LONG).await;
}
