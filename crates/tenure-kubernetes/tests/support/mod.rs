//! What the tests share: a namespace of their own, stores on it, and kubectl by hand.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::Value;
use tenure::{
    AcquireRequest, Acquired, Attempt, Holder, Key, Lease, Notice, Released, Renewed, Result,
    Store, StoreTraits,
};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore};
use tenure_testbed::{Kubernetes, unique};

/// Longer than anything takes that works, on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Runs what blocks beside the runtime.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A namespace on a server.
#[derive(Clone, Debug)]
pub struct Place {
    pub kubernetes: Kubernetes,
    pub namespace: String,
}

impl Place {
    /// A new namespace on the server that all tests of this process share.
    pub async fn shared() -> Option<Self> {
        let shared = aside(|| Kubernetes::shared().cloned()).await?;
        Some(Self::on(shared).await)
    }

    pub async fn on(kubernetes: Kubernetes) -> Self {
        let namespace = unique("ns").replace('_', "-");
        let place = Self {
            kubernetes,
            namespace,
        };
        let own = place.clone();
        aside(move || own.kubernetes.create_namespace(&own.namespace)).await;
        place
    }

    pub fn address(&self) -> SocketAddr {
        self.kubernetes.server().address()
    }

    /// A kubeconfig file, as text for a URL or a command.
    pub fn kubeconfig(&self, address: SocketAddr, token: &str) -> String {
        let path = self.kubernetes.kubeconfig(address, token, &self.namespace);
        path.display().to_string()
    }

    pub fn options_at(&self, address: SocketAddr, token: &str) -> KubernetesOptions {
        KubernetesOptions::new().kubeconfig(self.kubeconfig(address, token))
    }

    pub fn options(&self) -> KubernetesOptions {
        self.options_at(self.address(), self.kubernetes.admin_token())
    }

    /// A store with a client of its own.
    pub fn store(&self) -> KubernetesStore {
        KubernetesStore::open(self.options()).unwrap()
    }

    pub fn path(&self, name: &str) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{name}")
    }

    pub async fn must(&self, method: &'static str, path: String, body: Option<Value>) -> Value {
        let kubernetes = self.kubernetes.clone();
        let text = aside(move || {
            let body = body.map(|body| body.to_string());
            kubernetes.must(method, &path, body.as_deref())
        });
        serde_json::from_str(&text.await).unwrap()
    }

    /// The Lease of this name, as kubectl shows it.
    pub async fn lease(&self, name: &str) -> Value {
        let path = self.path(&format!("/{name}"));
        self.must("GET", path, None).await
    }

    /// Changes the Lease by hand, by a merge patch.
    pub async fn patch(&self, name: &str, patch: Value) {
        let path = self.path(&format!("/{name}"));
        self.must("PATCH", path, Some(patch)).await;
    }

    /// Deletes the Lease by hand; it need not be there.
    pub async fn delete(&self, name: &str) {
        let path = self.path(&format!("/{name}"));
        let kubernetes = self.kubernetes.clone();
        let (status, text) = aside(move || kubernetes.ask("DELETE", &path, None)).await;
        assert!(status == 200 || status == 404, "{status} {text}");
    }
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn request(name: &str, holder: &str, seconds: u64) -> AcquireRequest {
    use std::sync::atomic::AtomicU64;
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    AcquireRequest {
        key: key(name),
        holder: Holder::new(holder).unwrap(),
        ttl: Duration::from_secs(seconds),
        attempt: Attempt::first(NUMBER.fetch_add(1, Ordering::Relaxed)),
        ended: None,
    }
}

pub async fn take(store: &dyn Store, name: &str, holder: &str) -> Lease {
    match store.acquire(&request(name, holder, 600)).await.unwrap() {
        Acquired::Granted(lease) => lease,
        held => panic!("{name} must be free, but: {held:?}"),
    }
}

pub async fn held(store: &dyn Store, name: &str) -> Lease {
    match store.acquire(&request(name, "somebody else", 600)).await {
        Ok(Acquired::Held(lease)) => lease,
        other => panic!("{name} must be held, but: {other:?}"),
    }
}

/// A store that tells when its watch has begun and the look after it has been answered.
#[derive(Debug)]
pub struct Watched {
    inner: KubernetesStore,
    begun: AtomicBool,
    looked: Arc<AtomicBool>,
}

impl Watched {
    pub fn new(inner: KubernetesStore) -> (Self, Arc<AtomicBool>) {
        let looked = Arc::new(AtomicBool::new(false));
        let watched = Self {
            inner,
            begun: AtomicBool::new(false),
            looked: looked.clone(),
        };
        (watched, looked)
    }

    fn answered(&self, begun: bool) {
        self.looked.fetch_or(begun, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for Watched {
    fn traits(&self) -> StoreTraits {
        self.inner.traits()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired> {
        let begun = self.begun.load(Ordering::SeqCst);
        let answer = self.inner.acquire(request).await;
        self.answered(begun);
        answer
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let begun = self.begun.load(Ordering::SeqCst);
        let answer = self.inner.renew(lease, ttl).await;
        self.answered(begun);
        answer
    }

    async fn release(&self, lease: &Lease) -> Result<Released> {
        self.inner.release(lease).await
    }

    async fn read(&self, key: &Key) -> Result<Option<Lease>> {
        self.inner.read(key).await
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let stream = self.inner.watch(key).await;
        self.begun.store(true, Ordering::SeqCst);
        stream
    }
}

pub async fn until_set(flag: &AtomicBool) {
    let set = async {
        while !flag.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, set)
        .await
        .expect("the watch never began");
}
