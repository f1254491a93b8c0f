//! The store: one object for each key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tenure::{
    AcquireRequest, Acquired, Asked, BootClock, Clock, Error, ErrorKind, HolderRequest, Key, Lease,
    Released, Renewed, Result, Store, StoreTraits,
};

use crate::age::PEER_TTL;
use crate::objects::{Found, Objects};
use crate::options::ObjectOptions;
use crate::place::{Cloud, Place};
use crate::probe::Probe;
use crate::service_clock::ServiceClock;

/// How many objects are asked for at the same time.
const AT_ONCE: usize = 16;

/// Leases as objects of a bucket.
///
/// It judges no expiry but that of leases that ended long ago: candidates watch the record.
#[derive(Clone)]
pub struct BucketStore {
    objects: Objects,
    service_clock: ServiceClock,
    peer_ttl: Duration,
}

impl BucketStore {
    /// With a client of its own. The service is not asked yet.
    pub fn open(options: ObjectOptions) -> Result<Self> {
        Self::open_with_clock(options, Arc::new(BootClock))
    }

    /// As [`open`](Self::open), with this clock for what people and peers read.
    pub fn open_with_clock(options: ObjectOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        let client = options.client()?;
        let object = options.object_name().map(str::to_owned);
        let objects = Objects::new(client, options.place(), object);
        // What cannot be a path is better said now than at the first call.
        objects.path(&Key::new("key")?)?;
        Ok(Self {
            objects,
            service_clock: ServiceClock::new(clock),
            peer_ttl: options.peer_ttl_or_default(),
        })
    }

    /// With your client, below this prefix (`leases/`, or empty). Its retries have to be
    /// off: a write that is sent twice refuses itself, and costs a look to find out.
    ///
    /// The service's clock is seen only if your client was made with a
    /// [`Connector`](crate::Connector). Without it every lease is watched to its end, and
    /// the first token of a key costs a small object beside the leases.
    pub fn with_client(client: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> Result<Self> {
        let mut prefix = prefix.into();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        let place = Place {
            cloud: Cloud::Given,
            bucket: String::new(),
            prefix,
            endpoint: None,
        };
        let objects = Objects::new(client, place, None);
        objects.path(&Key::new("key")?)?;
        Ok(Self {
            objects,
            service_clock: ServiceClock::new(Arc::new(BootClock)),
            peer_ttl: PEER_TTL,
        })
    }

    /// Makes sure that the bucket can hold leases, and says what was found: see
    /// [`probe`](Self::probe).
    pub async fn init(&self) -> Result<String> {
        let probe = self.probe().await?;
        Ok(format!("{} can hold leases: {probe}", self.objects.place))
    }

    /// Proves with a throw-away object that the service refuses writes whose condition
    /// does not hold. If it does not, two can hold one lease, and the error says so.
    pub async fn probe(&self) -> Result<Probe> {
        Probe::run(&self.objects).await
    }

    /// The name of the object that is the record of this key, for those who look by hand.
    pub fn object_of(&self, key: &Key) -> Result<String> {
        Ok(self.objects.path(key)?.to_string())
    }

    /// The client beneath, for those who look by hand. It knows nothing of the prefix.
    pub fn client(&self) -> Arc<dyn ObjectStore> {
        self.objects.client().clone()
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn service_clock(&self) -> &ServiceClock {
        &self.service_clock
    }

    pub(crate) fn ttl_of(&self, found: &Found) -> Duration {
        found.ttl(self.peer_ttl, self.traits().ttl_max)
    }

    /// The service's clock where nobody sees its answers: when it says that it has
    /// written a small object.
    pub(crate) async fn ask_the_time(&self) -> Result<DateTime<Utc>> {
        let path = self.objects.path_of(".tenure/clock")?;
        let client = self.objects.client();
        let asked = async {
            client.put(&path, PutPayload::from_static(b"{}")).await?;
            client.head(&path).await
        };
        let meta = asked.await.map_err(|error: object_store::Error| {
            Error::unreachable(format!("the object store's clock cannot be seen: {error}"))
        })?;
        Ok(meta.last_modified)
    }
}

#[async_trait]
impl Store for BucketStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("object");
        traits.own_clock = false;
        traits.list = self.objects.only_object().is_none();
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.traits().check_ttl(request.ttl)?;
        self.take(request).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.traits().check_ttl(ttl)?;
        self.extend(lease, ttl).await
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        self.give_back(lease).await
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        self.shown(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        if self.objects.only_object().is_some() {
            return Err(self.cannot("list leases where all keys have one object"));
        }
        let mut leases = Vec::new();
        if limit == 0 {
            return Ok(leases);
        }
        let keys = self.objects.keys(prefix).await?;
        let looks = keys.into_iter().map(|key| async move {
            let lease = self.shown(&key).await;
            (key, lease)
        });
        let mut shown = stream::iter(looks).buffered(AT_ONCE);
        while let Some((key, answer)) = shown.next().await {
            match answer {
                Ok(lease) => leases.extend(lease),
                // It must not hide the others.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(key = %key, "left out of the list: {error}");
                }
                Err(error) => return Err(error),
            }
            if leases.len() == limit {
                break;
            }
        }
        Ok(leases)
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let leases = leases.iter();
        let renewals: Vec<_> = leases.map(|(lease, ttl)| self.renew(lease, *ttl)).collect();
        stream::iter(renewals).buffered(AT_ONCE).collect().await
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        self.leave(key, request).await
    }
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStore")
            .field("objects", &self.objects)
            .finish_non_exhaustive()
    }
}
