//! One fleet with programs that run the article's own statements, on the stand-in.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod standin;

use std::time::Duration;

use tenure::{Acquired, Asked, ErrorKind, HolderRequest, Loss, Released, Renewed, Store, Token};

use standin::database::Value;
use standin::{LONG, StandIn, TABLE, granted, key, open, request};

const SECOND: i64 = 10_000_000;

/// Its table, to which `init` has added our columns.
async fn fleet() -> (StandIn, tenure_sqlserver::SqlServerStore) {
    let server = StandIn::start().await;
    server.database.create(TABLE, 200);
    let store = server.store().await;
    (server, store)
}

fn now(server: &StandIn) -> i64 {
    server.database.lock().now()
}

#[tokio::test]
async fn its_lease_is_a_lease() {
    let (server, store) = fleet().await;
    let now = now(&server);
    assert!(
        server
            .database
            .article_acquires(TABLE, "k", "theirs", now, 60 * SECOND)
    );
    let Acquired::Held(seen) = store.acquire(&request("k", "ours", LONG)).await.unwrap() else {
        panic!("it is held");
    };
    assert_eq!(seen.holder.as_str(), "theirs");
    assert_eq!((seen.token, seen.attempt), (Token(1), None));
    let rest = seen.rest.unwrap();
    assert!(
        rest <= Duration::from_secs(60) && rest > Duration::from_secs(30),
        "{rest:?}"
    );
    assert_eq!(store.list("", 9).await.unwrap().len(), 1);
    let error = store
        .ask(&key("k"), HolderRequest::StepDown)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        server
            .database
            .article_renews(TABLE, "k", "theirs", now, 90 * SECOND)
    );
}

/// A row without a token is taken over once it has ended, with a greater one than any.
#[tokio::test]
async fn its_ended_lease_is_taken_over() {
    let (server, store) = fleet().await;
    let long_ago = now(&server) - 100 * SECOND;
    assert!(
        server
            .database
            .article_acquires(TABLE, "k", "theirs", long_ago, 60 * SECOND)
    );
    assert_eq!(store.read(&key("k")).await.unwrap(), None);
    let lease = granted(&store, "k", "ours").await;
    assert!(lease.token > Token(1_000_000), "{lease:?}");
    let now = now(&server);
    assert!(
        !server
            .database
            .article_acquires(TABLE, "k", "theirs", now, SECOND),
        "ours now"
    );
    assert!(
        !server
            .database
            .article_renews(TABLE, "k", "theirs", now, SECOND)
    );
}

/// What we have released is free for it, even if its clock is years behind.
#[tokio::test]
async fn what_we_released_is_free_for_it() {
    let (server, store) = fleet().await;
    let lease = granted(&store, "k", "ours").await;
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert!(
        server
            .database
            .article_acquires(TABLE, "k", "theirs", 1, 60 * SECOND)
    );
}

/// By a wrong clock it takes our live lease. Our columns are then of an earlier state, and
/// count for nothing, not even for a holder of the same name.
#[tokio::test]
async fn what_it_took_is_lost() {
    for theirs in ["theirs", "ours"] {
        let (server, store) = fleet().await;
        let lease = granted(&store, "k", "ours").await;
        let ahead = now(&server) + 700 * SECOND;
        assert!(
            server
                .database
                .article_acquires(TABLE, "k", theirs, ahead, 60 * SECOND)
        );
        let answer = store.renew(&lease, LONG).await.unwrap();
        let Renewed::Lost(Loss::Superseded { holder, token }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(holder.as_str(), theirs);
        assert!(token > lease.token, "{token} after {}", lease.token);
        assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
        let mut again = request("k", "ours", LONG);
        again.attempt = lease.attempt.unwrap();
        let answer = store.acquire(&again).await.unwrap();
        assert!(matches!(answer, Acquired::Held(_)), "{answer:?}");
        let left = store.ask(&key("k"), HolderRequest::StepDown).await;
        assert!(!matches!(left, Ok(Asked::Left { .. })), "{left:?}");
    }
}

/// Tokens grow over its tenures, even if the server's clock is set back meanwhile.
#[tokio::test]
async fn tokens_grow_over_its_tenures() {
    let (server, store) = fleet().await;
    let first = granted(&store, "k", "ours").await;
    store.release(&first).await.unwrap();
    server.database.lock().clock_ahead_ticks = -3600 * SECOND;
    let now = now(&server);
    assert!(
        server
            .database
            .article_acquires(TABLE, "k", "theirs", now, 60 * SECOND)
    );
    let seen = store.read(&key("k")).await.unwrap().unwrap();
    assert!(seen.token > first.token);
    server.database.lock().clock_ahead_ticks = -3000 * SECOND;
    let next = granted(&store, "k", "ours").await;
    assert!(next.token > seen.token, "{next:?} after {seen:?}");
}

/// A column that ignores case: two keys are never one lease, and nothing is written.
#[tokio::test]
async fn a_column_that_ignores_case() {
    let (server, store) = fleet().await;
    server.database.lock().ignores_case = true;
    let said = store.init().await.unwrap();
    assert!(said.contains("SQL_Latin1_General_CP1_CI_AS"), "{said}");
    let lease = granted(&store, "Key", "a").await;
    for answer in [
        store.acquire(&request("key", "b", LONG)).await.map(drop),
        store.read(&key("key")).await.map(drop),
        store
            .ask(&key("key"), HolderRequest::StepDown)
            .await
            .map(drop),
        store
            .renew(
                &tenure::Lease {
                    key: key("key"),
                    ..lease.clone()
                },
                LONG,
            )
            .await
            .map(drop),
        store
            .release(&tenure::Lease {
                key: key("key"),
                ..lease.clone()
            })
            .await
            .map(drop),
    ] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("\"Key\" for one"), "{error}");
    }
    // An ended lease of the other name is not taken over either.
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    store.acquire(&request("key", "b", LONG)).await.unwrap_err();
    granted(&store, "Key", "b").await;
    // Two holders that differ in case are two.
    let other = tenure::Lease {
        holder: tenure::Holder::new("B").unwrap(),
        ..store.read(&key("Key")).await.unwrap().unwrap()
    };
    assert_eq!(store.release(&other).await.unwrap(), Released::NotHeld);
}

/// A row that cannot be read is named and never overwritten.
#[tokio::test]
async fn rows_that_cannot_be_read() {
    let (server, store) = fleet().await;
    for (column, value) in [
        ("Token", Value::Number(-1)),
        ("Token", Value::Number(1 << 53)),
        ("Token", Value::Number(i64::MAX)),
        ("OwnerId", Value::Null),
        ("ExpiresAtUtc", Value::Null),
    ] {
        for ended in [false, true] {
            let lease = granted(&store, "k", "ours").await;
            {
                let mut inner = server.database.lock();
                let row = inner
                    .tables
                    .get_mut(TABLE)
                    .unwrap()
                    .rows
                    .get_mut("k")
                    .unwrap();
                if ended {
                    row.insert("ExpiresAtUtc".into(), Value::Time(1));
                }
                row.insert(column.into(), value.clone());
            }
            let before = server.database.lock().tables[TABLE].rows.clone();
            let error = store.acquire(&request("k", "b", LONG)).await.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Corrupt,
                "{column} {value:?} {ended}: {error}"
            );
            assert!(error.to_string().contains("\"k\""), "{error}");
            let _ = store.renew(&lease, LONG).await;
            let _ = store.release(&lease).await;
            assert_eq!(server.database.lock().tables[TABLE].rows, before);
            server.database.delete(TABLE, "k");
        }
    }
}

/// Half a millisecond must not be lost by rounding, and what loses more is refused.
#[tokio::test]
async fn a_term_is_never_cut_short() {
    let (server, store) = fleet().await;
    for fraction in [0, 1, 4_999, 5_000, 5_001, 9_999] {
        let name = format!("k{fraction}");
        server.database.lock().clock_ahead_ticks = fraction;
        let ttl = Duration::from_millis(1500) + Duration::from_micros(fraction.unsigned_abs());
        let asked = request(&name, "a", ttl);
        let answer = store.acquire(&asked).await.unwrap();
        assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
        let inner = server.database.lock();
        let row = &inner.tables[TABLE].rows[&name];
        let (Value::Time(end), Value::Number(_)) = (&row["ExpiresAtUtc"], &row["Token"]) else {
            panic!("{row:?}");
        };
        assert_eq!(end % 10_000, 0, "whole milliseconds");
    }
    // A column of whole seconds.
    let coarse = standin::parse::Type::Time(0);
    server
        .database
        .lock()
        .tables
        .get_mut(TABLE)
        .unwrap()
        .columns
        .insert("ExpiresAtUtc".into(), coarse);
    let store = open(&server.url());
    let error = store
        .acquire(&request("coarse", "a", LONG))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("datetime2(3)"), "{error}");
    let error = store.init().await.unwrap_err();
    assert!(error.to_string().contains("ExpiresAtUtc"), "{error}");
}
