//! Objects: in memory, and in MinIO.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use support::{Leader, two_leaders};
use support::{assert_ended, assert_never_fenced, assert_stale, assert_unreadable};
use tenure::Token;
use tenure_fences::object::ObjectFence;
use tenure_testbed::{Minio, unique};

fn in_memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn in_minio() -> Option<Arc<dyn ObjectStore>> {
    let minio = Minio::shared()?;
    let key = minio.root_key();
    let seconds = Duration::from_secs(30);
    let config = tenure_net::Tls::default().client_config(tenure_net::Verify::Full);
    let connector = tenure_object::Connector::new(config.unwrap(), seconds, seconds);
    let retry = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let store = AmazonS3Builder::new()
        .with_endpoint(minio.endpoint())
        .with_allow_http(true)
        .with_bucket_name(minio.bucket())
        .with_region("us-east-1")
        .with_access_key_id(key.id)
        .with_secret_access_key(key.secret)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry)
        .with_http_connector(connector)
        .build()
        .unwrap();
    Some(Arc::new(store))
}

fn stores() -> Vec<Arc<dyn ObjectStore>> {
    [Some(in_memory()), in_minio()]
        .into_iter()
        .flatten()
        .collect()
}

async fn raw(store: &Arc<dyn ObjectStore>, path: &str) -> String {
    let read = store.get(&Path::from(path)).await.unwrap();
    String::from_utf8(read.bytes().await.unwrap().to_vec()).unwrap()
}

async fn content(store: &Arc<dyn ObjectStore>, path: &str) -> String {
    let raw = raw(store, path).await;
    let (first, content) = raw.split_once('\n').expect("a first line");
    assert!(first.starts_with("tenure-token: "), "{first}");
    content.to_owned()
}

#[tokio::test]
async fn an_old_leader_is_turned_away() {
    for store in stores() {
        let (old, new) = two_leaders().await;
        let path = unique("manifest");
        let fence = ObjectFence::new(store.clone(), path.as_str());
        assert_never_fenced(fence.seen().await);
        let mut a = fence.writer(&old.tenure).await.unwrap();
        a.put("old").await.unwrap();
        a.put("older").await.unwrap();
        // The first act of the new leader is enough, and it learns what it takes over.
        let mut b = fence.writer(&new.tenure).await.unwrap();
        assert_eq!(b.content(), "older");
        assert_eq!(fence.read().await.unwrap().unwrap(), "older");
        assert_stale(a.put("late").await, 7, 9);
        assert_stale(a.put("late again").await, 7, 9);
        assert_stale(fence.writer(&old.tenure).await.map(drop), 7, 9);
        assert_eq!(content(&store, &path).await, "older");
        b.put("new").await.unwrap();
        assert_eq!(content(&store, &path).await, "new");
        assert_eq!(fence.seen().await.unwrap(), Token(9));
    }
}

#[tokio::test]
async fn an_object_that_was_never_fenced_is_taken_over_with_its_attributes() {
    for store in stores() {
        let new = Leader::with_token(9).await;
        let path = unique("manifest");
        let mut attributes = object_store::Attributes::new();
        attributes.insert(
            object_store::Attribute::ContentType,
            "application/json".into(),
        );
        let options = object_store::PutOptions::from(attributes);
        let at = Path::from(path.as_str());
        store.put_opts(&at, "{}".into(), options).await.unwrap();
        let fence = ObjectFence::new(store.clone(), path.as_str());
        assert_never_fenced(fence.seen().await);
        let mut writer = fence.writer(&new.tenure).await.unwrap();
        assert_eq!(writer.content(), "{}");
        writer.put("{1}").await.unwrap();
        let read = store.get(&at).await.unwrap();
        let kind = read.attributes.get(&object_store::Attribute::ContentType);
        assert_eq!(kind.map(|kind| kind.as_ref()), Some("application/json"));
        assert_eq!(fence.seen().await.unwrap(), Token(9));
    }
}

/// Two writers of one tenure get in each other's way and both come through; a deleted
/// object is made anew.
#[tokio::test]
async fn a_writer_looks_again_when_it_was_not_the_last() {
    for store in stores() {
        let new = Leader::with_token(9).await;
        let path = unique("manifest");
        let fence = ObjectFence::new(store.clone(), path.as_str());
        let mut one = fence.writer(&new.tenure).await.unwrap();
        let mut two = fence.writer(&new.tenure).await.unwrap();
        one.put("one").await.unwrap();
        two.put("two").await.unwrap();
        one.put("one again").await.unwrap();
        assert_eq!(content(&store, &path).await, "one again");
        store.delete(&Path::from(path.as_str())).await.unwrap();
        one.put("anew").await.unwrap();
        assert_eq!(content(&store, &path).await, "anew");
    }
}

#[tokio::test]
async fn a_tenure_that_has_ended_does_not_even_ask() {
    let old = Leader::with_token(7).await;
    let fence = ObjectFence::new(in_memory(), "manifest");
    let mut writer = fence.writer(&old.tenure).await.unwrap();
    old.expire();
    assert_ended(writer.put("late").await);
    assert_ended(fence.raise(&old.tenure).await);
    assert_eq!(writer.content(), "");
}

#[tokio::test]
async fn a_fence_that_cannot_be_read_is_not_overwritten() {
    for store in stores() {
        let new = Leader::with_token(9).await;
        let path = unique("manifest");
        let fence = ObjectFence::new(store.clone(), path.as_str());
        let long = format!("tenure-token: {}\nkept", "9".repeat(100));
        for text in [
            "tenure-token: nine\nkept",
            "tenure-token: 9",
            "tenure-token: \n",
            &long,
        ] {
            let at = Path::from(path.as_str());
            store.put(&at, text.to_owned().into()).await.unwrap();
            assert_unreadable(fence.seen().await);
            assert_unreadable(fence.raise(&new.tenure).await);
            assert_eq!(raw(&store, &path).await, text);
        }
    }
}

/// On S3 the version is a sum of the content: the same content by another leader must not
/// bring back the version that its predecessor knows.
#[tokio::test]
async fn the_same_content_by_another_leader_is_another_version() {
    for store in stores() {
        let (old, new) = two_leaders().await;
        let path = unique("manifest");
        let fence = ObjectFence::new(store.clone(), path.as_str());
        let mut a = fence.writer(&old.tenure).await.unwrap();
        a.put("same").await.unwrap();
        let mut b = fence.writer(&new.tenure).await.unwrap();
        b.put("else").await.unwrap();
        b.put("same").await.unwrap();
        assert_stale(a.put("late").await, 7, 9);
        assert_eq!(content(&store, &path).await, "same");
    }
}

/// One request for a write: as many as without a fence.
#[tokio::test]
async fn the_last_writer_needs_one_request() {
    let counted = Arc::new(support::counted::Counted::new(InMemory::new()));
    let new = Leader::with_token(9).await;
    let fence = ObjectFence::new(counted.clone(), "manifest");
    let mut writer = fence.writer(&new.tenure).await.unwrap();
    assert_eq!(counted.take(), (1, 1), "gets and puts to take it over");
    for _ in 0..3 {
        writer.put("x").await.unwrap();
        assert_eq!(counted.take(), (0, 1));
    }
}

/// For other languages: the text on the docs page and this are one fence.
#[tokio::test]
async fn the_curl_form_and_this_one_are_one_fence() {
    let (Some(minio), Some(store)) = (Minio::shared(), in_minio()) else {
        return;
    };
    let (old, new) = two_leaders().await;
    let path = unique("manifest");
    let fence = ObjectFence::new(store.clone(), path.as_str());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content");
    let script = support::from_docs("sh", "fenced-put");
    let put = async |token: &str, text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script, "fenced-put", file.to_str().unwrap()]);
        command
            .env("TENURE_TOKEN", token)
            .env("REGION", "us-east-1");
        command
            .env("KEY", minio.root_key().id)
            .env("SECRET", minio.root_key().secret);
        command.env(
            "URL",
            format!("{}/{}/{path}", minio.endpoint(), minio.bucket()),
        );
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(put("7", "by curl").await, (true, String::new()));
    let mut writer = fence.writer(&old.tenure).await.unwrap();
    assert_eq!(writer.content(), "by curl");
    writer.put("by Rust").await.unwrap();
    assert_eq!(put("9", "new by curl").await, (true, String::new()));
    assert_stale(writer.put("late").await, 7, 9);
    let (passed, said) = put("7", "late").await;
    assert!(!passed && said.contains("out of date"), "{said}");
    fence.raise(&new.tenure).await.unwrap();
    assert_eq!(content(&store, &path).await, "new by curl");
}
