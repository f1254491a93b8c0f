//! Statements are prepared where it is proven that nobody is in between, and nowhere else.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use tenure::{Released, Renewed, Store};
use tenure_postgres::PostgresStore;
use tenure_testbed::{PgBouncer, Postgres, PostgresOptions};

use support::{Bed, LONG, blocking, failed, granted, key, until};

/// A server that logs each statement with the name that it was prepared under.
async fn start(options: PostgresOptions) -> Option<(Postgres, Bed)> {
    let options = options.setting("log_min_duration_statement", "0");
    let server = blocking(move || options.start()).await?;
    let table = tenure_testbed::unique("leases");
    let url = format!(
        "postgres:///postgres?host={}&port={}&prepare=off&table={table}",
        server.folder().display(),
        server.port()
    );
    let options = tenure_postgres::PostgresOptions::from_url(&url)
        .unwrap()
        .user("postgres");
    PostgresStore::open(options).unwrap().init().await.unwrap();
    let url = format!("{}?table={table}", server.url());
    Some((server, Bed { url, table }))
}

async fn pooler(server: &Postgres) -> Option<PgBouncer> {
    let server = server.clone();
    blocking(move || server.pgbouncer()).await
}

async fn use_it(store: &PostgresStore) {
    let lease = granted(store, "k", "a", LONG).await;
    for _ in 0..3 {
        assert!(matches!(
            store.renew(&lease, LONG).await.unwrap(),
            Renewed::Renewed(..)
        ));
    }
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
}

/// How many renewals ran under a name, and how many without one.
async fn renewals(server: &Postgres) -> (usize, usize) {
    until("the log of three renewals", async || {
        let log = server.log();
        let of = |how: &str| {
            let mut lines = log.lines().peekable();
            let mut count = 0;
            // Long statements are logged over several lines.
            while let Some(line) = lines.next() {
                let next = |n: usize| lines.clone().take(n).any(|l| l.contains("renewed AS"));
                count += usize::from(line.contains(how) && line.contains("WITH bound") && next(8));
            }
            count
        };
        let (named, unnamed) = (of("  execute s"), of("  execute <unnamed>"));
        (named + unnamed >= 3).then_some((named, unnamed))
    })
    .await
}

#[tokio::test]
async fn straight_to_the_server_they_are_prepared() {
    for options in [
        PostgresOptions::new(),
        PostgresOptions::new().tls().password("x"),
    ] {
        let Some((server, bed)) = start(options).await else {
            return;
        };
        use_it(&bed.store_with("&listen=off")).await;
        assert_eq!(renewals(&server).await, (3, 0));
    }
}

#[tokio::test]
async fn told_not_to_they_are_not() {
    let Some((server, bed)) = start(PostgresOptions::new()).await else {
        return;
    };
    use_it(&bed.store_with("&prepare=off")).await;
    assert_eq!(renewals(&server).await, (0, 3));
}

#[tokio::test]
async fn through_a_pooler_they_are_not() {
    let Some((server, bed)) = start(PostgresOptions::new()).await else {
        return;
    };
    let Some(pooler) = pooler(&server).await else {
        return;
    };
    use_it(&bed.elsewhere(&pooler.url()).store_with("&listen=off")).await;
    assert_eq!(renewals(&server).await, (0, 3));
}

/// Forced to where it cannot work, it fails without harm, once, and goes on without.
#[tokio::test]
async fn session_that_forgot_them_does_no_harm() {
    let Some((server, bed)) = start(PostgresOptions::new()).await else {
        return;
    };
    let Some(pooler) = pooler(&server).await else {
        return;
    };
    let pooled = bed.elsewhere(&pooler.url());
    let store = pooled.store_with("&listen=off&prepare=on&pool=1");
    let lease = granted(&store, "k", "a", LONG).await;
    store.renew(&lease, LONG).await.unwrap();
    // The session that knows the name is taken by somebody else.
    let other = pooled.by_hand().await;
    other.batch_execute("BEGIN").await.unwrap();
    let error = failed(store.renew(&lease, LONG).await);
    assert!(!error.may_have_worked(), "{error}");
    for _ in 0..3 {
        assert!(matches!(
            store.renew(&lease, LONG).await.unwrap(),
            Renewed::Renewed(..)
        ));
    }
    other.batch_execute("COMMIT").await.unwrap();
    assert!(store.read(&key("k")).await.unwrap().is_some());
}

/// The table is changed, dropped and made anew under a connection that has prepared.
#[tokio::test]
async fn change_of_the_table_is_survived() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&pool=1");
    use_it(&store).await;
    bed.sql("ALTER table TABLE ADD COLUMN more text, ALTER holder_id TYPE varchar(600)")
        .await;
    use_it(&store).await;
    bed.sql("DROP table TABLE").await;
    let error = failed(store.read(&key("k")).await);
    assert_eq!(error.kind(), tenure::ErrorKind::Misconfigured, "{error}");
    store.init().await.unwrap();
    use_it(&store).await;
}
