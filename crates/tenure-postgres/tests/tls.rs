//! TLS with an authority of our own: each word of `sslmode`, client certificates, channel binding.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use futures_util::StreamExt;
use tenure::{ErrorKind, Released, Store};
use tenure_postgres::{PostgresOptions as Options, PostgresStore};
use tenure_testbed::{Certs, Postgres, PostgresOptions};

use support::{LONG, blocking, failed, granted, key, request, soon};

async fn start(options: PostgresOptions) -> Option<Postgres> {
    let server = blocking(move || options.start()).await?;
    let local = format!(
        "postgres:///postgres?host={}&port={}",
        server.folder().display(),
        server.port()
    );
    // Over the server's own socket, as the superuser.
    let options = Options::from_url(&local).unwrap().user("postgres");
    PostgresStore::open(options).unwrap().init().await.unwrap();
    Some(server)
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::open(Options::from_url(url).unwrap()).unwrap()
}

async fn works(url: &str) {
    let store = store(url);
    let lease = granted(&store, "k", "a", LONG).await;
    let mut notices = soon("the watch", store.watch(&lease.key)).await.unwrap();
    assert_eq!(
        store.release(&lease).await.unwrap(),
        Released::Released,
        "{url}"
    );
    assert!(soon("the notice", notices.next()).await.is_some(), "{url}");
}

async fn refused(url: &str, word: &str) {
    let error = failed(soon("a call", store(url).acquire(&request("k", "a", LONG))).await);
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
    assert!(error.to_string().contains(word), "{url}: {error}");
}

#[tokio::test]
async fn each_word_of_sslmode() {
    let Some(server) = start(PostgresOptions::new().tls()).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let other = Certs::write(folder.path(), "other");
    let (ca, wrong) = (server.certs().unwrap().ca(), other.ca());
    let (ca, wrong) = (ca.display(), wrong.display());
    let url = server.url();
    let by_name = url.replace("127.0.0.1", "localhost");
    works(&format!("{url}?sslmode=prefer")).await;
    works(&url).await;
    works(&format!("{url}?sslmode=require")).await;
    works(&format!("{url}?sslmode=verify-full&tls-ca={ca}")).await;
    works(&format!("{by_name}?sslmode=verify-full&tls-ca={ca}")).await;
    works(&format!("{url}?tls-ca={ca}")).await;
    works(&format!("{url}?sslmode=verify-ca&tls-ca={ca}")).await;
    works(&format!("{url}?sslmode=require&tls-ca={ca}")).await;
    refused(&format!("{url}?sslmode=disable"), "sslmode").await;
    for mode in ["verify-full", "verify-ca", "require", "prefer"] {
        // An authority that was named is checked against, as libpq does.
        let url = format!("{url}?sslmode={mode}&tls-ca={wrong}");
        refused(&url, "certificate").await;
    }
    refused(&format!("{url}?tls-ca={wrong}"), "certificate").await;
}

/// The certificate is for localhost and 127.0.0.1; the same server has other addresses.
#[tokio::test]
async fn only_verify_full_looks_at_the_name() {
    let options = PostgresOptions::new()
        .tls()
        .setting("listen_addresses", "127.0.0.1,127.0.0.2");
    let Some(server) = start(options).await else {
        return;
    };
    let hba = server.folder().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("{rules}hostssl all all 127.0.0.0/8 trust\n")).unwrap();
    server.sql("SELECT pg_reload_conf()");
    let certs = server.certs().unwrap().ca();
    let ca = certs.display();
    let url = server.url().replace("127.0.0.1", "127.0.0.2");
    support::until("the new rule", async || {
        let looked = store(&format!("{url}?sslmode=require"))
            .read(&key("k"))
            .await;
        looked.is_ok().then_some(())
    })
    .await;
    works(&format!("{url}?sslmode=verify-ca&tls-ca={ca}")).await;
    refused(
        &format!("{url}?sslmode=verify-full&tls-ca={ca}"),
        "certificate",
    )
    .await;
    refused(&format!("{url}?tls-ca={ca}"), "certificate").await;
}

#[tokio::test]
async fn tls_is_used_where_it_is_there_and_only_there() {
    let Some(server) = start(PostgresOptions::new().tls()).await else {
        return;
    };
    let ca = server.certs().unwrap().ca();
    let all = store(&format!("{}?tls-ca={}", server.url(), ca.display()));
    granted(&all, "k", "a", LONG).await;
    let encrypted = server.sql(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE ssl AND application_name = 'tenure'",
    );
    assert_eq!(encrypted, "1");
    let Some(plain) = blocking(Postgres::shared).await else {
        return;
    };
    refused(&format!("{}?sslmode=require", plain.url()), "TLS").await;
    let text = failed(store(&plain.url()).read(&key("k")).await).to_string();
    assert!(text.contains("is missing"), "prefer goes without: {text}");
}

#[tokio::test]
async fn client_certificate() {
    let Some(server) = start(PostgresOptions::new().client_certificate()).await else {
        return;
    };
    let certs = server.certs().unwrap();
    let (ca, cert, key) = (certs.ca(), certs.client_cert(), certs.client_key());
    let url = format!("{}?tls-ca={}", server.url(), ca.display());
    let own = format!("&tls-cert={}&tls-key={}", cert.display(), key.display());
    works(&format!("{url}{own}")).await;
    // The server says so after the handshake, which in TLS 1.3 is a broken connection
    // or an answer.
    let error = failed(soon("a call", store(&url).acquire(&request("k", "a", LONG))).await);
    assert!(!error.may_have_worked(), "{error}");
}

#[tokio::test]
async fn channel_binding() {
    let options = PostgresOptions::new().tls().password("hunter2");
    let Some(server) = start(options).await else {
        return;
    };
    let ca = server.certs().unwrap().ca();
    let url = format!("{}?tls-ca={}", server.url(), ca.display());
    for binding in ["disable", "prefer", "require"] {
        works(&format!("{url}&channel_binding={binding}")).await;
    }
    let options = PostgresOptions::new().password("hunter2");
    let Some(plain) = start(options).await else {
        return;
    };
    works(&format!("{}?channel_binding=prefer", plain.url())).await;
    refused(
        &format!("{}?channel_binding=require", plain.url()),
        "cannot be logged in",
    )
    .await;
}

#[tokio::test]
async fn unix_socket_needs_no_tls() {
    let Some(server) = start(PostgresOptions::new().tls()).await else {
        return;
    };
    let url = format!(
        "postgres://postgres@/postgres?host={}&port={}&sslmode=require",
        server.folder().display(),
        server.port()
    );
    works(&url).await;
}
