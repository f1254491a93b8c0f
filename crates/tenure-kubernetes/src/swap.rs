//! Compare and swap: take, renew, release and ask, each written over the one state that was
//! read. A write that lost the comparison has changed nothing, so the new state is read and
//! judged again, a bounded number of times.

use std::time::Duration;

use tenure::{
    AcquireRequest, Acquired, Asked, BootClock, Clock, Error, HolderRequest, Key, Lease, Loss,
    Released, Renewed, Result,
};

use crate::names;
use crate::record::Record;
use crate::store::KubernetesStore;

/// How often the state may change under one call. Each loss means that somebody else's
/// write went through.
const ROUNDS: usize = 12;

impl KubernetesStore {
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Result<Acquired> {
        let key = &request.key;
        for _ in 0..ROUNDS {
            let Some(record) = self.found_or_made(key).await? else {
                continue;
            };
            let ended = request.ended.as_ref() == Some(&record.version());
            let now = BootClock.wall();
            let next = if record.is_of(request) {
                record.renewed(request.ttl, now)?
            } else {
                match record.lease() {
                    Some(lease) if !ended => return Ok(Acquired::Held(lease)),
                    _ => record.taken(request, now)?,
                }
            };
            let Some(written) = self.write(key, &next).await? else {
                continue;
            };
            if let Some(lease) = written.lease() {
                self.cache().keep(key, &written);
                return Ok(Acquired::Granted(lease));
            }
        }
        Err(self.contended(key))
    }

    pub(crate) async fn renew_one(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let key = &lease.key;
        let mut known = self.cache().get(lease);
        for _ in 0..ROUNDS {
            let record = match known.take() {
                Some(record) => record,
                None => match self.found(key).await? {
                    Some(record) => record,
                    None => return Ok(self.lost(key, Loss::Deleted)),
                },
            };
            if !record.is_tenure(lease) {
                let loss = match record.lease() {
                    Some(Lease { holder, token, .. }) => Loss::Superseded { holder, token },
                    None => Loss::Deleted,
                };
                return Ok(self.lost(key, loss));
            }
            let next = record.renewed(ttl, BootClock.wall())?;
            let Some(written) = self.write(key, &next).await? else {
                continue;
            };
            if let Some(lease) = written.lease() {
                self.cache().keep(key, &written);
                let request = written.request();
                return Ok(Renewed::Renewed(lease, request));
            }
        }
        Err(self.contended(key))
    }

    pub(crate) async fn free(&self, lease: &Lease) -> Result<Released> {
        let key = &lease.key;
        let mut known = self.cache().get(lease);
        for _ in 0..ROUNDS {
            let record = match known.take() {
                Some(record) => Some(record),
                None => self.found(key).await?,
            };
            let Some(record) = record.filter(|record| record.is_tenure(lease)) else {
                self.cache().drop(key);
                return Ok(Released::NotHeld);
            };
            let next = record.freed(BootClock.wall())?;
            if self.write(key, &next).await?.is_some() {
                self.cache().drop(key);
                return Ok(Released::Released);
            }
        }
        Err(self.contended(key))
    }

    pub(crate) async fn leave(&self, key: &Key, request: &HolderRequest) -> Result<Asked> {
        for _ in 0..ROUNDS {
            let Some(record) = self.found(key).await? else {
                return Ok(Asked::NotHeld);
            };
            let Some(Lease { holder, token, .. }) = record.lease() else {
                return Ok(Asked::NotHeld);
            };
            let Some(next) = record.asked(request)? else {
                // client-go looks for no requests.
                return Err(Error::unsupported(format!(
                    "{key:?} is held by {holder}, whose program reads no requests: stop it there"
                )));
            };
            if self.write(key, &next).await?.is_some() {
                return Ok(Asked::Left { holder, token });
            }
        }
        Err(self.contended(key))
    }

    pub(crate) async fn found(&self, key: &Key) -> Result<Option<Record>> {
        let object = self.link().get(&names::name(key)).await?;
        object.map(|object| Record::read(key, object)).transpose()
    }

    /// The record, created free if there is none. A tenure's token is the version of the
    /// state that it replaces, so there has to be one first.
    async fn found_or_made(&self, key: &Key) -> Result<Option<Record>> {
        if let Some(record) = self.found(key).await? {
            return Ok(Some(record));
        }
        let (namespace, _) = self.link().place().await?;
        let made = self.link().create(&Record::empty(key, &namespace)).await;
        // An empty Lease is nobody's, so whether it is there now is of no matter.
        let made = made.map_err(|error| match error.may_have_worked() {
            true => Error::unreachable(error.to_string()),
            false => error,
        })?;
        made.map(|object| Record::read(key, object)).transpose()
    }

    /// None if the state is not the one that was read any more.
    async fn write(&self, key: &Key, record: &Record) -> Result<Option<Record>> {
        let name = names::name(key);
        match self.link().replace(&name, record.object()).await? {
            Some(object) => Record::read(key, object).map(Some),
            None => {
                self.cache().drop(key);
                Ok(None)
            }
        }
    }

    fn lost(&self, key: &Key, loss: Loss) -> Renewed {
        self.cache().drop(key);
        Renewed::Lost(loss)
    }

    fn contended(&self, key: &Key) -> Error {
        Error::unreachable(format!(
            "the Lease of {key:?} changed {ROUNDS} times during the call, and nothing was written: try again"
        ))
    }
}
