//! Through PgBouncer in transaction mode, where two statements of one client may run in two sessions.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{BootClock, Clock, ErrorKind, Notice, Store};
use tenure_testbed::{PgBouncer, Postgres};

use support::{Bed, LONG, blocking, granted, held, key, soon};

async fn start() -> Option<(Postgres, PgBouncer, Bed, Bed)> {
    let server = blocking(Postgres::start).await?;
    let pooler = blocking({
        let server = server.clone();
        move || server.pgbouncer()
    })
    .await?;
    let direct = Bed::on(&server).await;
    let pooled = direct.elsewhere(&pooler.url());
    Some((server, pooler, direct, pooled))
}

#[tokio::test]
async fn both_ways_are_one_store() {
    let Some((_server, _pooler, direct, pooled)) = start().await else {
        return;
    };
    let (near, far) = (direct.store(), pooled.store_with("&listen=off"));
    let lease = granted(&far, "k", "a", LONG).await;
    assert_eq!(held(&near, "k", "b").await.token, lease.token);
    // What changes hands through the pooler is heard by who listens directly.
    let mut notices = near.watch(&lease.key).await.unwrap();
    far.release(&lease).await.unwrap();
    assert_eq!(soon("the notice", notices.next()).await, Some(Notice::Free));
}

/// That words do not come through is found out, said, and not tried again at each poll.
#[tokio::test]
async fn pooler_that_passes_on_no_words_is_found_out() {
    let Some((_server, _pooler, direct, pooled)) = start().await else {
        return;
    };
    let store = pooled.store();
    let error = soon("the watch", store.watch(&key("k")))
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("listen=HOST:PORT"), "{error}");
    let began = BootClock.now();
    let again = store.watch(&key("k")).await.err().unwrap();
    assert_eq!(again.kind(), ErrorKind::Unsupported);
    assert!(
        BootClock.now() - began < Duration::from_millis(500),
        "remembered"
    );
    // Everything else works, and no session of the server was left listening.
    let lease = granted(&store, "k", "a", LONG).await;
    store.release(&lease).await.unwrap();
    for _ in 0..8 {
        let left = pooled
            .sql("SELECT count(*) FROM pg_listening_channels()")
            .await;
        assert_eq!(left.as_deref(), Some("0"));
    }
    granted(&direct.store(), "k", "b", LONG).await;
}

#[tokio::test]
async fn listening_goes_round_the_pooler() {
    let Some((server, _pooler, direct, pooled)) = start().await else {
        return;
    };
    let store = pooled.store_with(&format!("&listen={}", server.address()));
    let mut notices = soon("the watch", store.watch(&key("k"))).await.unwrap();
    granted(&store, "k", "a", LONG).await;
    assert!(matches!(
        soon("a notice", notices.next()).await,
        Some(Notice::Held(_))
    ));
    let lease = held(&direct.store(), "k", "b").await;
    direct.store().release(&lease).await.unwrap();
    assert_eq!(soon("a notice", notices.next()).await, Some(Notice::Free));
}
