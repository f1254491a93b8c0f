//! The operations as turns: look, decide, write under the condition that nothing has
//! changed since; and look again if something has.

use std::time::Duration;

use object_store::path::Path;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, Holder, HolderRequest, Key, Lease, Loss, Released,
    Renewed, Result, Token, Version,
};

use crate::objects::{Condition, Found, Read, Written};
use crate::record::{Own, Record};
use crate::store::BucketStore;
use crate::version::{Mark, Stamp};

/// Each turn that fails means that somebody else's write came through. So many do not
/// come between one look and one write unless something is very wrong.
const TURNS_MAX: usize = 16;

impl BucketStore {
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Result<Acquired> {
        let key = &request.key;
        let path = self.objects().path(key)?;
        for turn in 0..TURNS_MAX {
            let read = self.look(&path, key).await?;
            let Some(found) = read.found.clone() else {
                let token = self.first_token(&read, &path).await?;
                let own = self.new_own(request, token);
                let record = self.held(&request.holder, own);
                if let Some(mark) = self.put(&path, key, &record, &Condition::Absent).await? {
                    return Ok(Acquired::Granted(lease(&record, &mark)));
                }
                continue;
            };
            let own = match self.standing(&read, &found, request) {
                Standing::Ours(own) if turn > 0 && own.ttl == ttl_kept(request.ttl) => {
                    // It was written after this call had looked: its term began in time.
                    return Ok(Acquired::Granted(lease(&found.record, &found.mark)));
                }
                Standing::Ours(own) => Own {
                    ttl: ttl_kept(request.ttl),
                    nonce: nonce(),
                    ..own
                },
                Standing::Held(lease) => return Ok(Acquired::Held(lease)),
                Standing::Free => {
                    let token = next_token(&read, &found, &path)?;
                    self.new_own(request, token)
                }
            };
            let record = self.held(&request.holder, own);
            let condition = Condition::Is(found.mark.clone());
            if let Some(mark) = self.put(&path, key, &record, &condition).await? {
                return Ok(Acquired::Granted(lease(&record, &mark)));
            }
        }
        Err(self.crowded(&path))
    }

    pub(crate) async fn extend(&self, old: &Lease, ttl: Duration) -> Result<Renewed> {
        let key = &old.key;
        let path = self.objects().path(key)?;
        let own = |request| Own {
            key: key.clone(),
            token: old.token,
            attempt: old.attempt,
            ttl: ttl_kept(ttl),
            acquired_at: old.acquired_at,
            nonce: nonce(),
            request,
        };
        let renewed = |record: &Record, mark: &Mark| {
            let request = record.own.as_ref().and_then(|own| own.request.clone());
            Renewed::Renewed(lease(record, mark), request)
        };
        let mut sent = None;
        if let Some(stamp) = stamp_of(old) {
            let record = self.held(&old.holder, own(stamp.request));
            let condition = Condition::Is(stamp.mark);
            if let Some(mark) = self.put(&path, key, &record, &condition).await? {
                return Ok(renewed(&record, &mark));
            }
            sent = record.own.map(|own| own.nonce);
        }
        for _ in 0..TURNS_MAX {
            let read = self.look(&path, key).await?;
            let Some(found) = read.found else {
                return Ok(Renewed::Lost(Loss::Deleted));
            };
            if sent.is_some() && found.record.nonce() == sent.as_deref() {
                return Ok(renewed(&found.record, &found.mark));
            }
            let present = match ours(&found, old) {
                Ok(present) => present,
                Err(loss) => return Ok(Renewed::Lost(loss)),
            };
            let next = Own {
                acquired_at: present.acquired_at,
                attempt: present.attempt,
                ..own(present.request.clone())
            };
            let record = self.held(&old.holder, next);
            let condition = Condition::Is(found.mark.clone());
            if let Some(mark) = self.put(&path, key, &record, &condition).await? {
                return Ok(renewed(&record, &mark));
            }
            sent = record.own.map(|own| own.nonce);
        }
        Err(self.crowded(&path))
    }

    pub(crate) async fn give_back(&self, old: &Lease) -> Result<Released> {
        let key = &old.key;
        let path = self.objects().path(key)?;
        let ended = || Record {
            holder: None,
            until: chrono::DateTime::UNIX_EPOCH,
            own: Some(Own {
                key: key.clone(),
                token: old.token,
                attempt: None,
                ttl: ttl_kept(old.ttl),
                acquired_at: None,
                nonce: nonce(),
                request: None,
            }),
        };
        let mut sent = None;
        if let Some(stamp) = stamp_of(old) {
            let record = ended();
            let condition = Condition::Is(stamp.mark);
            if self.put(&path, key, &record, &condition).await?.is_some() {
                return Ok(Released::Released);
            }
            sent = record.own.map(|own| own.nonce);
        }
        for _ in 0..TURNS_MAX {
            let read = self.look(&path, key).await?;
            let Some(found) = read.found else {
                return Ok(Released::NotHeld);
            };
            if sent.is_some() && found.record.nonce() == sent.as_deref() {
                return Ok(Released::Released);
            }
            if ours(&found, old).is_err() {
                return Ok(Released::NotHeld);
            }
            let record = ended();
            let condition = Condition::Is(found.mark.clone());
            if self.put(&path, key, &record, &condition).await?.is_some() {
                return Ok(Released::Released);
            }
            sent = record.own.map(|own| own.nonce);
        }
        Err(self.crowded(&path))
    }

    pub(crate) async fn leave(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let path = self.objects().path(key)?;
        for _ in 0..TURNS_MAX {
            let read = self.look(&path, key).await?;
            let Some(found) = read.found.clone() else {
                return Ok(Asked::NotHeld);
            };
            let Some(holder) = self.live(&read, &found) else {
                return Ok(Asked::NotHeld);
            };
            let Some(own) = found.record.own.clone() else {
                return Err(Error::unsupported(format!(
                    "\"{key}\" is held by \"{holder}\" of another library, which takes no requests: ask it by its own means"
                )));
            };
            let token = own.token;
            let asked = Asked::Left { holder, token };
            if own.request.as_ref() == Some(&request) {
                return Ok(asked);
            }
            let mut record = found.record.clone();
            record.own = Some(Own {
                request: Some(request.clone()),
                nonce: nonce(),
                ..own
            });
            let condition = Condition::Is(found.mark.clone());
            if self.put(&path, key, &record, &condition).await?.is_some() {
                return Ok(asked);
            }
        }
        Err(self.crowded(&path))
    }

    /// The lease that a record shows, unless it has ended for sure.
    pub(crate) async fn shown(&self, key: &Key) -> Result<Option<Lease>> {
        let path = self.objects().path(key)?;
        let read = self.look(&path, key).await?;
        let Some(found) = &read.found else {
            return Ok(None);
        };
        let live = self.live(&read, found).is_some();
        Ok(live.then(|| self.lease_of(key, found)).flatten())
    }

    async fn look(&self, path: &Path, key: &Key) -> Result<Read> {
        let read = self.objects().read(path, key).await?;
        self.service_clock().show(read.date);
        Ok(read)
    }

    /// Writes the record; None if something has changed. Where no answer came, the nonce
    /// in the object tells whether it was written.
    async fn put(
        &self,
        path: &Path,
        key: &Key,
        record: &Record,
        condition: &Condition,
    ) -> Result<Option<Mark>> {
        let written = self.objects().write(path, record, condition).await?;
        match written {
            Written::Done(mark, date) => {
                self.service_clock().show(date);
                Ok(Some(mark))
            }
            Written::Conflict => Ok(None),
            Written::Unknown(error) => match self.look(path, key).await {
                Ok(Read {
                    found: Some(found), ..
                }) if found.record.nonce() == record.nonce() => Ok(Some(found.mark.clone())),
                // It may yet arrive: nobody knows.
                _ => Err(error),
            },
        }
    }

    fn standing(&self, read: &Read, found: &Found, request: &AcquireRequest) -> Standing {
        let Some(holder) = self.live(read, found) else {
            return Standing::Free;
        };
        if let Some(own) = &found.record.own
            && holder == request.holder
            && own.attempt == Some(request.attempt)
        {
            return Standing::Ours(own.clone());
        }
        let named = request.ended.as_ref().and_then(Stamp::parse);
        if named.is_some_and(|named| named.mark.is(&found.mark)) {
            return Standing::Free;
        }
        match self.lease_of(&request.key, found) {
            Some(lease) => Standing::Held(lease),
            None => Standing::Free,
        }
    }

    /// Who has it, unless it was released or has ended for sure.
    fn live(&self, read: &Read, found: &Found) -> Option<Holder> {
        let holder = found.record.holder.clone()?;
        let ttl = self.ttl_of(found);
        (!read.long_ended(found.written_at, ttl)).then_some(holder)
    }

    fn lease_of(&self, key: &Key, found: &Found) -> Option<Lease> {
        if found.record.own.is_some() {
            return Some(lease(&found.record, &found.mark));
        }
        let holder = found.record.holder.clone()?;
        let token = Token(0);
        Some(Lease {
            key: key.clone(),
            version: Stamp::new(&found.mark, &holder, token, None).text(),
            holder,
            token,
            attempt: None,
            ttl: self.ttl_of(found),
            rest: None,
            acquired_at: None,
        })
    }

    /// The token of the first tenure of a key, or of the first after a deletion.
    async fn first_token(&self, read: &Read, path: &Path) -> Result<Token> {
        let date = match read.date {
            Some(date) => date,
            None => self.ask_the_time().await?,
        };
        checked(Token::next(Token(0), micros(date)), path)
    }

    fn held(&self, holder: &Holder, own: Own) -> Record {
        Record {
            holder: Some(holder.clone()),
            until: self.service_clock().end_of(own.ttl),
            own: Some(own),
        }
    }

    fn new_own(&self, request: &AcquireRequest, token: Token) -> Own {
        Own {
            key: request.key.clone(),
            token,
            attempt: Some(request.attempt),
            ttl: ttl_kept(request.ttl),
            acquired_at: Some(self.service_clock().about_now().into()),
            nonce: nonce(),
            request: None,
        }
    }

    fn crowded(&self, path: &Path) -> Error {
        Error::unreachable(format!(
            "the object {path} was written by others {TURNS_MAX} times in between, and nothing by us: try again"
        ))
    }
}

/// How a record stands to who asks for it.
enum Standing {
    Free,
    /// It is the same attempt's.
    Ours(Own),
    Held(Lease),
}

/// The version that the lease came with, if it is of this very holder and token.
fn stamp_of(lease: &Lease) -> Option<Stamp> {
    let stamp = Stamp::parse(&lease.version)?;
    let same =
        stamp.token.0 > 0 && stamp.token == lease.token && stamp.holder == lease.holder.as_str();
    same.then_some(stamp)
}

/// Our part of the record if holder and token are the lease's; else how it was lost.
fn ours<'f>(found: &'f Found, lease: &Lease) -> std::result::Result<&'f Own, Loss> {
    let Some(holder) = &found.record.holder else {
        return Err(Loss::Deleted);
    };
    match &found.record.own {
        Some(own) if *holder == lease.holder && own.token == lease.token => Ok(own),
        own => Err(Loss::Superseded {
            holder: holder.clone(),
            token: own.as_ref().map_or(Token(0), |own| own.token),
        }),
    }
}

fn next_token(read: &Read, found: &Found, path: &Path) -> Result<Token> {
    let clock = micros(
        read.date
            .map_or(found.written_at, |date| date.max(found.written_at)),
    );
    let token = match &found.record.own {
        Some(own) => Token::next(own.token, clock),
        // A peer wrote over our token. It was of this very second at the latest.
        None => Token::next(Token(0), clock.saturating_add(1_000_000)),
    };
    checked(token, path)
}

fn checked(token: Token, path: &Path) -> Result<Token> {
    if token.0 == 0 || token.0 >= 1 << 53 {
        return Err(Error::corrupt(format!(
            "the object {path} leaves no greater token: look at its token and at the service's clock"
        )));
    }
    Ok(token)
}

fn micros(date: chrono::DateTime<chrono::Utc>) -> u64 {
    u64::try_from(date.timestamp_micros()).unwrap_or(0)
}

/// The term as the record keeps it.
fn ttl_kept(ttl: Duration) -> Duration {
    Duration::from_millis(crate::record::millis(ttl))
}

fn nonce() -> String {
    format!("{:032x}", fastrand::Rng::new().u128(..))
}

/// The lease that a record of ours shows.
fn lease(record: &Record, mark: &Mark) -> Lease {
    // Only called with records that have a holder and our part.
    let (Some(holder), Some(own)) = (&record.holder, &record.own) else {
        unreachable!("a record without holder is no lease");
    };
    let version: Version = Stamp::new(mark, holder, own.token, own.request.clone()).text();
    Lease {
        key: own.key.clone(),
        holder: holder.clone(),
        token: own.token,
        attempt: own.attempt,
        ttl: own.ttl,
        rest: None,
        acquired_at: own.acquired_at,
        version,
    }
}
