//! PostgreSQL, SQLite and Redis.

use anyhow::Result;
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use rusqlite::Connection;
use tenure::Tenure;
use tenure_fences::postgres::PostgresFence;
use tenure_fences::redis::RedisFence;
use tenure_fences::sqlite::SqliteFence;
use tenure_testbed::{Postgres, PostgresOptions, Redis, RedisOptions};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use crate::Pair;

type Pairs = Result<Vec<Box<dyn Pair>>>;

struct InTransaction {
    client: Client,
    fence: PostgresFence,
    _server: Postgres,
}

struct Riding {
    client: Client,
    fence: PostgresFence,
}

const SET: &str = "UPDATE work SET by = by + $1 WHERE id = 1";
const SET_RIDING: &str = "UPDATE work SET by = by + $1 WHERE id = 1 AND EXISTS (SELECT FROM fence)";

pub(crate) async fn postgres() -> Pairs {
    let Some(server) = PostgresOptions::new().durable().start() else {
        return Ok(Vec::new());
    };
    let url = server.url();
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        anyhow::Ok(client)
    };
    let client = connect().await?;
    PostgresFence::init(&client).await?;
    let create =
        "CREATE TABLE work (id bigint PRIMARY KEY, by bigint); INSERT INTO work VALUES (1, 0)";
    client.batch_execute(create).await?;
    let fence = PostgresFence::new("work")?;
    Ok(vec![
        Box::new(Riding {
            client: connect().await?,
            fence: fence.clone(),
        }),
        Box::new(InTransaction {
            client,
            fence,
            _server: server,
        }),
    ])
}

#[async_trait]
impl Pair for InTransaction {
    fn what(&self) -> &'static str {
        "PostgreSQL, a transaction"
    }

    async fn bare(&mut self) -> Result<()> {
        let transaction = self.client.transaction().await?;
        transaction
            .execute_typed(SET, &[(&1_i64, Type::INT8)])
            .await?;
        Ok(transaction.commit().await?)
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        let transaction = self.fence.begin(&mut self.client, tenure).await?;
        transaction
            .execute_typed(SET, &[(&1_i64, Type::INT8)])
            .await?;
        Ok(transaction.commit().await?)
    }
}

#[async_trait]
impl Pair for Riding {
    fn what(&self) -> &'static str {
        "PostgreSQL, riding in one statement"
    }

    async fn bare(&mut self) -> Result<()> {
        self.client
            .execute_typed(SET, &[(&1_i64, Type::INT8)])
            .await?;
        Ok(())
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
            [(&1_i64, Type::INT8)];
        let written = self
            .fence
            .write(&self.client, tenure, SET_RIDING, &parameters);
        anyhow::ensure!(written.await? == 1, "nothing was written");
        Ok(())
    }
}

struct Sqlite {
    connection: Connection,
    fence: SqliteFence,
    _folder: tempfile::TempDir,
}

pub(crate) fn sqlite() -> Pairs {
    let folder = tempfile::tempdir()?;
    let connection = Connection::open(folder.path().join("app.db"))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE work (by INTEGER)")?;
    SqliteFence::init(&connection)?;
    let fence = SqliteFence::new("work")?;
    Ok(vec![Box::new(Sqlite {
        connection,
        fence,
        _folder: folder,
    })])
}

#[async_trait]
impl Pair for Sqlite {
    fn what(&self) -> &'static str {
        "SQLite, a transaction"
    }

    async fn bare(&mut self) -> Result<()> {
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        transaction
            .prepare_cached("INSERT INTO work VALUES (1)")?
            .execute([])?;
        Ok(transaction.commit()?)
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        let transaction = self.fence.begin(&mut self.connection, tenure)?;
        transaction
            .prepare_cached("INSERT INTO work VALUES (1)")?
            .execute([])?;
        Ok(transaction.commit()?)
    }
}

struct InRedis {
    connection: MultiplexedConnection,
    fence: RedisFence,
    command: redis::Cmd,
    _server: Redis,
}

pub(crate) async fn redis() -> Pairs {
    let Some(server) = RedisOptions::new().durable().start() else {
        return Ok(Vec::new());
    };
    let client = redis::Client::open(server.url())?;
    let mut command = redis::cmd("SET");
    command.arg("work").arg("x");
    Ok(vec![Box::new(InRedis {
        connection: client.get_multiplexed_async_connection().await?,
        fence: RedisFence::new("work:fence")?,
        command,
        _server: server,
    })])
}

#[async_trait]
impl Pair for InRedis {
    fn what(&self) -> &'static str {
        "Redis, SET"
    }

    async fn bare(&mut self) -> Result<()> {
        Ok(self.command.query_async(&mut self.connection).await?)
    }

    async fn fenced(&mut self, tenure: &Tenure) -> Result<()> {
        let written = self
            .fence
            .write(&mut self.connection, tenure, &["work"], &self.command);
        Ok(written.await?)
    }
}
