//! The store: the contract of `tenure`, answered by etcd.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::{
    AcquireRequest, Acquired, Asked, BootClock, Clock, Error, HolderRequest, Key, Lease, Notice,
    Released, Renewed, Result, Store, StoreTraits, Token,
};
use tonic::transport::Channel;

use crate::bind::{self, Spares};
use crate::client::Client;
use crate::keys::{self, Keys, found};
use crate::options::EtcdOptions;
use crate::proto::RangeRequest;
use crate::record::{NOTES, Note, Record};

/// Below this etcd makes a ttl longer by itself, with its usual election timeout of a second.
const TTL_MIN: Duration = Duration::from_secs(2);

/// Leases in etcd. Clones share one connection.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    keys: Keys,
    spares: Spares,
}

impl EtcdStore {
    /// A store that connects when it is first used.
    pub fn open(options: EtcdOptions) -> Result<Self> {
        let keys = Keys::new(&options.prefix)?;
        let client = Client::new(options.link(None)?);
        Ok(Self::new(client, keys))
    }

    /// A store over a connection of your own, which you look after: if it breaks, it is
    /// yours to mend. Of the options only user, password and prefix count.
    pub fn with_channel(channel: Channel, options: EtcdOptions) -> Result<Self> {
        let keys = Keys::new(&options.prefix)?;
        let client = Client::new(options.link(Some(channel))?);
        Ok(Self::new(client, keys))
    }

    fn new(client: Client, keys: Keys) -> Self {
        let shared = Shared {
            client,
            keys,
            spares: Spares::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Looks whether the keys may be read. etcd has nothing that would have to be created;
    /// users and roles are an administrator's: see [`EtcdOptions::schema`].
    pub async fn init(&self) -> Result<String> {
        let prefix = self.keys().prefix().to_owned();
        let notes = format!("{NOTES}{prefix}");
        let counts = [&prefix, &notes].map(|begin| {
            keys::range(RangeRequest {
                key: begin.clone().into_bytes(),
                range_end: keys::range_end(begin.as_bytes()),
                count_only: true,
                ..RangeRequest::default()
            })
        });
        self.client().read(counts.to_vec()).await?;
        let whose = self.client().whose();
        Ok(format!(
            "There is nothing to create in {whose}: it answers, and the keys under {prefix:?} and {notes:?} can be read."
        ))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.shared.spares
    }

    /// The answer to an attempt that has this record already: its term begins anew.
    async fn again(&self, request: &AcquireRequest, record: &Record) -> Result<Acquired> {
        let lease = record.lease(&request.key, request.ttl, None);
        match self.renew_one(&lease, request.ttl).await? {
            Renewed::Renewed(lease, _) => Ok(Acquired::Granted(lease)),
            Renewed::Lost(_) => Err(Error::unreachable(format!(
                "the tenure of {:?} that this attempt was granted ended during the call: try again",
                request.key
            ))),
        }
    }

    /// The answer to somebody who does not get the key because of this record.
    async fn held(&self, key: &Key, record: &Record) -> Result<Acquired> {
        let told = self.told(key, record).await;
        let lease = match (told, &record.note) {
            (Ok(Some(lease)), _) => lease,
            // It ends at this moment.
            (Ok(None), note) => {
                let ttl = note.as_ref().map_or(TTL_MIN, Note::ttl);
                record.lease(key, ttl, Some(Duration::ZERO))
            }
            // Who has it is known, and that is the answer.
            (Err(_), Some(note)) => record.lease(key, note.ttl(), None),
            (Err(error), None) => return Err(error),
        };
        Ok(Acquired::Held(lease))
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("prefix", &self.keys().prefix())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("etcd");
        traits.ttl_min = TTL_MIN;
        traits.watch = true;
        traits.list = true;
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        let AcquireRequest {
            key, holder, ttl, ..
        } = request;
        let note = Note::new(Some(request.attempt), *ttl, BootClock.wall());
        let txn = |id| self.keys().take(key, holder, &note, id);
        let (answer, id) = bind::commit(self.client(), self.spares(), *ttl, txn).await?;
        if answer.succeeded {
            let revision = answer.header.map_or(0, |header| header.revision);
            let record = Record {
                holder: holder.clone(),
                token: Token(u64::try_from(revision).unwrap_or(0)),
                bound_to: id,
                note: Some(note),
                note_revision: revision,
                note_unreadable: false,
            };
            return Ok(Acquired::Granted(record.lease(key, *ttl, Some(*ttl))));
        }
        let Some(record) = keys::record(key, answer)? else {
            return Err(Error::unreachable(format!(
                "etcd refused {key:?} and shows nobody who has it: try again"
            )));
        };
        let ours = record.holder == *holder && record.attempt() == Some(request.attempt);
        match ours {
            true => self.again(request, &record).await,
            false => self.held(key, &record).await,
        }
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        self.renew_one(lease, ttl).await
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let txn = self.keys().free(&lease.key, &lease.holder, lease.token);
        let answer = self.client().txn(txn).await?;
        if !answer.succeeded {
            return Ok(Released::NotHeld);
        }
        // With a note of this tenure it was an etcd lease of ours, and nothing else is
        // bound to it. A lease of somebody else may have other keys.
        let bound: Vec<_> = found(answer)
            .iter()
            .map(|kvs| kvs.first().map(|kv| kv.lease))
            .collect();
        if let [Some(main), Some(note)] = bound[..]
            && main == note
        {
            self.client().revoke_later(main);
        }
        Ok(Released::Released)
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        match self.record(key).await? {
            Some(record) => self.told(key, &record).await,
            None => Ok(None),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        self.list_pages(prefix, limit).await
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let traits = self.traits();
        let refused: Vec<_> = leases
            .iter()
            .map(|(_, ttl)| traits.check_ttl(*ttl).err())
            .collect();
        let good = leases.iter().zip(&refused);
        let good: Vec<_> = good
            .filter(|(_, refused)| refused.is_none())
            .map(|(lease, _)| lease.clone())
            .collect();
        let mut renewed = self.renew_batch(&good).await.into_iter();
        let answers = refused.into_iter().filter_map(|refused| match refused {
            Some(error) => Some(Err(error)),
            None => renewed.next(),
        });
        answers.collect()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        self.watch_key(key).await
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let Some(record) = self.record(key).await? else {
            return Ok(Asked::NotHeld);
        };
        if record.note_unreadable {
            return Err(Error::corrupt(format!(
                "tenure's note beside the record of {key:?} in etcd cannot be read, so nothing can be asked of the holder"
            )));
        }
        let note = match &record.note {
            Some(note) => note.clone(),
            None => {
                // HAMode never looks for requests.
                let holder = &record.holder;
                return Err(Error::unsupported(format!(
                    "{key:?} is held by {holder}, whose program reads no requests: stop it there"
                )));
            }
        };
        let txn = self
            .keys()
            .write_note(key, &record, &note.with_request(&request)?);
        if !self.client().txn(txn).await?.succeeded {
            return Err(Error::unreachable(format!(
                "the record of {key:?} in etcd changed during the call, and nothing was left for its holder: try again"
            )));
        }
        let (holder, token) = (record.holder, record.token);
        Ok(Asked::Left { holder, token })
    }
}
