//! The side of tenure: a store for direct calls, and an elector that waits on another one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use tenure::{
    AcquireRequest, Acquired, Attempt, Elector, Holder, Key, Lease, Released, Renewed, Settings,
    Store,
};

use crate::{Side, fresh, now};

const TTL: Duration = Duration::from_secs(15);

/// Two stores with connections of their own, as in two processes.
pub(crate) struct Ours {
    holder: Arc<dyn Store>,
    waiter: Arc<dyn Store>,
    key: Key,
    held: Option<Lease>,
}

impl Ours {
    pub(crate) fn new(holder: impl Store, waiter: impl Store) -> Self {
        Self {
            holder: Arc::new(holder),
            waiter: Arc::new(waiter),
            key: key("again"),
            held: None,
        }
    }

    async fn acquire(&self, key: &Key) -> Result<Lease> {
        let request = AcquireRequest {
            key: key.clone(),
            holder: Holder::new("bench")?,
            ttl: TTL,
            attempt: Attempt::first(fastrand::Rng::new().u64(..)),
            ended: None,
        };
        match self.holder.acquire(&request).await? {
            Acquired::Granted(lease) => Ok(lease),
            Acquired::Held(lease) => bail!("{} is held by {}", lease.key, lease.holder),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        match self.holder.release(lease).await? {
            Released::Released => Ok(()),
            Released::NotHeld => bail!("{} was not ours any more", lease.key),
        }
    }
}

#[async_trait]
impl Side for Ours {
    async fn acquire_release(&mut self) -> Result<()> {
        let lease = self.acquire(&self.key).await?;
        self.release(&lease).await
    }

    async fn renew(&mut self) -> Result<()> {
        let lease = match self.held.take() {
            Some(lease) => lease,
            None => self.acquire(&key("held")).await?,
        };
        match self.holder.renew(&lease, TTL).await? {
            Renewed::Renewed(lease, _) => self.held = Some(lease),
            Renewed::Lost(loss) => bail!("lost: {loss:?}"),
        }
        Ok(())
    }

    async fn handover(&mut self, wait: Duration) -> Result<Duration> {
        let key = key("handover");
        let lease = self.acquire(&key).await?;
        let elector = Elector::start(self.waiter.clone(), Settings::new(key)?)?;
        while elector.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(wait).await;
        let elected = tokio::spawn({
            let elector = elector.clone();
            async move { elector.elected().await.map(|_tenure| now()) }
        });
        let began = now();
        self.release(&lease).await?;
        let took = elected.await?? - began;
        elector.stop().await;
        Ok(took)
    }
}

fn key(prefix: &str) -> Key {
    Key::new(fresh(prefix)).unwrap_or_else(|error| panic!("a plain name is a key: {error}"))
}
