//! The proof that a service keeps conditions, and a service that does not.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tenure::ErrorKind;
use tenure_object::BucketStore;
use tenure_testbed::{Minio, unique};

use crate::support::{by_hand, store};

#[tokio::test]
async fn minio_keeps_conditions_and_nothing_is_left() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("probe");
    let probe = store(minio, &prefix).probe().await.unwrap();
    assert!(
        probe.not_modified && probe.clock && probe.removed,
        "{probe:?}"
    );
    let said = store(minio, &prefix).init().await.unwrap();
    assert!(said.contains("refuses stale writes"), "{said}");
    let folder = Path::parse(&prefix).unwrap();
    let left = by_hand(minio)
        .list_with_delimiter(Some(&folder))
        .await
        .unwrap();
    assert!(
        left.objects.is_empty() && left.common_prefixes.is_empty(),
        "{left:?}"
    );
}

/// A service that ignores conditions, as some have done. No mock of one that keeps them:
/// no real server can be made to be so wrong.
#[derive(Debug)]
struct Careless {
    inner: InMemory,
    ignores: Ignores,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ignores {
    IfNoneMatch,
    IfMatch,
}

impl fmt::Display for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Careless")
    }
}

#[async_trait]
impl ObjectStore for Careless {
    async fn put_opts(
        &self,
        path: &Path,
        body: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match (&options.mode, self.ignores) {
            (PutMode::Create, Ignores::IfNoneMatch) | (PutMode::Update(_), Ignores::IfMatch) => {
                options.mode = PutMode::Overwrite;
            }
            _ => {}
        }
        self.inner.put_opts(path, body, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_service_that_ignores_conditions_is_found_out() {
    for (ignores, word) in [
        (Ignores::IfNoneMatch, "If-None-Match"),
        (Ignores::IfMatch, "If-Match"),
    ] {
        let inner = InMemory::new();
        let careless = Arc::new(Careless { inner, ignores });
        let store = BucketStore::with_client(careless, "").unwrap();
        let error = store.init().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(
            text.contains("CANNOT HOLD LEASES") && text.contains(word),
            "{text}"
        );
    }
}
