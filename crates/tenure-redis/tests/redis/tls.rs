//! TLS: whom to trust, who we are, and what it says when that does not fit.

use tenure::{ErrorKind, Store};
use tenure_testbed::{Certs, Redis, RedisCluster, RedisOptions};

use crate::support::{LONG, assert_kind, granted, key, open, soon};
use futures_util::StreamExt;

fn with(url: &str, options: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{options}")
}

#[tokio::test]
async fn authority_of_the_server_is_checked() {
    let Some(redis) = RedisOptions::new().tls().start() else {
        return;
    };
    let ca = redis.certs().unwrap().ca().display().to_string();
    let trusting = open(&with(&redis.url(), &format!("tls-ca={ca}")));
    let mut notices = trusting.watch(&key("k")).await.unwrap();
    granted(&trusting, "k", "a", LONG).await;
    assert!(soon("a push", notices.next()).await.is_some());
    // Another authority knows nothing of this server.
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, made.cert.pem()).unwrap();
    let distrusting = open(&with(&redis.url(), &format!("tls-ca={}", other.display())));
    let error = distrusting.read(&key("k")).await;
    assert_kind(error, ErrorKind::Misconfigured, "certificate");
}

#[tokio::test]
async fn certificate_that_the_server_wants_is_shown() {
    let Some(redis) = RedisOptions::new().tls().client_certificate().start() else {
        return;
    };
    let certs = redis.certs().unwrap();
    let ca = format!("tls-ca={}", certs.ca().display());
    let (cert, own_key) = (certs.client_cert(), certs.client_key());
    let own = format!("tls-cert={}&tls-key={}", cert.display(), own_key.display());
    let known = open(&with(&redis.url(), &format!("{ca}&{own}")));
    granted(&known, "k", "a", LONG).await;
    let unknown = open(&with(&redis.url(), &ca));
    let error = unknown.read(&key("k")).await;
    assert_kind(error, ErrorKind::Misconfigured, "tls-cert");
}

#[tokio::test]
async fn tls_on_one_side_only_is_said() {
    let Some(redis) = RedisOptions::new().tls().start() else {
        return;
    };
    let plain = redis.url().replace("rediss://", "redis://");
    let error = open(&plain).read(&key("k")).await.unwrap_err();
    assert!(error.to_string().contains("rediss://"), "{error}");
    let Some(redis) = Redis::start() else { return };
    let tls = redis.url().replace("redis://", "rediss://");
    let options = tenure_redis::RedisOptions::from_url(&tls).unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let trust = tenure_net::Tls::new().authorities(made.cert.pem());
    let store = tenure_redis::RedisStore::open(options.tls(trust)).unwrap();
    let error = store.read(&key("k")).await.unwrap_err();
    // A server without TLS refuses the greeting, or waits for the rest of its line.
    assert!(error.to_string().contains("TLS"), "{error}");
    assert!(!error.may_have_worked());
}

#[tokio::test]
async fn cluster_is_reached_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certs::write(folder.path(), "client");
    let path = |path: std::path::PathBuf| path.display().to_string();
    // One authority for all nodes, which talk to one another by TLS, too.
    let options = RedisOptions::new()
        .tls()
        .setting("tls-cluster", "yes")
        .setting("tls-cert-file", &path(certs.server_cert()))
        .setting("tls-key-file", &path(certs.server_key()))
        .setting("tls-ca-cert-file", &path(certs.ca()));
    let Some(cluster) = RedisCluster::start_with(options) else {
        return;
    };
    let hosts: Vec<_> = cluster
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    let store = open(&with(&url, &format!("tls=on&tls-ca={}", path(certs.ca()))));
    for number in 0..10 {
        granted(&store, &format!("k/{number}"), "a", LONG).await;
    }
    assert_eq!(store.list("k/", 20).await.unwrap().len(), 10);
}
