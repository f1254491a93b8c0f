//! An outbox dispatcher: the leader sends what lies in the outbox, and the table itself
//! turns away a leader that is out of date, by the fencing token in the transaction.
//!
//! Run it: `cargo run -p tenure-examples --bin outbox`

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use tenure::{Elector, Settings, Tenure, Timing, Token};
use tenure_sqlite::SqliteStore;

/// The application's own database: the outbox, and the greatest token it has seen.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, body TEXT, sent_by INTEGER);
         CREATE TABLE IF NOT EXISTS fence (name TEXT PRIMARY KEY, token INTEGER NOT NULL);",
    )?;
    Ok(connection)
}

/// Sends one message. The check of the token and the write are one transaction: a check
/// beside the write would be no fence.
fn dispatch_one(connection: &mut Connection, token: Token) -> anyhow::Result<Option<String>> {
    let token = i64::try_from(token.0)?;
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let raised = transaction.execute(
        "INSERT INTO fence (name, token) VALUES ('outbox', ?1)
         ON CONFLICT (name) DO UPDATE SET token = ?1 WHERE token <= ?1",
        [token],
    )?;
    anyhow::ensure!(
        raised == 1,
        "token {token} is out of date: somebody else leads now"
    );
    let next = transaction.query_row(
        "SELECT id, body FROM outbox WHERE sent_by IS NULL ORDER BY id LIMIT 1",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
    );
    let Some((id, body)) = next.optional()? else {
        transaction.commit()?;
        return Ok(None);
    };
    transaction.execute(
        "UPDATE outbox SET sent_by = ?1 WHERE id = ?2",
        params![token, id],
    )?;
    transaction.commit()?;
    Ok(Some(body))
}

/// The work of a leader: until the outbox is empty, or it is told to stop.
async fn dispatch(
    name: &str,
    tenure: &Tenure,
    database: PathBuf,
    most: usize,
) -> anyhow::Result<usize> {
    let mut connection = open(&database)?;
    for sent in 0..most {
        if !tenure.is_valid() {
            return Ok(sent);
        }
        match dispatch_one(&mut connection, tenure.token())? {
            Some(body) => println!("{name} (token {}) sends {body}", tenure.token()),
            None => return Ok(sent),
        }
        tokio::task::yield_now().await;
    }
    Ok(most)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("app.db");
    let connection = open(&database)?;
    for n in 1..=6 {
        connection.execute(
            "INSERT INTO outbox (body) VALUES (?1)",
            [format!("mail {n}")],
        )?;
    }

    let store = SqliteStore::open(folder.path().join("leases.db"))?;
    let settings = Settings::new("outbox")?.timing(Timing::fast());
    let first = Elector::start(store.clone(), settings.clone())?;
    let old = first.elected().await?;
    dispatch("first", &old, database.clone(), 3).await?;
    first.stop().await;

    let second = Elector::start(store, settings)?;
    let sent = second.lead_once(|tenure| {
        let database = database.clone();
        async move { dispatch("second", &tenure, database, 100).await }
    });
    let sent = sent.await?.done().expect("it leads throughout")?;
    assert_eq!(sent, 3);

    // The first one was paused just before a write and wakes up now: the table says no.
    let refused = dispatch_one(&mut open(&database)?, old.token()).unwrap_err();
    println!("first, waking up late: {refused}");

    let twice: i64 = connection.query_row(
        "SELECT count(*) FROM outbox WHERE sent_by IS NULL",
        [],
        |row| row.get(0),
    )?;
    assert_eq!(twice, 0, "all were sent, each once");
    second.stop().await;
    Ok(())
}
