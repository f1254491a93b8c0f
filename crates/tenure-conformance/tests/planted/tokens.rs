//! Breaks of the token: it falls back, or is too great.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    AcquireRequest, Acquired, Key, Lease, Loss, MemoryStore, Released, Renewed, Result, Store,
    Token,
};

use crate::bed::Break;

pub const NEVER: u8 = 0;
pub const ON_RELEASE: u8 = 1;
pub const ON_THE_END: u8 = 2;
pub const ON_DELETION: u8 = 3;
pub const ON_CHANGE: u8 = 4;
pub const ON_RESTART: u8 = 5;

/// Counts tokens from one, as a row's own counter does, and begins again with one when
/// the given thing happens.
#[derive(Debug, Default)]
pub struct CountsAgain<const WHEN: u8>(Mutex<HashMap<Key, Count>>);

#[derive(Debug, Default)]
struct Count {
    inner: Token,
    shown: u64,
    released: bool,
    deleted: bool,
    restarted: bool,
    holder: Option<tenure::Holder>,
}

impl<const WHEN: u8> CountsAgain<WHEN> {
    /// Counts a granted lease, if its tenure is a new one.
    fn count(&self, lease: &Lease) {
        let mut counts = self.0.lock().unwrap();
        let count = counts.entry(lease.key.clone()).or_default();
        if count.inner == lease.token {
            return;
        }
        let again = match WHEN {
            ON_RELEASE => count.released,
            ON_THE_END => !count.released && !count.deleted,
            ON_DELETION => count.deleted,
            ON_CHANGE => count.holder.as_ref() != Some(&lease.holder),
            ON_RESTART => count.restarted,
            _ => false,
        };
        let shown = if again { 1 } else { count.shown + 1 };
        *count = Count {
            inner: lease.token,
            shown,
            holder: Some(lease.holder.clone()),
            ..Count::default()
        };
    }

    fn shown(&self, mut lease: Lease) -> Lease {
        let counts = self.0.lock().unwrap();
        if let Some(count) = counts.get(&lease.key) {
            lease.token = Token(count.shown);
        }
        lease
    }

    fn inner(&self, lease: &Lease) -> Lease {
        let mut lease = lease.clone();
        let counts = self.0.lock().unwrap();
        lease.token = match counts.get(&lease.key) {
            Some(count) if Token(count.shown) == lease.token => count.inner,
            _ => Token(0),
        };
        lease
    }

    fn mark(&self, key: &Key, mark: impl Fn(&mut Count)) {
        self.0.lock().unwrap().entry(key.clone()).and_modify(mark);
    }
}

#[async_trait]
impl<const WHEN: u8> Break for CountsAgain<WHEN> {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        Ok(match inner.acquire(request).await? {
            Acquired::Granted(lease) => {
                self.count(&lease);
                Acquired::Granted(self.shown(lease))
            }
            Acquired::Held(lease) => Acquired::Held(self.shown(lease)),
        })
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(&self.inner(lease), ttl).await? {
            Renewed::Renewed(lease, asked) => Renewed::Renewed(self.shown(lease), asked),
            Renewed::Lost(Loss::Superseded { holder, .. }) => {
                let token = self.shown(lease.clone()).token;
                Renewed::Lost(Loss::Superseded { holder, token })
            }
            lost => lost,
        })
    }
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        let answer = inner.release(&self.inner(lease)).await?;
        if answer == Released::Released {
            self.mark(&lease.key, |count| count.released = true);
        }
        Ok(answer)
    }
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        Ok(inner.read(key).await?.map(|lease| self.shown(lease)))
    }
    fn deleted(&self, key: &Key) {
        self.mark(key, |count| count.deleted = true);
    }
    fn restarted(&self, _inner: &MemoryStore) {
        for count in self.0.lock().unwrap().values_mut() {
            count.restarted = true;
        }
    }
}

/// Loses every record with a restart.
#[derive(Debug, Default)]
pub struct RestartsEmpty(Mutex<Vec<Key>>);

#[async_trait]
impl Break for RestartsEmpty {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        self.0.lock().unwrap().push(request.key.clone());
        inner.acquire(request).await
    }
    fn restarted(&self, inner: &MemoryStore) {
        for key in self.0.lock().unwrap().iter() {
            inner.delete(key);
        }
    }
}

/// Gives tokens that JavaScript cannot count with.
#[derive(Debug, Default)]
pub struct GreatTokens;

#[async_trait]
impl Break for GreatTokens {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        Ok(match inner.acquire(request).await? {
            Acquired::Granted(mut lease) => {
                lease.token = Token(lease.token.0 | 1 << 53);
                Acquired::Granted(lease)
            }
            held => held,
        })
    }
}
