//! Users, passwords, rights, certificates: what is refused, and what the refusal says.

use std::time::Duration;

use futures_util::StreamExt;
use tenure::{Error, ErrorKind, Notice, Released, Store};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_net::{Secret, Tls};
use tenure_testbed::{Etcd, EtcdOptions as Testbed};

use crate::bare::Bare;
use crate::support::{PATIENCE, TTL, aside, key, open, renewed, request, take, until};

async fn start(options: Testbed) -> Option<Etcd> {
    aside(move || options.start()).await
}

/// The error says what to do, in one line and without the password.
fn misconfigured(error: &Error, about: &str) {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let text = error.to_string();
    assert!(text.contains(about) && text.lines().count() == 1, "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_user_with_the_rights_of_the_schema_can_do_everything() {
    let Some(etcd) = start(Testbed::new().root_password("rootpw")).await else {
        return;
    };
    let at = [etcd.server().address()];
    let url = etcd.url_for(&at, "app", Some("hunter2"));
    let options = EtcdOptions::from_url(&url).unwrap();
    // The schema's own lines, run by an administrator.
    let schema = options.schema();
    assert!(!schema.contains("hunter2"));
    aside({
        let etcd = etcd.clone();
        move || {
            etcd.ctl(&["user", "add", "app:hunter2"]);
            for line in schema.lines().filter(|line| !line.starts_with('#')) {
                let words: Vec<_> = line.split_whitespace().skip(1).collect();
                etcd.ctl(&words);
            }
        }
    })
    .await;
    let store = EtcdStore::open(options).unwrap();
    let said = store.init().await.unwrap();
    assert!(said.contains("nothing to create"), "{said}");
    let lease = take(&store, &key("allowed"), "a").await;
    let mut notices = store.watch(&lease.key).await.unwrap();
    renewed(store.renew(&lease, TTL).await);
    renewed(store.renew(&lease, TTL * 2).await);
    assert_eq!(store.list("", 10).await.unwrap().len(), 1);
    store
        .ask(&lease.key, tenure::HolderRequest::StepDown)
        .await
        .unwrap();
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let freed = async { while notices.next().await != Some(Notice::Free) {} };
    tokio::time::timeout(PATIENCE, freed).await.unwrap();
}

#[tokio::test]
async fn who_is_refused_is_told_why() {
    let Some(etcd) = start(Testbed::new().root_password("rootpw")).await else {
        return;
    };
    let at = [etcd.server().address()];
    aside({
        let etcd = etcd.clone();
        move || {
            etcd.create_user("nobody", "hunter2", &[]);
            etcd.create_user("half", "hunter2", &[("readwrite", "app_runtime_leases/")]);
        }
    })
    .await;
    let asked = request(&key("refused"), "a", TTL);
    for user in ["nobody", "half"] {
        let store = open(&etcd.url_for(&at, user, Some("hunter2")));
        let error = store.acquire(&asked).await.unwrap_err();
        misconfigured(&error, "tenure schema --store");
        misconfigured(&store.read(&asked.key).await.unwrap_err(), "role");
        misconfigured(&store.init().await.unwrap_err(), "role");
    }
    let nobody = open(&etcd.url_for(&at, "nobody", Some("hunter2")));
    let refused = nobody
        .watch(&asked.key)
        .await
        .err()
        .expect("no rights, no watch");
    misconfigured(&refused, "role");
    let wrong = open(&etcd.url_for(&at, "root", Some("hunter2wrong")));
    misconfigured(&wrong.acquire(&asked).await.unwrap_err(), "password");
    let none = open(&etcd.url_for(&at, "", None));
    misconfigured(
        &none.acquire(&asked).await.unwrap_err(),
        "user and a password",
    );
    assert_eq!(
        open(&etcd.url()).list("", 10).await.unwrap().len(),
        0,
        "nothing was written"
    );
}

/// etcd looks at the token first, so a refused call was not carried out and can be repeated.
#[tokio::test]
async fn an_expired_auth_token_is_replaced() {
    let options = Testbed::new()
        .root_password("rootpw")
        .argument("--auth-token-ttl=1");
    let Some(etcd) = start(options).await else {
        return;
    };
    let store = open(&etcd.url());
    let lease = take(&store, &key("token"), "a").await;
    let mut notices = store.watch(&lease.key).await.unwrap();
    for _ in 0..2 {
        // Nothing tells when it has ended but the server, which looks once a second.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        renewed(store.renew(&lease, TTL).await);
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let other = take(&store, &key("token 2"), "a").await;
    let seen = aside({
        let etcd = etcd.clone();
        move || etcd.ctl(&["get", "app_runtime_leases/token 2", "-w", "fields"])
    })
    .await;
    assert!(seen.contains("\"Version\" : 1"), "written once: {seen}");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(store.release(&other).await.unwrap(), Released::Released);
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let freed = async {
        while let Some(notice) = notices.next().await {
            if notice == Notice::Free {
                return true;
            }
        }
        false
    };
    assert!(
        tokio::time::timeout(PATIENCE, freed).await.unwrap(),
        "the watch goes on"
    );
}

/// Users are put in force, or changed, while a store is in use.
#[tokio::test]
async fn a_change_of_users_costs_no_lease() {
    let Some(etcd) = start(Testbed::new()).await else {
        return;
    };
    let at = [etcd.server().address()];
    // As etcd's own clients do: whoever names a user where none is asked for is let in.
    let store = open(&etcd.url_for(&at, "root", Some("hunter2")));
    let lease = take(&store, &key("users"), "a").await;
    aside({
        let etcd = etcd.clone();
        move || {
            etcd.ctl(&["user", "add", "root:hunter2"]);
            etcd.ctl(&["user", "grant-role", "root", "root"]);
            etcd.ctl(&["auth", "enable"]);
        }
    })
    .await;
    let again = until("a renewal", PATIENCE, async || {
        store.renew(&lease, TTL).await.ok()
    })
    .await;
    renewed(Ok(again));
    // Any change of users makes the tokens that were given before old.
    aside({
        let etcd = etcd.clone();
        move || etcd.ctl(&["--user=root:hunter2", "user", "add", "another:pw"])
    })
    .await;
    renewed(store.renew(&lease, TTL).await);
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    let Some(etcd) = start(Testbed::new().tls()).await else {
        return;
    };
    let certs = etcd.certs().unwrap();
    let (cert, key_file) = (certs.client_cert(), certs.client_key());
    let identity = format!("tls-cert={}&tls-key={}", cert.display(), key_file.display());
    let url = |ca: &std::path::Path| format!("{}?tls-ca={}&{identity}", etcd.url(), ca.display());
    let store = open(&url(&certs.ca()));
    let lease = take(&store, &key("tls"), "a").await;
    renewed(store.renew(&lease, TTL).await);
    let asked = request(&key("tls 2"), "a", TTL);
    // An authority that did not sign the server's certificate.
    let folder = tempfile::tempdir().unwrap();
    let other = tenure_testbed::Certs::write(folder.path(), "other");
    let wrong = open(&url(&other.ca()));
    misconfigured(&wrong.acquire(&asked).await.unwrap_err(), "TLS");
    // The machine's authorities know nothing of it either.
    let machine = open(&format!("{}?{identity}", etcd.url()));
    let error = machine.acquire(&asked).await.unwrap_err();
    assert!(!error.may_have_worked(), "{error}");
    // No TLS where TLS is spoken.
    let plain = open(&etcd.url().replace("etcds://", "etcd://"));
    let error = plain.acquire(&asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let Some(etcd) = start(Testbed::new().client_certificate()).await else {
        return;
    };
    let certs = etcd.certs().unwrap();
    let (ca, cert, key_file) = (certs.ca(), certs.client_cert(), certs.client_key());
    let with_ca = format!("{}?tls-ca={}", etcd.url(), ca.display());
    let full = format!(
        "{with_ca}&tls-cert={}&tls-key={}",
        cert.display(),
        key_file.display()
    );
    let store = open(&full);
    take(&store, &key("certificate"), "a").await;
    let none = open(&with_ca);
    let error = none
        .acquire(&request(&key("none"), "a", TTL))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::Misconfigured
        ),
        "{error}"
    );
    // The same, part by part.
    let read = |path| std::fs::read(path).unwrap();
    let tls = Tls::new()
        .authorities(read(ca))
        .identity(read(cert), read(key_file));
    let options = EtcdOptions::new([etcd.server().address().to_string()]).tls(tls);
    take(&EtcdStore::open(options).unwrap(), &key("parts"), "a").await;
}

/// The caller's own connection, and a user on it.
#[tokio::test]
async fn a_channel_of_ones_own() {
    let Some(etcd) = start(Testbed::new().root_password("hunter2")).await else {
        return;
    };
    let bare = Bare::to(etcd.server().address());
    let options = EtcdOptions::new(Vec::<String>::new())
        .prefix("own/")
        .login("root", Secret::new("hunter2"));
    let store = EtcdStore::with_channel(bare.channel(), options.clone()).unwrap();
    let lease = take(&store, &key("channel"), "a").await;
    renewed(store.renew(&lease, TTL).await);
    assert!(!format!("{options:?} {store:?}").contains("hunter2"));
    assert!(EtcdStore::open(options).is_err(), "no server was named");
}
