//! What is missing or wrong is said in one sentence, with what to do about it.

use tenure::{ErrorKind, Store};
use tenure_net::Secret;
use tenure_object::{BucketStore, ObjectOptions};
use tenure_testbed::{AccessKey, ClockFault, Minio, unique};

use crate::support::{granted, held, key, open, request, store};

fn options(minio: &Minio, key: AccessKey) -> ObjectOptions {
    let options = ObjectOptions::s3(minio.bucket()).endpoint(minio.endpoint());
    let options = options.login(key.id, Secret::new(key.secret));
    match key.token {
        Some(token) => options.session_token(Secret::new(token)),
        None => options,
    }
}

async fn refused(store: &BucketStore, words: &[&str]) {
    let key = key("k");
    let error = store.acquire(&request(&key, "a", 1)).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text}");
    assert!(!error.may_have_worked(), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} in: {text}");
    }
}

#[tokio::test]
async fn a_bucket_that_is_missing() {
    let Some(minio) = Minio::shared() else { return };
    let key = minio.root_key();
    let url = minio.url("p").replace("@leases/", "@nowhere/");
    refused(
        &open(&url),
        &[
            "no bucket \"nowhere\"",
            "aws s3api create-bucket",
            &minio.endpoint(),
        ],
    )
    .await;
    let error = open(&url).init().await.unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(!error.to_string().contains(&key.secret));
}

#[tokio::test]
async fn no_credentials() {
    let Some(minio) = Minio::shared() else { return };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let options = ObjectOptions::s3("leases")
        .endpoint(minio.endpoint())
        .metadata_endpoint(format!("http://{address}"));
    if std::env::vars().any(|(name, _)| name.starts_with("AWS_")) {
        return; // Somebody's own credentials are set: they would be found.
    }
    let store = BucketStore::open(options).unwrap();
    refused(&store, &["no credentials", "AWS_ACCESS_KEY_ID", "role"]).await;
}

#[tokio::test]
async fn wrong_credentials() {
    let Some(minio) = Minio::shared() else { return };
    let mut wrong = minio.root_key();
    wrong.secret = "hunter2hunter2".to_owned();
    let store = BucketStore::open(options(minio, wrong.clone())).unwrap();
    refused(&store, &["SignatureDoesNotMatch", "credentials are wrong"]).await;
    wrong.id = "NOBODY".to_owned();
    let store = BucketStore::open(options(minio, wrong)).unwrap();
    refused(&store, &["InvalidAccessKeyId", "credentials are wrong"]).await;
    let error = store.read(&key("k")).await.unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let store = BucketStore::open(
        ObjectOptions::s3("leases")
            .endpoint(minio.endpoint())
            .anonymous(true),
    );
    refused(&store.unwrap(), &["AccessDenied"]).await;
}

#[tokio::test]
async fn credentials_that_may_read_but_not_write() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("read-only");
    let free = key("k");
    let reader = minio.key_with(&["s3:GetObject", "s3:ListBucket"]);
    let reader = options(minio, reader).prefix(&prefix);
    let reader = BucketStore::open(reader).unwrap();
    refused(&reader, &["does not let us write", "s3:PutObject", &prefix]).await;
    assert_eq!(reader.read(&free).await.unwrap(), None);
    let lease = granted(&store(minio, &prefix), &request(&free, "a", 1)).await;
    held(&reader, &request(&free, "b", 2)).await;
    let error = reader.renew(&lease, lease.ttl).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert_eq!(reader.list("", 9).await.unwrap().len(), 1);
    let writer = minio.key_with(&["s3:PutObject"]);
    let writer = BucketStore::open(options(minio, writer).prefix(&prefix)).unwrap();
    refused(
        &writer,
        &["does not let us read", "s3:GetObject", "s3:ListBucket"],
    )
    .await;
}

#[tokio::test]
async fn least_rights_are_enough() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("least");
    let least = minio.key_with(&["s3:GetObject", "s3:PutObject", "s3:ListBucket"]);
    let store = BucketStore::open(options(minio, least).prefix(&prefix)).unwrap();
    let lease = granted(&store, &request(&key("k"), "a", 1)).await;
    assert_eq!(store.list("", 9).await.unwrap().len(), 1);
    store.release(&lease).await.unwrap();
    let probe = store.probe().await.unwrap();
    assert!(!probe.removed, "it has no right to delete: {probe}");
}

#[tokio::test]
async fn tls_by_a_private_authority_only() {
    let Some(minio) = Minio::start_tls() else {
        return;
    };
    let ca = minio.certs().unwrap().ca();
    let url = format!("{}&tls-ca={}", minio.url("tls"), ca.display());
    granted(&open(&url), &request(&key("k"), "a", 1)).await;
    let error = open(&minio.url("tls")).read(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.may_have_worked(), "{error}");
}

/// The other half of `a_machine_whose_clock_is_an_hour_off`: a process with a wrong clock.
#[tokio::test]
async fn child_whose_clock_is_an_hour_off() {
    let Ok(url) = std::env::var("TENURE_TEST_SKEWED_URL") else {
        return;
    };
    refused(
        &open(&url),
        &["RequestTimeTooSkewed", "clock of this machine", "set it"],
    )
    .await;
}

#[test]
fn a_machine_whose_clock_is_an_hour_off() {
    if !ClockFault::is_available() {
        return;
    }
    let Some(minio) = Minio::shared() else { return };
    for offset in [-3600, 3600] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "refusals::child_whose_clock_is_an_hour_off"]);
        command.env("TENURE_TEST_SKEWED_URL", minio.url(&unique("skewed")));
        ClockFault::offset(offset).apply(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }
}
