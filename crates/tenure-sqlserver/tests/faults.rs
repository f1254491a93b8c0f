//! What becomes of each fault, on the stand-in: see `standin/mod.rs` for what that is.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod standin;

use std::time::Duration;

use async_trait::async_trait;
use tenure::{Acquired, Error, ErrorKind, Released, Renewed, Result, Store};
use tenure_sqlserver::{Connect, Connection, SqlServerOptions, SqlServerStore, tiberius};
use tokio::net::TcpStream;
use tokio_util::compat::TokioAsyncWriteCompatExt;

use standin::database::Fault;
use standin::{Encryption, LONG, PASSWORD, StandIn, TABLE, Trouble, granted, key, open, request};

async fn failed(store: &SqlServerStore) -> Error {
    let error = store.acquire(&request("k", "a", LONG)).await.unwrap_err();
    let text = format!("{error} {store:?}");
    assert!(!text.contains(PASSWORD), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    error
}

async fn misconfigured(url: &str, words: &[&str]) {
    let error = failed(&open(url)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn wrong_password_and_database() {
    let server = StandIn::start().await;
    let wrong = server.url().replace(PASSWORD, "wrong");
    misconfigured(&wrong, &["Login failed", "password-file"]).await;
    let none = server.url().replace("/app?", "/none?");
    misconfigured(&none, &["no such database", "Cannot open database"]).await;
}

#[tokio::test]
async fn encryption_refused() {
    let server = StandIn::with(Encryption::None).await;
    misconfigured(&server.url(), &["refuses encryption", "encrypt=off"]).await;
    assert_eq!(server.connections(), 0, "no password goes out in the clear");
    let plain = open(&server.url_with("encrypt=off"));
    plain.init().await.unwrap();
    granted(&plain, "k", "a").await;
}

#[tokio::test]
async fn certificate_not_trusted() {
    let server = StandIn::start().await;
    server.store().await;
    let usual = server.url_with("");
    misconfigured(
        &usual,
        &["is not trusted", "tls-ca", "trustServerCertificate"],
    )
    .await;
    let other = server.url_with(&format!(
        "tls-ca={}&hostNameInCertificate=elsewhere.example",
        server.ca().display()
    ));
    misconfigured(&other, &["is not trusted", "hostNameInCertificate"]).await;
    let named = server.url().replace("localhost", "127.0.0.1");
    granted(&open(&named), "by address", "a").await;
    let trusting = open(&server.url_with("trustServerCertificate=true"));
    granted(&trusting, "trusting", "a").await;
    assert_eq!(server.connections(), 3, "init and the two that were let in");
}

#[tokio::test]
async fn strict_encryption() {
    let server = StandIn::with(Encryption::Strict).await;
    let ca = server.ca();
    let store = open(&server.url_with(&format!("encrypt=strict&tls-ca={}", ca.display())));
    store.init().await.unwrap();
    granted(&store, "k", "a").await;
    misconfigured(&server.url_with("encrypt=strict"), &["is not trusted"]).await;
    // A server of before 2022 does not know what that is.
    let older = StandIn::start().await;
    let strict = format!("encrypt=strict&tls-ca={}", older.ca().display());
    let store = open(&older.url_with(&format!("{strict}&connect_timeout=1s")));
    let error = failed(&store).await;
    assert!(!error.may_have_worked(), "{error}");
}

#[tokio::test]
async fn missing_table_and_column() {
    let server = StandIn::start().await;
    let store = open(&server.url());
    let error = failed(&store).await;
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text}");
    assert!(text.contains("[dbo].[Leases] is missing"), "{text}");
    let init = format!(
        "`tenure init --store 'sqlserver://app@localhost:{}/app'`",
        server.address().port()
    );
    assert!(text.contains(&init), "{text}");
    // The article's table, which knows nothing of us.
    server.database.create(TABLE, 200);
    let text = failed(&store).await.to_string();
    assert!(
        text.contains("lacks a column") && text.contains("tenure init"),
        "{text}"
    );
    let said = store.init().await.unwrap();
    assert!(said.starts_with("Added Token, TenureUntil"), "{said}");
    granted(&store, "k", "a").await;
    let said = store.init().await.unwrap();
    assert!(said.contains("nothing to do"), "{said}");
}

#[tokio::test]
async fn a_name_that_does_not_fit() {
    let server = StandIn::start().await;
    server.database.create(TABLE, 200);
    let store = server.store().await;
    granted(&store, &"x".repeat(200), "a").await;
    granted(&store, "k", &"🔑".repeat(100)).await;
    for (key, holder) in [
        ("x".repeat(201), "a".into()),
        ("l".into(), "🔑".repeat(101)),
    ] {
        let error = store
            .acquire(&request(&key, &holder, LONG))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains("longer than its column"),
            "{error}"
        );
        assert_eq!(store.read(&standin::key(&key)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_the_server_says_no_to() {
    let server = StandIn::start().await;
    let store = server.store().await;
    for (number, kind, word) in [
        (3906, ErrorKind::Misconfigured, "takes no writes"),
        (53_003, ErrorKind::Misconfigured, "takes no writes"),
        (
            229,
            ErrorKind::Misconfigured,
            "GRANT SELECT, INSERT, UPDATE",
        ),
        (8622, ErrorKind::Misconfigured, "primary key"),
        (53_001, ErrorKind::Misconfigured, "transaction open"),
        (8115, ErrorKind::Misconfigured, "not as it has to be"),
        (1222, ErrorKind::Unavailable, "locked by another session"),
        (9002, ErrorKind::Unavailable, "no room"),
        (40_501, ErrorKind::Unavailable, "cannot do it now"),
        (2627, ErrorKind::Unavailable, "nothing was changed"),
    ] {
        server.plays([Trouble::Says(Fault::new(number, "so it is"))]);
        let error = failed(&store).await;
        assert_eq!(error.kind(), kind, "{number}: {error}");
        assert!(!error.may_have_worked(), "{number}: {error}");
        assert!(error.to_string().contains(word), "{number}: {error}");
    }
    granted(&store, "k", "a").await;
}

#[tokio::test]
async fn a_database_set_read_only() {
    let server = StandIn::start().await;
    let store = server.store().await;
    let lease = granted(&store, "held", "a").await;
    server.database.lock().read_only = true;
    let error = failed(&store).await;
    assert!(error.to_string().contains("takes no writes"), "{error}");
    let error = store.renew(&lease, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    server.database.lock().read_only = false;
    granted(&store, "k", "a").await;
}

/// The victim was undone, so it is asked again; but not for ever.
#[tokio::test]
async fn deadlock_victim() {
    let server = StandIn::start().await;
    let store = server.store().await;
    let deadlock = || Trouble::Says(Fault::new(1205, "chosen as the deadlock victim"));
    server.plays([deadlock(), deadlock()]);
    granted(&store, "k", "a").await;
    server.plays((0..6).map(|_| deadlock()));
    let before = server.batches();
    let error = failed(&store).await;
    assert_eq!(server.batches() - before, 6);
    assert!(error.to_string().contains("deadlock"), "{error}");
    assert!(!error.may_have_worked(), "{error}");
}

/// It may have worked, nobody asks twice by himself, and the attempt finds it again.
#[tokio::test]
async fn cut_off_after_it_was_sent() {
    let server = StandIn::start().await;
    let store = server.store().await;
    let fatal = Fault {
        class: 21,
        ..Fault::new(
            596,
            "Cannot continue the execution because the session is in the kill state.",
        )
    };
    for (trouble, worked) in [
        (Trouble::RunsAndCuts, true),
        (Trouble::Cuts, false),
        (Trouble::Says(fatal), false),
    ] {
        let name = format!("{worked} {trouble:?}");
        let asked = request(&name.chars().take(40).collect::<String>(), "a", LONG);
        let before = server.batches();
        server.plays([trouble]);
        let error = store.acquire(&asked).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.may_have_worked(), "{error}");
        assert_eq!(server.batches() - before, 1, "sent once");
        let found = store.read(&asked.key).await.unwrap();
        assert_eq!(found.is_some(), worked, "{name}");
        match store.acquire(&asked).await.unwrap() {
            Acquired::Granted(lease) => {
                assert!(found.is_none_or(|found| found.token == lease.token));
            }
            Acquired::Held(lease) => panic!("{lease:?}"),
        }
    }
}

/// The command's own limit: unknown, read back, on another connection.
#[tokio::test]
async fn no_answer_in_time() {
    let server = StandIn::start().await;
    server.store().await;
    let store = open(&format!("{}&command_timeout=2s", server.url()));
    let lease = granted(&store, "held", "a").await;
    for trouble in [Trouble::RunsAndHangs, Trouble::Hangs] {
        let before = server.connections();
        server.plays([trouble]);
        let error = store.renew(&lease, LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.may_have_worked(), "{error}");
        assert!(error.to_string().contains("command_timeout"), "{error}");
        let renewed = store.renew(&lease, LONG).await.unwrap();
        assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
        assert_eq!(server.connections(), before + 1, "that one was closed");
    }
}

/// A call that is dropped takes its connection with it, and those that lie idle.
#[tokio::test]
async fn a_call_that_was_given_up() {
    let server = StandIn::start().await;
    let store = server.store().await;
    let lease = granted(&store, "held", "a").await;
    let before = server.connections();
    server.plays([Trouble::RunsAndHangs]);
    let calling = (store.clone(), lease.clone());
    let call = tokio::spawn(async move { calling.0.release(&calling.1).await });
    let sent = server.batches();
    while server.batches() == sent {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = open(&server.url());
    while other.read(&key("held")).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    let own = server.connections() - before;
    assert_eq!(own, 2, "one to look, and one instead of the given up");
}

/// A connection that was killed while it lay idle costs the next call nothing.
#[tokio::test]
async fn killed_while_idle() {
    let server = StandIn::start().await;
    let store = server.store().await;
    let lease = granted(&store, "held", "a").await;
    let before = server.connections();
    server.killed_all().await;
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    assert_eq!(server.connections(), before + 1);
}

#[tokio::test]
async fn nobody_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("sqlserver://app:{PASSWORD}@127.0.0.1:{port}/app?connect_timeout=200ms");
    // It takes the connection and says nothing.
    let error = failed(&open(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_worked(), "{error}");
    drop(listener);
    let error = failed(&open(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_worked(), "{error}");
}

#[tokio::test]
async fn a_pool_that_is_in_use() {
    let server = StandIn::start().await;
    server.store().await;
    let store = open(&format!("{}&pool=1&connect_timeout=2s", server.url()));
    granted(&store, "k", "a").await;
    server.plays([Trouble::Hangs]);
    let hung = store.clone();
    let hung = tokio::spawn(async move { hung.read(&key("k")).await });
    let before = server.batches();
    while server.batches() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = failed(&store).await;
    assert!(error.to_string().contains("pool=NUMBER"), "{error}");
    assert!(!error.may_have_worked(), "{error}");
    hung.abort();
}

/// A client of the caller's own, over a stream of tokio's.
struct ByHand(u16);

#[async_trait]
impl Connect for ByHand {
    async fn connect(&self) -> Result<Connection> {
        Ok(Connection::new(client(self.0).await))
    }
}

async fn client(port: u16) -> tiberius::Client<tokio_util::compat::Compat<TcpStream>> {
    let mut config = tiberius::Config::new();
    config.authentication(tiberius::AuthMethod::sql_server("app", PASSWORD));
    config.trust_cert();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tiberius::Client::connect(config, stream.compat_write())
        .await
        .unwrap()
}

#[tokio::test]
async fn connections_of_the_callers_own() {
    let server = StandIn::start().await;
    server.store().await;
    let port = server.address().port();
    let options = SqlServerOptions::for_client;
    let store = SqlServerStore::with_connector(ByHand(port), options()).unwrap();
    let lease = granted(&store, "k", "a").await;
    server.plays([Trouble::Cuts]);
    store.renew(&lease, LONG).await.unwrap_err();
    store.renew(&lease, LONG).await.unwrap();

    let one = SqlServerStore::with_client(Connection::new(client(port).await), options()).unwrap();
    granted(&one, "of one", "a").await;
    server.plays([Trouble::Says(Fault::new(1222, "locked"))]);
    one.read(&key("k")).await.unwrap_err();
    assert!(
        one.read(&key("k")).await.unwrap().is_some(),
        "a clear no ends nothing"
    );
    server.plays([Trouble::Hangs]);
    let read = tokio::time::timeout(Duration::from_millis(200), async {
        one.read(&key("k")).await
    });
    read.await.unwrap_err();
    let error = one.read(&key("k")).await.unwrap_err();
    assert!(
        error.to_string().contains("give the store a new one"),
        "{error}"
    );
    assert!(!error.may_have_worked(), "{error}");
}

/// Within a transaction of somebody else's, COMMIT would confirm nothing.
#[tokio::test]
async fn a_transaction_that_is_open_already() {
    let server = StandIn::start().await;
    server.store().await;
    let mut client = client(server.address().port()).await;
    client
        .simple_query("BEGIN TRANSACTION")
        .await
        .unwrap()
        .into_results()
        .await
        .unwrap();
    let options = SqlServerOptions::for_client();
    let store = SqlServerStore::with_client(Connection::new(client), options).unwrap();
    let error = failed(&store).await;
    assert!(error.to_string().contains("transaction open"), "{error}");
    assert_eq!(open(&server.url()).read(&key("k")).await.unwrap(), None);
}
