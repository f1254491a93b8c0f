//! Breaks of acquire: grants too much, too little, or the wrong thing.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{AcquireRequest, Acquired, Attempt, Lease, MemoryStore, Result, Store, Token};

use crate::bed::Break;

/// Whoever asks gets it.
#[derive(Debug, Default)]
pub struct GrantsTwice;

#[async_trait]
impl Break for GrantsTwice {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let answer = inner.acquire(request).await?;
        let Acquired::Held(mut lease) = answer else {
            return Ok(answer);
        };
        lease.holder = request.holder.clone();
        lease.token = Token(lease.token.0 + 1);
        Ok(Acquired::Granted(lease))
    }
}

/// Looks whether the key is free, and writes afterwards: two steps.
#[derive(Debug, Default)]
pub struct ChecksThenWrites;

#[async_trait]
impl Break for ChecksThenWrites {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        if inner.read(&request.key).await?.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            inner.delete(&request.key);
        }
        inner.acquire(request).await
    }
}

/// Takes no notice of the attempt: a repeated one is refused because of itself.
#[derive(Debug, Default)]
pub struct RefusesRepeats;

#[async_trait]
impl Break for RefusesRepeats {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        match inner.read(&request.key).await? {
            Some(lease) => Ok(Acquired::Held(lease)),
            None => inner.acquire(request).await,
        }
    }
}

/// Takes the holder's name for proof, whatever the attempt.
#[derive(Debug, Default)]
pub struct TrustsTheName;

#[async_trait]
impl Break for TrustsTheName {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut request = request.clone();
        match inner.read(&request.key).await? {
            Some(lease) if lease.holder == request.holder => {
                request.attempt = lease.attempt.expect("the memory store keeps it");
            }
            _ => {}
        }
        inner.acquire(&request).await
    }
}

/// Takes the attempt's number for proof, whoever asks.
#[derive(Debug, Default)]
pub struct TrustsTheNumber;

#[async_trait]
impl Break for TrustsTheNumber {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        match inner.read(&request.key).await? {
            Some(lease) if lease.attempt == Some(request.attempt) => Ok(Acquired::Granted(lease)),
            _ => inner.acquire(request).await,
        }
    }
}

/// Answers a repeated attempt from the record, whose term runs on as it was.
#[derive(Debug, Default)]
pub struct RepeatsWithoutNewTerm;

#[async_trait]
impl Break for RepeatsWithoutNewTerm {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        match inner.read(&request.key).await? {
            Some(mut lease)
                if lease.attempt == Some(request.attempt) && lease.holder == request.holder =>
            {
                lease.ttl = request.ttl;
                Ok(Acquired::Granted(lease))
            }
            _ => inner.acquire(request).await,
        }
    }
}

/// Gives an attempt the token that it had, although that tenure has ended.
#[derive(Debug, Default)]
pub struct RevivesTenures(Mutex<HashMap<Attempt, Lease>>);

#[async_trait]
impl Break for RevivesTenures {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let answer = inner.acquire(request).await?;
        let Acquired::Granted(lease) = answer else {
            return Ok(answer);
        };
        let mut known = self.0.lock().unwrap();
        let first = known.entry(request.attempt).or_insert(lease);
        Ok(Acquired::Granted(first.clone()))
    }
}

/// Gives half of the term that was asked for.
#[derive(Debug, Default)]
pub struct GrantsHalfTheTerm;

#[async_trait]
impl Break for GrantsHalfTheTerm {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut request = request.clone();
        request.ttl /= 2;
        inner.acquire(&request).await
    }
}

/// Says the term that was asked for, and lets it end at half of it.
#[derive(Debug, Default)]
pub struct EndsEarly;

#[async_trait]
impl Break for EndsEarly {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut half = request.clone();
        half.ttl /= 2;
        Ok(match inner.acquire(&half).await? {
            Acquired::Granted(mut lease) => {
                lease.ttl = request.ttl;
                Acquired::Granted(lease)
            }
            held => held,
        })
    }
}

/// Never lets a term end.
#[derive(Debug, Default)]
pub struct NeverEnds;

#[async_trait]
impl Break for NeverEnds {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut eternal = request.clone();
        eternal.ttl = inner.traits().ttl_max;
        Ok(match inner.acquire(&eternal).await? {
            Acquired::Granted(mut lease) => {
                lease.ttl = request.ttl;
                Acquired::Granted(lease)
            }
            held => held,
        })
    }
}

/// Cuts a ttl to size instead of refusing it.
#[derive(Debug, Default)]
pub struct CutsTheTtl;

#[async_trait]
impl Break for CutsTheTtl {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let traits = inner.traits();
        let mut cut = request.clone();
        cut.ttl = cut.ttl.clamp(traits.ttl_min, traits.ttl_max);
        inner.acquire(&cut).await
    }
    async fn renew(
        &self,
        inner: &MemoryStore,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<tenure::Renewed> {
        let traits = inner.traits();
        let cut = ttl.clamp(traits.ttl_min, traits.ttl_max);
        inner.renew(lease, cut).await
    }
}

/// Rounds a small ttl up to a day, and a great one over the end of its column.
#[derive(Debug, Default)]
pub struct RoundsTheTtl;

#[async_trait]
impl Break for RoundsTheTtl {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        const DAY: Duration = Duration::from_secs(86_400);
        let mut rounded = request.clone();
        if request.ttl < Duration::from_millis(100) || request.ttl > 365 * DAY {
            rounded.ttl = DAY;
        }
        Ok(match inner.acquire(&rounded).await? {
            Acquired::Granted(mut lease) => {
                lease.ttl = request.ttl;
                Acquired::Granted(lease)
            }
            held => held,
        })
    }
}

/// Believes every candidate that the lease has ended, although it has a clock.
#[derive(Debug, Default)]
pub struct BelievesCandidates;

#[async_trait]
impl Break for BelievesCandidates {
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        match inner.read(&request.key).await? {
            Some(lease) if request.ended.as_ref() == Some(&lease.version) => {
                inner.release(&lease).await?;
            }
            _ => {}
        }
        inner.acquire(request).await
    }
}

/// Without a clock: takes the lease for anybody who names any version.
#[derive(Debug, Default)]
pub struct DoesNotCompare;

#[async_trait]
impl Break for DoesNotCompare {
    const OWN_CLOCK: bool = false;
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut request = request.clone();
        if let (Some(_), Some(lease)) = (&request.ended, inner.read(&request.key).await?) {
            request.ended = Some(lease.version);
        }
        inner.acquire(&request).await
    }
}

/// Without a clock: does not listen to whoever has watched.
#[derive(Debug, Default)]
pub struct NeverHandsOver;

#[async_trait]
impl Break for NeverHandsOver {
    const OWN_CLOCK: bool = false;
    async fn acquire(&self, inner: &MemoryStore, request: &AcquireRequest) -> Result<Acquired> {
        let mut request = request.clone();
        request.ended = None;
        inner.acquire(&request).await
    }
}
