//! Breaks of watch and ask: nothing arrives, the wrong thing arrives, or it stays for ever.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tenure::{
    AcquireRequest, Acquired, Asked, Holder, HolderRequest, Key, Lease, MemoryStore, Notice,
    Renewed, Result, Store, Token,
};

use crate::bed::Break;

/// Gives a stream on which nothing comes.
#[derive(Debug, Default)]
pub struct WatchEndsAtOnce;

#[async_trait]
impl Break for WatchEndsAtOnce {
    async fn watch(&self, _inner: &MemoryStore, _key: &Key) -> Result<BoxStream<'static, Notice>> {
        Ok(stream::empty().boxed())
    }
}

/// Pushes acquires, but ends instead of pushing a release.
#[derive(Debug, Default)]
pub struct WatchEndsWithTheLease;

#[async_trait]
impl Break for WatchEndsWithTheLease {
    async fn watch(&self, inner: &MemoryStore, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let notices = inner.watch(key).await?;
        let held = |notice: &Notice| std::future::ready(matches!(notice, Notice::Held(_)));
        Ok(notices.take_while(held).boxed())
    }
}

/// Pushes what happens to another key, too.
#[derive(Debug, Default)]
pub struct WatchesTooMuch;

#[async_trait]
impl Break for WatchesTooMuch {
    async fn watch(&self, inner: &MemoryStore, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let longer = Key::new(format!("{key}/too")).unwrap();
        let (one, two) = (inner.watch(&longer).await?, inner.watch(key).await?);
        Ok(one.take(1).chain(two).boxed())
    }
}

/// Says that a request lies there, and drops it.
#[derive(Debug, Default)]
pub struct AskIsDropped;

#[async_trait]
impl Break for AskIsDropped {
    async fn ask(&self, inner: &MemoryStore, key: &Key, _: HolderRequest) -> Result<Asked> {
        Ok(match inner.read(key).await? {
            Some(Lease { holder, token, .. }) => Asked::Left { holder, token },
            None => Asked::NotHeld,
        })
    }
}

/// Hands a request over once: if that answer is lost, so is the request.
#[derive(Debug, Default)]
pub struct AskIsToldOnce(Mutex<HashSet<Key>>);

#[async_trait]
impl Break for AskIsToldOnce {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(lease, ttl).await? {
            Renewed::Renewed(renewed, Some(asked)) => {
                let first = self.0.lock().unwrap().insert(lease.key.clone());
                Renewed::Renewed(renewed, first.then_some(asked))
            }
            other => other,
        })
    }
}

/// Keeps a request with the key, for every tenure to come.
#[derive(Debug, Default)]
pub struct AskIsForEver(Mutex<HashSet<Key>>);

#[async_trait]
impl Break for AskIsForEver {
    async fn ask(&self, inner: &MemoryStore, key: &Key, asked: HolderRequest) -> Result<Asked> {
        self.0.lock().unwrap().insert(key.clone());
        inner.ask(key, asked).await
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(lease, ttl).await? {
            Renewed::Renewed(renewed, None) if self.0.lock().unwrap().contains(&lease.key) => {
                Renewed::Renewed(renewed, Some(HolderRequest::StepDown))
            }
            other => other,
        })
    }
}

/// Says that somebody was asked where nobody is.
#[derive(Debug, Default)]
pub struct AskFindsSomebody;

#[async_trait]
impl Break for AskFindsSomebody {
    async fn ask(&self, inner: &MemoryStore, key: &Key, asked: HolderRequest) -> Result<Asked> {
        Ok(match inner.ask(key, asked).await? {
            Asked::NotHeld => Asked::Left {
                holder: Holder::new("somebody").unwrap(),
                token: Token(1),
            },
            left => left,
        })
    }
}

/// Ends the lease instead of asking for its end.
#[derive(Debug, Default)]
pub struct AskEndsTheLease;

#[async_trait]
impl Break for AskEndsTheLease {
    async fn ask(&self, inner: &MemoryStore, key: &Key, asked: HolderRequest) -> Result<Asked> {
        let answer = inner.ask(key, asked).await?;
        if let Some(lease) = inner.read(key).await? {
            inner.release(&lease).await?;
        }
        Ok(answer)
    }
}

/// Forgets a request when its holder repeats its acquire.
#[derive(Debug, Default)]
pub struct AskIsForgottenByRepeats(Mutex<HashSet<(Key, Token)>>);

#[async_trait]
impl Break for AskIsForgottenByRepeats {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let before = inner.read(&request.key).await?;
        let answer = inner.acquire(request).await?;
        match (before, &answer) {
            (Some(before), Acquired::Granted(lease)) if before.token == lease.token => {
                let tenure = (lease.key.clone(), lease.token);
                self.0.lock().unwrap().insert(tenure);
            }
            _ => {}
        }
        Ok(answer)
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let tenure = (lease.key.clone(), lease.token);
        let forgotten = self.0.lock().unwrap().contains(&tenure);
        Ok(match inner.renew(lease, ttl).await? {
            Renewed::Renewed(renewed, _) if forgotten => Renewed::Renewed(renewed, None),
            other => other,
        })
    }
}
