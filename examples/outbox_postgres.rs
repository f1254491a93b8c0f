//! An outbox dispatcher on PostgreSQL: leases, messages and fence in one database, and a
//! leader that was frozen is turned away by the table that it writes to.
//!
//! Run it: `cargo run -p tenure-examples --bin outbox_postgres`. It starts a PostgreSQL of
//! its own, or takes the one that TENURE_TEST_POSTGRES_URL names.

use std::time::Duration;

use tenure::{Elector, ManualClock, Settings, Tenure, Timing};
use tenure_fences::FenceError;
use tenure_fences::postgres::PostgresFence;
use tenure_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

/// One dispatcher's connection to the application's database.
struct Dispatcher {
    name: &'static str,
    client: Client,
    table: String,
    fence: PostgresFence,
}

impl Dispatcher {
    async fn open(name: &'static str, url: &str, table: &str) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self {
            name,
            client,
            table: table.to_owned(),
            fence: PostgresFence::new(table)?,
        })
    }

    /// Sends one message: the guard, the message and the mark are one transaction.
    async fn dispatch_one(&mut self, tenure: &Tenure) -> Result<Option<String>, FenceError> {
        let Self { table, fence, .. } = self;
        let transaction = fence.begin(&mut self.client, tenure).await?;
        let next = format!(
            "UPDATE {table} SET sent_by = $1 WHERE id =
             (SELECT min(id) FROM {table} WHERE sent_by IS NULL) RETURNING body"
        );
        let token = tenure.token().0 as i64;
        let sent = transaction.query_opt(&next, &[&token]).await?;
        transaction.commit().await?;
        Ok(sent.map(|row| row.get(0)))
    }

    async fn dispatch(&mut self, tenure: &Tenure, most: usize) -> Result<usize, FenceError> {
        for sent in 0..most {
            match self.dispatch_one(tenure).await? {
                Some(body) => println!("{} (token {}) sends {body}", self.name, tenure.token()),
                None => return Ok(sent),
            }
        }
        Ok(most)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(url) = tenure_testbed::Postgres::shared_url() else {
        return Ok(());
    };
    let table = tenure_testbed::unique("outbox");
    let mut first = Dispatcher::open("first", &url, &table).await?;
    let mut second = Dispatcher::open("second", &url, &table).await?;
    PostgresFence::init(&first.client).await?;
    let create = format!(
        "CREATE TABLE {table} (id bigserial PRIMARY KEY, body text NOT NULL, sent_by bigint);
         INSERT INTO {table} (body) SELECT 'mail ' || n FROM generate_series(1, 6) n"
    );
    first.client.batch_execute(&create).await?;

    let store = PostgresStore::open(PostgresOptions::from_url(&url)?)?;
    store.init().await?;
    let timing = Timing::with_ttl(Duration::from_secs(2));
    let settings = Settings::new(table.as_str())?.timing(timing);

    // The first leads, and is then frozen as a whole: its clock stands still too.
    let frozen = Elector::builder(store.clone(), settings.clone())
        .clock(ManualClock::new())
        .start()?;
    let old = frozen.elected().await?;
    first.dispatch(&old, 3).await?;

    // Its lease runs out. The second raises the fence before it does anything else.
    let elector = Elector::start(store, settings)?;
    let tenure = elector.elected().await?;
    second.fence.raise(&second.client, &tenure).await?;

    // The first goes on, in good faith. The table says no.
    assert!(old.is_valid(), "it believes that it leads");
    let refused = first.dispatch(&old, 1).await.unwrap_err();
    println!("first, waking up late: {refused}");
    assert!(refused.is_over());

    assert_eq!(second.dispatch(&tenure, 100).await?, 3);
    let question = format!(
        "SELECT count(*) FILTER (WHERE sent_by = $1), count(*) FILTER (WHERE sent_by = $2) FROM {table}"
    );
    let tokens = [old.token().0 as i64, tenure.token().0 as i64];
    let row = second
        .client
        .query_one(&question, &[&tokens[0], &tokens[1]])
        .await?;
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 3));
    elector.stop().await;
    Ok(())
}
