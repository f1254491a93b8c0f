//! Breaks of renew and release: for the wrong one, too late, or not at all.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    AcquireRequest, Acquired, Attempt, Error, Key, Lease, Loss, MemoryStore, Released, Renewed,
    Result, Store, Token,
};

use crate::bed::Break;

/// Renews whoever asks with the right token.
#[derive(Debug, Default)]
pub struct RenewIgnoresTheHolder;

#[async_trait]
impl Break for RenewIgnoresTheHolder {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let mut lease = lease.clone();
        if let Some(present) = inner.read(&lease.key).await? {
            lease.holder = present.holder;
        }
        inner.renew(&lease, ttl).await
    }
}

/// Renews the holder with whatever token.
#[derive(Debug, Default)]
pub struct RenewIgnoresTheToken;

#[async_trait]
impl Break for RenewIgnoresTheToken {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let mut lease = lease.clone();
        if let Some(present) = inner.read(&lease.key).await? {
            lease.token = present.token;
        }
        inner.renew(&lease, ttl).await
    }
}

/// Renews what is no longer there, by taking it anew.
#[derive(Debug, Default)]
pub struct RenewBringsBack;

#[async_trait]
impl Break for RenewBringsBack {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let answer = inner.renew(lease, ttl).await?;
        if !matches!(answer, Renewed::Lost(Loss::Expired | Loss::Deleted)) {
            return Ok(answer);
        }
        let request = AcquireRequest {
            key: lease.key.clone(),
            holder: lease.holder.clone(),
            ttl,
            attempt: lease.attempt.unwrap_or(Attempt::first(1)),
            ended: None,
        };
        Ok(match inner.acquire(&request).await? {
            Acquired::Granted(lease) => Renewed::Renewed(lease, None),
            Acquired::Held(_) => answer,
        })
    }
}

/// Compares the version too, so that a lost answer costs the lease.
#[derive(Debug, Default)]
pub struct ComparesTheVersion;

#[async_trait]
impl Break for ComparesTheVersion {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        match inner.read(&lease.key).await? {
            Some(present) if present.version != lease.version => {
                let (holder, token) = (present.holder, present.token);
                Ok(Renewed::Lost(Loss::Superseded { holder, token }))
            }
            _ => inner.renew(lease, ttl).await,
        }
    }
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        match inner.read(&lease.key).await? {
            Some(present) if present.version != lease.version => Ok(Released::NotHeld),
            _ => inner.release(lease).await,
        }
    }
}

/// Renews only what was acquired through the same store object.
#[derive(Debug, Default)]
pub struct RemembersInTheObject(Mutex<HashSet<(Key, Token)>>);

#[async_trait]
impl Break for RemembersInTheObject {
    const IN_THE_BACKEND: bool = false;
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let answer = inner.acquire(request).await?;
        if let Acquired::Granted(lease) = &answer {
            let tenure = (lease.key.clone(), lease.token);
            self.0.lock().unwrap().insert(tenure);
        }
        Ok(answer)
    }
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let tenure = (lease.key.clone(), lease.token);
        if !self.0.lock().unwrap().contains(&tenure) {
            return Err(Error::invalid("acquire it first"));
        }
        inner.renew(lease, ttl).await
    }
}

/// Renews for the term that it had, and says the one that was asked for.
#[derive(Debug, Default)]
pub struct RenewKeepsTheTtl;

#[async_trait]
impl Break for RenewKeepsTheTtl {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(lease, lease.ttl).await? {
            Renewed::Renewed(mut renewed, asked) => {
                renewed.ttl = ttl;
                Renewed::Renewed(renewed, asked)
            }
            lost => lost,
        })
    }
}

/// Says that it has renewed, and does nothing.
#[derive(Debug, Default)]
pub struct RenewDoesNothing<const OWN_CLOCK: bool>;

#[async_trait]
impl<const OWN_CLOCK: bool> Break for RenewDoesNothing<OWN_CLOCK> {
    const OWN_CLOCK: bool = OWN_CLOCK;
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        match inner.read(&lease.key).await? {
            Some(present) if (&present.holder, present.token) == (&lease.holder, lease.token) => {
                Ok(Renewed::Renewed(present, None))
            }
            _ => inner.renew(lease, ttl).await,
        }
    }
}

/// Gives a new token with each renewal.
#[derive(Debug, Default)]
pub struct RenewRaisesTheToken;

#[async_trait]
impl Break for RenewRaisesTheToken {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(lease, ttl).await? {
            Renewed::Renewed(mut renewed, asked) => {
                renewed.token = Token(renewed.token.0 + 1);
                Renewed::Renewed(renewed, asked)
            }
            lost => lost,
        })
    }
}

/// Does not say to whom a lease was lost.
#[derive(Debug, Default)]
pub struct LossWithoutName;

#[async_trait]
impl Break for LossWithoutName {
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        Ok(match inner.renew(lease, ttl).await? {
            Renewed::Lost(_) => Renewed::Lost(Loss::Deleted),
            renewed => renewed,
        })
    }
}

/// Looks first and writes afterwards, without a look at what it has overwritten.
#[derive(Debug, Default)]
pub struct RenewChecksThenWrites<const OWN_CLOCK: bool>;

#[async_trait]
impl<const OWN_CLOCK: bool> Break for RenewChecksThenWrites<OWN_CLOCK> {
    const OWN_CLOCK: bool = OWN_CLOCK;
    async fn renew(&self, inner: &MemoryStore, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let present = inner.read(&lease.key).await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let answer = inner.renew(lease, ttl).await?;
        Ok(match present {
            Some(present) if (&present.holder, present.token) == (&lease.holder, lease.token) => {
                Renewed::Renewed(present, None)
            }
            _ => answer,
        })
    }
}

/// Frees whatever the holder has, whatever the token.
#[derive(Debug, Default)]
pub struct ReleaseIgnoresTheToken;

#[async_trait]
impl Break for ReleaseIgnoresTheToken {
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        let mut lease = lease.clone();
        if let Some(present) = inner.read(&lease.key).await? {
            lease.token = present.token;
        }
        inner.release(&lease).await
    }
}

/// Frees for anybody who has the token.
#[derive(Debug, Default)]
pub struct ReleaseIgnoresTheHolder;

#[async_trait]
impl Break for ReleaseIgnoresTheHolder {
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        let mut lease = lease.clone();
        if let Some(present) = inner.read(&lease.key).await? {
            lease.holder = present.holder;
        }
        inner.release(&lease).await
    }
}

/// Frees whatever is there now: the belief of having held it is enough.
#[derive(Debug, Default)]
pub struct ReleaseFreesAnybody;

#[async_trait]
impl Break for ReleaseFreesAnybody {
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        match inner.read(&lease.key).await? {
            Some(present) => inner.release(&present).await,
            None => Ok(Released::NotHeld),
        }
    }
}

/// Says that it has released, whatever it did.
#[derive(Debug, Default)]
pub struct ReleaseAlwaysSaysYes;

#[async_trait]
impl Break for ReleaseAlwaysSaysYes {
    async fn release(&self, inner: &MemoryStore, lease: &Lease) -> Result<Released> {
        inner.release(lease).await?;
        Ok(Released::Released)
    }
}

/// Says that it has released, and waits for the end of the term.
#[derive(Debug, Default)]
pub struct ReleaseDoesNothing;

#[async_trait]
impl Break for ReleaseDoesNothing {
    async fn release(&self, _inner: &MemoryStore, _lease: &Lease) -> Result<Released> {
        Ok(Released::Released)
    }
}

/// Answers a batch from its end.
#[derive(Debug, Default)]
pub struct ManyFromTheEnd;

#[async_trait]
impl Break for ManyFromTheEnd {
    async fn renew_many(
        &self,
        inner: &MemoryStore,
        leases: &[(Lease, Duration)],
    ) -> Option<Vec<Result<Renewed>>> {
        let mut answers = inner.renew_many(leases).await;
        answers.reverse();
        Some(answers)
    }
}

/// Gives up on a batch at the first that fails.
#[derive(Debug, Default)]
pub struct ManyAllOrNothing;

#[async_trait]
impl Break for ManyAllOrNothing {
    async fn renew_many(
        &self,
        inner: &MemoryStore,
        leases: &[(Lease, Duration)],
    ) -> Option<Vec<Result<Renewed>>> {
        let mut answers = inner.renew_many(leases).await;
        let mut failed = false;
        for answer in &mut answers {
            failed |= !matches!(answer, Ok(Renewed::Renewed(..)));
            if failed {
                *answer = Err(Error::unavailable("the batch has failed"));
            }
        }
        Some(answers)
    }
}

/// Renews the first part of a great batch only; and an empty one is an error.
#[derive(Debug, Default)]
pub struct ManyOnlySome;

#[async_trait]
impl Break for ManyOnlySome {
    async fn renew_many(
        &self,
        inner: &MemoryStore,
        leases: &[(Lease, Duration)],
    ) -> Option<Vec<Result<Renewed>>> {
        if leases.is_empty() {
            return Some(vec![Err(Error::invalid("nothing to renew"))]);
        }
        let mut answers = inner.renew_many(&leases[..leases.len().min(20)]).await;
        for (lease, _) in leases.iter().skip(20) {
            answers.push(Ok(Renewed::Renewed(lease.clone(), None)));
        }
        Some(answers)
    }
}
