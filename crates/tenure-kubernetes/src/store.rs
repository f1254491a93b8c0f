//! The store: the contract of `tenure`, answered by the API server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kube::Client;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, HolderRequest, Key, Lease, Notice, Released, Renewed,
    Result, Store, StoreTraits,
};

use crate::announce::Announcer;
use crate::cache::Cache;
use crate::connect::Connector;
use crate::link::Link;
use crate::options::KubernetesOptions;

/// leaseDurationSeconds counts whole seconds, from one.
const TTL_MIN: Duration = Duration::from_secs(1);

/// How many leases are renewed at a time.
const AT_ONCE: usize = 8;

/// Leases in Kubernetes. Clones share one client.
#[derive(Clone)]
pub struct KubernetesStore {
    shared: Arc<Shared>,
}

struct Shared {
    link: Arc<Link>,
    cache: Cache,
    announcer: Option<Announcer>,
}

impl KubernetesStore {
    /// A store that connects when it is first used.
    pub fn open(options: KubernetesOptions) -> Result<Self> {
        let connector = Connector::new(options.source.clone());
        Self::new(connector, options)
    }

    /// A store over a client of your own. Make it with `default_retry = false` and a
    /// `read_timeout` in its `Config`: a client that sends a lease write again by itself
    /// breaks the promise that an unknown result is told. Of the options, kubeconfig and
    /// context do not count; without a namespace the client's own is taken.
    pub fn with_client(client: Client, options: KubernetesOptions) -> Result<Self> {
        Self::new(Connector::given(client), options)
    }

    fn new(connector: Connector, options: KubernetesOptions) -> Result<Self> {
        let link = Link::new(connector, options.namespace, options.request_timeout);
        let link = Arc::new(link);
        let announcer = Announcer::new(&link, options.announce)?;
        let cache = Cache::default();
        let shared = Shared {
            link,
            cache,
            announcer,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Looks whether the Leases may be read. There is nothing to create; the rights are an
    /// administrator's to give: see [`KubernetesOptions::schema`].
    pub async fn init(&self) -> Result<String> {
        let (namespace, whose) = self.link().place().await?;
        self.link().get("tenure-init").await?;
        Ok(format!(
            "There is nothing to create in {whose}: it answers, and Leases in the namespace {namespace} can be read."
        ))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.shared.link
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Refuses a ttl that the record cannot hold.
    fn check_ttl(&self, ttl: Duration) -> Result<()> {
        self.traits().check_ttl(ttl)?;
        if ttl.subsec_nanos() != 0 {
            return Err(Error::invalid(format!(
                "a ttl of {} is not possible on the kubernetes store: its record counts whole seconds",
                humantime::format_duration(ttl)
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesStore")
            .field("namespace", &self.link().shown_namespace())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for KubernetesStore {
    fn traits(&self) -> StoreTraits {
        let mut traits = StoreTraits::new("kubernetes");
        traits.own_clock = false;
        traits.ttl_min = TTL_MIN;
        traits.watch = true;
        traits.list = true;
        traits.ask = true;
        traits
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        self.check_ttl(request.ttl)?;
        let acquired = self.take(request).await?;
        if let Some(announcer) = &self.shared.announcer {
            announcer.acquired(&request.key, &acquired);
        }
        Ok(acquired)
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        self.check_ttl(ttl)?;
        let renewed = self.renew_one(lease, ttl).await?;
        match (&self.shared.announcer, &renewed) {
            (Some(announcer), Renewed::Lost(_)) => announcer.lost(lease),
            (Some(announcer), Renewed::Renewed(..)) => announcer.renewed(),
            (None, _) => {}
        }
        Ok(renewed)
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        let released = self.free(lease).await?;
        if let Some(announcer) = &self.shared.announcer {
            announcer.lost(lease);
        }
        Ok(released)
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        let record = self.found(key).await?;
        Ok(record.and_then(|record| record.lease()))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        self.list_pages(prefix, limit).await
    }

    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let renewals = leases.iter().map(|(lease, ttl)| self.renew(lease, *ttl));
        let renewals: Vec<_> = renewals.collect();
        stream::iter(renewals).buffered(AT_ONCE).collect().await
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        self.watch_key(key).await
    }

    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        self.leave(key, &request).await
    }
}
