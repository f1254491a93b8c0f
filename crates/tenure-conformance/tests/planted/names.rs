//! Breaks of names: a store that makes one of two, and one that lists them wrongly.

use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    AcquireRequest, Acquired, Holder, Key, Lease, MemoryStore, Released, Renewed, Result, Store,
};

use crate::bed::Break;

pub const LOWER_CASE: u8 = 0;
pub const CUT: u8 = 1;
pub const TRIMMED: u8 = 2;
pub const COMPOSED: u8 = 3;
pub const ASCII: u8 = 4;
pub const FOLDER: u8 = 5;

/// Writes keys down in some other form, so that two become one.
#[derive(Debug, Default)]
pub struct ChangesKeys<const HOW: u8>;

impl<const HOW: u8> ChangesKeys<HOW> {
    fn change(key: &Key) -> Key {
        let name = key.as_str();
        let changed = match HOW {
            LOWER_CASE => name.to_lowercase(),
            CUT => name.chars().take(255).collect(),
            TRIMMED => name.trim().to_owned(),
            COMPOSED => name.replace("e\u{301}", "\u{e9}"),
            ASCII => name.replace(|c: char| !c.is_ascii(), "?"),
            _ => name.trim_end_matches('/').to_owned(),
        };
        Key::new(changed).unwrap_or_else(|_| Key::new("empty").unwrap())
    }

    fn inner(lease: &Lease) -> Lease {
        let mut lease = lease.clone();
        lease.key = Self::change(&lease.key);
        lease
    }
}

/// The lease with the key that was asked for: the break shows only where two collide.
fn with_key(mut lease: Lease, key: &Key) -> Lease {
    lease.key = key.clone();
    lease
}

#[async_trait]
impl<const HOW: u8> Break for ChangesKeys<HOW> {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut changed = request.clone();
        changed.key = Self::change(&request.key);
        Ok(match inner.acquire(&changed).await? {
            Acquired::Granted(lease) => Acquired::Granted(with_key(lease, &request.key)),
            Acquired::Held(lease) => Acquired::Held(with_key(lease, &request.key)),
        })
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(&Self::inner(lease), ttl).await? {
            Renewed::Renewed(renewed, asked) => {
                Renewed::Renewed(with_key(renewed, &lease.key), asked)
            }
            lost => lost,
        })
    }
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        inner.release(&Self::inner(lease)).await
    }
    async fn read(&self, inner: &MemoryStore, key: &Key) -> Result<Option<Lease>> {
        let lease = inner.read(&Self::change(key)).await?;
        Ok(lease.map(|lease| with_key(lease, key)))
    }
}

pub const WITHOUT_PREFIX: u8 = 0;
pub const WITHOUT_CASE: u8 = 1;
pub const WITH_WILDCARDS: u8 = 2;
pub const BACKWARDS: u8 = 3;
pub const WITHOUT_LIMIT: u8 = 4;
pub const WITHOUT_HOLDER: u8 = 5;

/// Lists something else than what was asked for.
#[derive(Debug, Default)]
pub struct ListsWrongly<const HOW: u8>;

#[async_trait]
impl<const HOW: u8> Break for ListsWrongly<HOW> {
    async fn list(&self, inner: &MemoryStore, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let mut all = inner.list("", usize::MAX).await?;
        let lower = prefix.to_lowercase();
        match HOW {
            WITHOUT_PREFIX => {}
            WITHOUT_CASE => all.retain(|l| l.key.as_str().to_lowercase().starts_with(&lower)),
            WITH_WILDCARDS => all.retain(|l| like(l.key.as_str(), prefix)),
            _ => all.retain(|l| l.key.as_str().starts_with(prefix)),
        }
        if HOW == BACKWARDS {
            all.reverse();
        }
        if HOW == WITHOUT_HOLDER {
            all.iter_mut()
                .for_each(|l| l.holder = Holder::new("?").unwrap());
        }
        if HOW != WITHOUT_LIMIT {
            all.truncate(limit);
        }
        Ok(all)
    }
}

/// Whether a key begins with a pattern in which `_` stands for any one character.
fn like(key: &str, pattern: &str) -> bool {
    let mut key = key.chars();
    pattern
        .chars()
        .all(|wanted| key.next().is_some_and(|c| wanted == '_' || wanted == c))
}

/// Lists what was released as well.
#[derive(Debug, Default)]
pub struct ListsTheDead(std::sync::Mutex<Vec<Lease>>);

#[async_trait]
impl Break for ListsTheDead {
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        self.0.lock().unwrap().push(lease.clone());
        inner.release(lease).await
    }
    async fn list(&self, inner: &MemoryStore, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let mut all = inner.list(prefix, limit).await?;
        all.extend(self.0.lock().unwrap().iter().cloned());
        all.retain(|l| l.key.as_str().starts_with(prefix));
        all.sort_by_key(|lease| lease.key.clone());
        all.truncate(limit);
        Ok(all)
    }
}
