//! tokio-postgres alone: the least statements that keep a lease in a row, prepared once.

use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls, Statement};

use crate::{Bare, Side, fresh, now};

pub(crate) struct Client {
    holder: Session,
    waiter: Session,
    key: String,
    held: String,
}

struct Session {
    client: tokio_postgres::Client,
    acquire: Statement,
    renew: Statement,
    release: Statement,
    pushed: mpsc::UnboundedReceiver<String>,
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bare (
  lease_name text COLLATE \"C\" PRIMARY KEY, holder_id text NOT NULL, version bigint NOT NULL,
  acquired_at_utc timestamptz NOT NULL, expires_at_utc timestamptz NOT NULL
) WITH (fillfactor = 70)";

const ACQUIRE: &str = "INSERT INTO bare AS l VALUES
  ($1, 'bare', 1, clock_timestamp(), clock_timestamp() + interval '15 s')
  ON CONFLICT (lease_name) DO UPDATE SET holder_id = 'bare', version = l.version + 1,
    acquired_at_utc = clock_timestamp(), expires_at_utc = clock_timestamp() + interval '15 s'
  WHERE l.expires_at_utc <= clock_timestamp()";

const RENEW: &str = "UPDATE bare SET expires_at_utc = clock_timestamp() + interval '15 s'
  WHERE lease_name = $1 AND holder_id = 'bare' AND expires_at_utc > clock_timestamp()";

const RELEASE: &str = "WITH freed AS (
    UPDATE bare SET holder_id = '', expires_at_utc = 'epoch'
    WHERE lease_name = $1 AND holder_id = 'bare' RETURNING lease_name)
  SELECT pg_notify('bare', lease_name) FROM freed";

impl Client {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(TABLE).await?;
        let client = Self {
            holder: Session::open(url).await?,
            waiter: Session::open(url).await?,
            key: fresh("again"),
            held: fresh("held"),
        };
        client.waiter.client.batch_execute("LISTEN bare").await?;
        client.holder.acquire(&client.held).await?;
        Ok(client)
    }
}

impl Session {
    async fn open(url: &str) -> Result<Self> {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (push, pushed) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = push.send(notification.payload().to_owned());
                }
            }
        });
        Ok(Self {
            acquire: client.prepare(ACQUIRE).await?,
            renew: client.prepare(RENEW).await?,
            release: client.prepare(RELEASE).await?,
            client,
            pushed,
        })
    }

    async fn acquire(&self, key: &str) -> Result<()> {
        let rows = self.client.execute(&self.acquire, &[&key]).await?;
        ensure!(rows == 1, "{key} is held");
        Ok(())
    }

    async fn renew(&self, key: &str) -> Result<()> {
        let rows = self.client.execute(&self.renew, &[&key]).await?;
        ensure!(rows == 1, "{key} is lost");
        Ok(())
    }

    async fn release(&self, key: &str) -> Result<()> {
        let rows = self.client.query(&self.release, &[&key]).await?;
        ensure!(rows.len() == 1, "{key} was not held");
        Ok(())
    }
}

#[async_trait]
impl Side for Client {
    async fn acquire_release(&mut self) -> Result<()> {
        self.holder.acquire(&self.key).await?;
        self.holder.release(&self.key).await
    }

    async fn renew(&mut self) -> Result<()> {
        self.holder.renew(&self.held).await
    }

    async fn handover(&mut self, wait: Duration) -> Result<Duration> {
        let key = fresh("handover");
        self.holder.acquire(&key).await?;
        tokio::time::sleep(wait).await;
        let Self { holder, waiter, .. } = self;
        let waiting = async {
            while waiter
                .pushed
                .recv()
                .await
                .is_some_and(|pushed| pushed != key)
            {}
            waiter.acquire(&key).await?;
            anyhow::Ok(now())
        };
        let began = now();
        let (released, got) = tokio::join!(holder.release(&key), waiting);
        released?;
        Ok(got? - began)
    }
}

#[async_trait]
impl Bare for Client {
    async fn round_trip(&mut self) -> Result<()> {
        self.holder.renew(&self.held).await
    }
}
