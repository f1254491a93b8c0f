//! PostgreSQL, on a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use support::turns::Turns;
use support::{Leader, two_leaders};
use support::{assert_busy, assert_ended, assert_never_fenced, assert_stale, assert_unreadable};
use tenure::Token;
use tenure_fences::postgres::PostgresFence;
use tenure_testbed::{Postgres, unique, wait_until};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A table of one's own, with one row, and a fence for it.
struct Place {
    url: String,
    table: String,
    fence: PostgresFence,
}

impl Place {
    async fn on(url: String) -> Self {
        let client = connect(&url).await;
        // Two that create a table at once can get in each other's way.
        static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _one = ONE_AT_A_TIME.lock().await;
        PostgresFence::init(&client).await.unwrap();
        let table = unique("work");
        let create = format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, by bigint NOT NULL);
             INSERT INTO {table} VALUES (1, 0)"
        );
        client.batch_execute(&create).await.unwrap();
        let fence = PostgresFence::new(&table).unwrap();
        Self { url, table, fence }
    }

    async fn shared() -> Option<Self> {
        Some(Self::on(Postgres::shared_url()?).await)
    }

    async fn client(&self) -> Client {
        connect(&self.url).await
    }

    fn set(&self, by: u64) -> String {
        format!("UPDATE {} SET by = {by} WHERE id = 1", self.table)
    }

    fn riding(&self) -> String {
        format!(
            "UPDATE {} SET by = $1 WHERE id = 1 AND EXISTS (SELECT FROM fence)",
            self.table
        )
    }

    async fn by(&self) -> i64 {
        let question = format!("SELECT by FROM {} WHERE id = 1", self.table);
        let row = self.client().await.query_one(&question, &[]).await.unwrap();
        row.get(0)
    }

    /// Waits until a statement waits for a lock of another transaction.
    async fn somebody_waits(&self, text: &str) {
        let client = self.client().await;
        loop {
            let waiting = client
                .query_one(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND query LIKE $1",
                    &[&format!("%{text}%")],
                )
                .await
                .unwrap();
            if waiting.get::<_, i64>(0) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn an_old_leader_is_turned_away() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let (mut a, mut b) = (place.client().await, place.client().await);
    assert_never_fenced(place.fence.seen(&a).await);

    let transaction = place.fence.begin(&mut a, &old.tenure).await.unwrap();
    transaction.batch_execute(&place.set(7)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(place.by().await, 7);

    // The first act of the new leader is enough: no real work has come yet.
    place.fence.raise(&b, &new.tenure).await.unwrap();
    assert_stale(place.fence.begin(&mut a, &old.tenure).await.map(drop), 7, 9);
    assert_stale(place.fence.raise(&a, &old.tenure).await, 7, 9);
    let riding = place.riding();
    let ridden = place
        .fence
        .write(&a, &old.tenure, &riding, &[(&7_i64, Type::INT8)])
        .await;
    assert_stale(ridden, 7, 9);

    let transaction = place.fence.begin(&mut b, &new.tenure).await.unwrap();
    transaction.batch_execute(&place.set(9)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(place.by().await, 9);
    assert_eq!(place.fence.seen(&a).await.unwrap(), Token(9));
}

#[tokio::test]
async fn the_guard_of_a_transaction_that_is_turned_away_takes_its_writes_along() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let mut client = place.client().await;
    place.fence.raise(&client, &new.tenure).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute(&place.set(7)).await.unwrap();
    assert_stale(
        place.fence.guard(transaction, &old.tenure).await.map(drop),
        7,
        9,
    );
    assert_eq!(
        place.by().await,
        0,
        "written before the guard, and taken back"
    );
}

#[tokio::test]
async fn check_and_write_are_one_step() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let mut a = place.client().await;
    let transaction = place.fence.begin(&mut a, &old.tenure).await.unwrap();

    // The new leader waits for the old one's open transaction: it cannot come between the
    // check and the write.
    let fence = place.fence.clone();
    let b = place.client().await;
    let raised = tokio::spawn(async move { fence.raise(&b, &new.tenure).await });
    place.somebody_waits("tenure_fences").await;
    assert!(!raised.is_finished());
    transaction.batch_execute(&place.set(7)).await.unwrap();
    transaction.commit().await.unwrap();
    raised.await.unwrap().unwrap();
    assert_stale(place.fence.begin(&mut a, &old.tenure).await.map(drop), 7, 9);
}

#[tokio::test]
async fn one_that_waited_for_its_successor_is_turned_away() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let mut b = place.client().await;
    let transaction = place.fence.begin(&mut b, &new.tenure).await.unwrap();
    transaction.batch_execute(&place.set(9)).await.unwrap();
    let riding = {
        let (fence, statement) = (place.fence.clone(), place.riding());
        let client = place.client().await;
        tokio::spawn(async move {
            fence
                .write(&client, &old.tenure, &statement, &[(&7_i64, Type::INT8)])
                .await
        })
    };
    // It waits for the fence, or for the row, whichever it came to first.
    place.somebody_waits(&place.table).await;
    transaction.commit().await.unwrap();
    assert_stale(riding.await.unwrap(), 7, 9);
    assert_eq!(place.by().await, 9);
}

#[tokio::test]
async fn a_guard_that_rides_along_lets_the_write_pass() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let client = place.client().await;
    let riding = place.riding();
    for (leader, token) in [(&old, 7_i64), (&old, 7), (&new, 9)] {
        let written = place
            .fence
            .write(&client, &leader.tenure, &riding, &[(&token, Type::INT8)])
            .await;
        assert_eq!(written.unwrap(), 1);
        assert_eq!(place.by().await, token);
    }
    // Nothing to write is no refusal.
    let nothing = format!(
        "DELETE FROM {} WHERE id = 99 AND EXISTS (SELECT FROM fence)",
        place.table
    );
    let written = place.fence.write(&client, &new.tenure, &nothing, &[]).await;
    assert_eq!(written.unwrap(), 0);
    // A statement that forgets its guard is not sent.
    let written = place
        .fence
        .write(&client, &new.tenure, &place.set(1), &[])
        .await;
    assert!(written.is_err());
    assert_eq!(place.by().await, 9);
}

#[tokio::test]
async fn a_row_that_changes_under_the_riding_guard_is_still_fenced() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, _new) = two_leaders().await;
    let mut other = place.client().await;
    // Somebody without a fence holds the row; the guard has passed when the write waits.
    let transaction = other.transaction().await.unwrap();
    transaction.batch_execute(&place.set(1)).await.unwrap();
    let riding = {
        let (fence, statement) = (place.fence.clone(), place.riding());
        let client = place.client().await;
        tokio::spawn(async move {
            fence
                .write(&client, &old.tenure, &statement, &[(&7_i64, Type::INT8)])
                .await
        })
    };
    place.somebody_waits(&place.table).await;
    transaction.commit().await.unwrap();
    assert_eq!(riding.await.unwrap().unwrap(), 1);
    assert_eq!(place.by().await, 7);
}

#[tokio::test]
async fn a_tenure_that_has_ended_does_not_even_ask() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let old = Leader::with_token(7).await;
    let mut client = place.client().await;
    old.expire();
    assert_ended(place.fence.raise(&client, &old.tenure).await);
    assert_ended(place.fence.begin(&mut client, &old.tenure).await.map(drop));
    assert_ended(
        place
            .fence
            .write(&client, &old.tenure, &place.riding(), &[])
            .await,
    );
    assert_never_fenced(place.fence.seen(&client).await);
}

#[tokio::test]
async fn what_was_seen_survives_a_crash_of_the_server() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let place = Place::on(server.url()).await;
    let (old, new) = two_leaders().await;
    place
        .fence
        .raise(&place.client().await, &new.tenure)
        .await
        .unwrap();
    // Its data is not synced in this testbed, but its process alone dies here.
    server.kill();
    server.start_again();
    let client = place.client().await;
    assert_stale(place.fence.raise(&client, &old.tenure).await, 7, 9);
}

#[tokio::test]
async fn waits_are_bounded_by_the_lock_timeout() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let (old, new) = two_leaders().await;
    let (mut a, b) = (place.client().await, place.client().await);
    let _open = place.fence.begin(&mut a, &old.tenure).await.unwrap();
    b.batch_execute("SET lock_timeout = '50ms'").await.unwrap();
    assert_busy(place.fence.raise(&b, &new.tenure).await);
}

#[tokio::test]
async fn a_kept_token_that_cannot_be_one_is_not_overwritten() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let new = Leader::with_token(9).await;
    let client = place.client().await;
    let insert = "INSERT INTO tenure_fences VALUES ($1, 9223372036854775807)";
    client.execute(insert, &[&place.table]).await.unwrap();
    assert_unreadable(place.fence.raise(&client, &new.tenure).await);
}

#[tokio::test]
async fn the_guard_is_one_round_trip_and_none_when_it_rides() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let place = Place::on(server.url()).await;
    let new = Leader::with_token(9).await;
    let turns = Turns::before(server.address()).await;
    let mut client = connect(&server.url_at(turns.address)).await;

    let before = turns.so_far();
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute(&place.set(1)).await.unwrap();
    transaction.commit().await.unwrap();
    let bare = turns.so_far() - before;
    let before = turns.so_far();
    let transaction = place.fence.begin(&mut client, &new.tenure).await.unwrap();
    transaction.batch_execute(&place.set(9)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(turns.so_far() - before, bare + 1);

    let before = turns.so_far();
    let statement = format!("UPDATE {} SET by = $1 WHERE id = 1", place.table);
    client
        .execute_typed(&statement, &[(&1_i64, Type::INT8)])
        .await
        .unwrap();
    let bare = turns.so_far() - before;
    let before = turns.so_far();
    let written = place
        .fence
        .write(
            &client,
            &new.tenure,
            &place.riding(),
            &[(&9_i64, Type::INT8)],
        )
        .await;
    assert_eq!(written.unwrap(), 1);
    assert_eq!(turns.so_far() - before, bare);
}

#[tokio::test]
async fn it_works_through_pgbouncer() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let Some(bouncer) = server.pgbouncer() else {
        return;
    };
    let place = Place::on(server.url()).await;
    let (old, new) = two_leaders().await;
    let mut client = connect(&bouncer.url()).await;
    let transaction = place.fence.begin(&mut client, &new.tenure).await.unwrap();
    transaction.batch_execute(&place.set(9)).await.unwrap();
    transaction.commit().await.unwrap();
    let ridden = place
        .fence
        .write(
            &client,
            &old.tenure,
            &place.riding(),
            &[(&7_i64, Type::INT8)],
        )
        .await;
    assert_stale(ridden, 7, 9);
    wait_until("one row", Duration::from_secs(10), || {
        (server.sql(&format!("SELECT by FROM {}", place.table)) == "9").then_some(())
    });
}

/// For other languages: the texts on the docs page, as they stand there.
#[tokio::test]
async fn the_texts_on_the_docs_page_are_these() {
    use tenure_fences::postgres::{RAISE, TABLE};
    assert_eq!(support::from_docs("sql", "resource text"), TABLE);
    assert_eq!(support::from_docs("sql", "($1, $2)"), RAISE);
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql(TABLE);
    server.sql("CREATE TABLE outbox (id int PRIMARY KEY, sent_by bigint)");
    server.sql("INSERT INTO outbox VALUES (1, 0)");
    let text = support::from_docs("sql", "WITH fence");
    for (token, then) in [("7", "7"), ("9", "9"), ("7", "9"), ("9", "9"), ("10", "10")] {
        server.sql(&text.replace("42", token));
        let by = server.sql("SELECT sent_by FROM outbox");
        assert_eq!(by, then, "after a write with {token}");
    }
}
