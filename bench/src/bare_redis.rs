//! redis-rs alone: `SET NX PX`, and the two small scripts that every lock on Redis has.

use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};

use crate::{Bare, Side, fresh, now};

pub(crate) struct Client {
    holder: MultiplexedConnection,
    waiter: MultiplexedConnection,
    pushed: PubSub,
    renew: String,
    release: String,
    key: String,
    held: String,
}

const TTL_MS: u32 = 15_000;

const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'bare', KEYS[1]) return 1 end return 0";

impl Client {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        let mut holder = client.get_multiplexed_async_connection().await?;
        let mut load = redis::cmd("SCRIPT");
        let renew = load.arg("LOAD").arg(RENEW).query_async(&mut holder).await?;
        let mut load = redis::cmd("SCRIPT");
        let release = load
            .arg("LOAD")
            .arg(RELEASE)
            .query_async(&mut holder)
            .await?;
        let mut pushed = client.get_async_pubsub().await?;
        pushed.subscribe("bare").await?;
        let held = fresh("held");
        acquire(&mut holder, &held).await?;
        Ok(Self {
            holder,
            waiter: client.get_multiplexed_async_connection().await?,
            pushed,
            renew,
            release,
            key: fresh("again"),
            held,
        })
    }

    async fn release(&mut self, key: &str) -> Result<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(key).arg("bare");
        let freed: i64 = command.query_async(&mut self.holder).await?;
        ensure!(freed == 1, "{key} was not held");
        Ok(())
    }
}

async fn acquire(connection: &mut MultiplexedConnection, key: &str) -> Result<()> {
    let mut command = redis::cmd("SET");
    command.arg(key).arg("bare").arg("NX").arg("PX").arg(TTL_MS);
    let set: Option<String> = command.query_async(connection).await?;
    ensure!(set.is_some(), "{key} is held");
    Ok(())
}

#[async_trait]
impl Side for Client {
    async fn acquire_release(&mut self) -> Result<()> {
        let key = self.key.clone();
        acquire(&mut self.holder, &key).await?;
        self.release(&key).await
    }

    async fn renew(&mut self) -> Result<()> {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.renew)
            .arg(1)
            .arg(&self.held)
            .arg("bare")
            .arg(TTL_MS);
        let renewed: i64 = command.query_async(&mut self.holder).await?;
        ensure!(renewed == 1, "{} is lost", self.held);
        Ok(())
    }

    async fn handover(&mut self, wait: Duration) -> Result<Duration> {
        let key = fresh("handover");
        acquire(&mut self.holder, &key).await?;
        tokio::time::sleep(wait).await;
        let Self {
            holder,
            waiter,
            pushed,
            release,
            ..
        } = self;
        let releasing = async {
            let mut command = redis::cmd("EVALSHA");
            command.arg(&*release).arg(1).arg(&key).arg("bare");
            let freed: i64 = command.query_async(holder).await?;
            ensure!(freed == 1, "{key} was not held");
            Ok(())
        };
        let waiting = async {
            let mut messages = pushed.on_message();
            while let Some(message) = messages.next().await {
                if message.get_payload::<String>()? == key {
                    break;
                }
            }
            acquire(waiter, &key).await?;
            anyhow::Ok(now())
        };
        let began = now();
        let (released, got) = tokio::join!(releasing, waiting);
        released?;
        Ok(got? - began)
    }
}

#[async_trait]
impl Bare for Client {
    async fn round_trip(&mut self) -> Result<()> {
        let mut command = redis::cmd("PEXPIRE");
        command.arg(&self.held).arg(TTL_MS);
        let renewed: i64 = command.query_async(&mut self.holder).await?;
        ensure!(renewed == 1, "{} is lost", self.held);
        Ok(())
    }
}
