//! What the tests share: objects by hand, stores on a MinIO.

use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tenure::{AcquireRequest, Acquired, Attempt, Holder, Key, Lease, Store};
use tenure_net::{Tls, Verify};
use tenure_object::{BucketStore, Connector, ObjectOptions};
use tenure_testbed::Minio;

/// A client as an operator would have it, beside the store.
pub fn by_hand(minio: &Minio) -> Arc<dyn ObjectStore> {
    let key = minio.root_key();
    let tls = Tls::new().client_config(Verify::Full).unwrap();
    let limit = std::time::Duration::from_secs(30);
    let client = AmazonS3Builder::new()
        .with_bucket_name(minio.bucket())
        .with_endpoint(minio.endpoint())
        .with_access_key_id(key.id)
        .with_secret_access_key(key.secret)
        .with_http_connector(Connector::new(tls, limit, limit))
        .build();
    Arc::new(client.unwrap())
}

/// The name of the object of a key that is easy to read; long ones begin with `%_/`.
pub fn object(prefix: &str, key: &Key) -> String {
    let store = BucketStore::with_client(Arc::new(object_store::memory::InMemory::new()), prefix);
    store.unwrap().object_of(key).unwrap()
}

pub async fn delete(minio: &Minio, prefix: &str, key: &Key) {
    let path = Path::parse(object(prefix, key)).unwrap();
    by_hand(minio).delete(&path).await.unwrap();
}

pub async fn put(minio: &Minio, prefix: &str, key: &Key, body: impl Into<PutPayload>) {
    let path = Path::parse(object(prefix, key)).unwrap();
    by_hand(minio).put(&path, body.into()).await.unwrap();
}

pub async fn get(minio: &Minio, prefix: &str, key: &Key) -> String {
    let path = Path::parse(object(prefix, key)).unwrap();
    let answer = by_hand(minio).get(&path).await.unwrap();
    String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()
}

pub fn store(minio: &Minio, prefix: &str) -> BucketStore {
    open(&minio.url(prefix))
}

pub fn open(url: &str) -> BucketStore {
    BucketStore::open(ObjectOptions::from_url(url).unwrap()).unwrap()
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn request(key: &Key, holder: &str, attempt: u64) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        holder: Holder::new(holder).unwrap(),
        ttl: std::time::Duration::from_secs(30),
        attempt: Attempt::first(attempt),
        ended: None,
    }
}

pub async fn granted(store: &dyn Store, request: &AcquireRequest) -> Lease {
    match store.acquire(request).await {
        Ok(Acquired::Granted(lease)) => lease,
        other => panic!("must be granted: {other:?}"),
    }
}

pub async fn held(store: &dyn Store, request: &AcquireRequest) -> Lease {
    match store.acquire(request).await {
        Ok(Acquired::Held(lease)) => lease,
        other => panic!("must be held: {other:?}"),
    }
}
