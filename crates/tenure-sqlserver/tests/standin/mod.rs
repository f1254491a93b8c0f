//! A stand-in for SQL Server, because no real one can be had where this is tested.
//!
//! It speaks TDS (prelogin, TLS within it, login, sp_executesql), runs the very text of our
//! batches on one table in memory, and plays the faults that a server has. It is no proof
//! of how SQL Server locks, compares or rounds: that is written down in `run.rs` and
//! `database.rs` as Microsoft documents it, and may be understood wrongly there too. What
//! it does show: that client and batches are one, that the batches decide rightly if the
//! server does what is documented, and what becomes of each fault.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod database;
pub mod parse;
pub mod run;
pub mod tds;
pub mod tls;
pub mod tokens;
pub mod values;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenure::{AcquireRequest, Acquired, Attempt, Holder, Key, Lease, Store};
use tenure_sqlserver::{SqlServerOptions, SqlServerStore};
use tenure_testbed::Certs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use database::{Database, Fault, Value};
use run::{Answer, Session};

pub const TABLE: &str = "dbo.Leases";
pub const LONG: Duration = Duration::from_secs(600);
pub const PASSWORD: &str = "hunter2";

/// What happens to the next request instead of, or after, its being run.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The server says so, and has done nothing.
    Says(Fault),
    /// It is run, and then the connection ends without an answer.
    RunsAndCuts,
    /// The connection ends before it is run.
    Cuts,
    /// It is run, and never answered.
    RunsAndHangs,
    /// It is never run, nor answered.
    Hangs,
}

/// Whether it can encrypt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Encryption {
    None,
    Prelogin,
    Strict,
}

/// A server on loopback, gone when it is dropped.
pub struct StandIn {
    pub database: Database,
    pub certs: Certs,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

struct Shared {
    database: Database,
    encryption: Encryption,
    tls: Arc<ServerConfig>,
    troubles: Mutex<VecDeque<Trouble>>,
    connections: AtomicU64,
    batches: AtomicU64,
    open: AtomicU64,
    kill: Notify,
}

impl StandIn {
    pub async fn start() -> Self {
        Self::with(Encryption::Prelogin).await
    }

    pub async fn with(encryption: Encryption) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certs = Certs::write(folder.path(), "client");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let database = Database::new();
        let shared = Arc::new(Shared {
            database: database.clone(),
            encryption,
            tls: server_config(&certs, encryption),
            troubles: Mutex::default(),
            connections: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            open: AtomicU64::new(0),
            kill: Notify::new(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self {
            database,
            certs,
            address,
            shared,
            accepting,
            _folder: folder,
        }
    }

    pub fn ca(&self) -> PathBuf {
        self.certs.ca()
    }

    pub fn url(&self) -> String {
        self.url_with(&format!("tls-ca={}", self.ca().display()))
    }

    pub fn url_with(&self, options: &str) -> String {
        let port = self.address.port();
        format!("sqlserver://app:{PASSWORD}@localhost:{port}/app?{options}")
    }

    /// A store of its own connections, on a table that is there.
    pub async fn store(&self) -> SqlServerStore {
        let store = open(&self.url());
        store.init().await.unwrap();
        store
    }

    /// Plays these with the next requests.
    pub fn plays(&self, troubles: impl IntoIterator<Item = Trouble>) {
        self.shared.troubles.lock().unwrap().extend(troubles);
    }

    /// Ends all connections, as KILL does.
    pub fn kill_all(&self) {
        self.shared.kill.notify_waiters();
    }

    /// Ends all connections, and waits until they have ended.
    pub async fn killed_all(&self) {
        self.kill_all();
        while self.shared.open.load(Ordering::SeqCst) != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One more turn for the runtime, in which it hears of it.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// How many connections were logged in.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many requests came.
    pub fn batches(&self) -> u64 {
        self.shared.batches.load(Ordering::SeqCst)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.accepting.abort();
        self.kill_all();
    }
}

pub fn open(url: &str) -> SqlServerStore {
    SqlServerStore::open(SqlServerOptions::from_url(url).unwrap()).unwrap()
}

fn server_config(certs: &Certs, encryption: Encryption) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_file_iter(certs.server_cert()).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(certs.server_key()).unwrap();
    // Within prelogin SQL Server speaks TLS 1.2 at most.
    let versions: &[_] = match encryption {
        Encryption::Strict => &[&rustls::version::TLS13],
        _ => &[&rustls::version::TLS12],
    };
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap();
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"tds/8.0".to_vec()];
    Arc::new(config)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        shared.open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let killed = shared.kill.notified();
            tokio::select! {
                _ = killed => {}
                _ = serve(stream, &shared) => {}
            }
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(shared.tls.clone());
    if shared.encryption == Encryption::Strict {
        let mut stream = acceptor.accept(stream).await?;
        tds::receive(&mut stream).await?;
        tds::send(&mut stream, &tds::prelogin(1)).await?;
        return talk(stream, shared).await;
    }
    let (_, asked) = tds::receive(&mut stream).await?;
    // The first two options are version and encryption, whose place is told there.
    let asked = asked[usize::from(u16::from_be_bytes([asked[6], asked[7]]))];
    let answer = match (shared.encryption, asked) {
        (Encryption::None, _) | (_, 2) => 2,
        _ => 1,
    };
    tds::send(&mut stream, &tds::prelogin(answer)).await?;
    if answer == 2 {
        return talk(stream, shared).await;
    }
    let mut stream = acceptor.accept(tls::Below::new(stream, true)).await?;
    stream.get_mut().0.handshake = false;
    talk(stream, shared).await
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) -> io::Result<()> {
    let (kind, content) = tds::receive(&mut stream).await?;
    assert_eq!(kind, tds::LOGIN);
    let (user, password, database) = tds::login(&content);
    let refused = match (password == PASSWORD, database.as_str()) {
        (false, _) => Some(Fault::new(
            18456,
            format!("Login failed for user '{user}'."),
        )),
        (true, "none") => Some(Fault::new(
            4060,
            "Cannot open database \"none\" requested by the login.",
        )),
        _ => None,
    };
    if let Some(fault) = refused {
        return tds::send(&mut stream, &tds::fault(&fault)).await;
    }
    tds::send(&mut stream, &tds::welcome()).await?;
    let id = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let mut session = Session::new(id, shared.database.clone());
    loop {
        let (kind, content) = tds::receive(&mut stream).await?;
        shared.batches.fetch_add(1, Ordering::SeqCst);
        let trouble = shared.troubles.lock().unwrap().pop_front();
        match &trouble {
            Some(Trouble::Says(fault)) => {
                tds::send(&mut stream, &tds::fault(fault)).await?;
                if fault.class >= 20 {
                    return Ok(());
                }
                continue;
            }
            Some(Trouble::Cuts) => return Ok(()),
            Some(Trouble::Hangs) => std::future::pending().await,
            _ => {}
        }
        let answer = match kind {
            tds::RPC => {
                let (batch, parameters) = tds::call(&content);
                match batch.contains("FROM sys.columns") {
                    true => Ok(columns(&shared.database, &parameters)),
                    false => session.run(&batch, parameters).await,
                }
            }
            tds::BATCH => set_up(&mut session, &shared.database, &tds::batch(&content)),
            kind => panic!("a message of kind {kind}"),
        };
        match trouble {
            Some(Trouble::RunsAndCuts) => return Ok(()),
            Some(Trouble::RunsAndHangs) => std::future::pending().await,
            _ => {}
        }
        let answer = match &answer {
            Ok(answer) => tds::answer(answer),
            Err(fault) => tds::fault(fault),
        };
        tds::send(&mut stream, &answer).await?;
    }
}

/// `[dbo].[Leases]` as the database knows it.
fn plain(name: &str) -> String {
    name.trim_matches(['[', ']'])
        .replace("].[", ".")
        .replace("]]", "]")
}

/// What sys.columns says. Only what `init` asks.
fn columns(database: &Database, parameters: &[Value]) -> Answer {
    let Some(Value::Text(name)) = parameters.first() else {
        panic!("of which table?");
    };
    let inner = database.lock();
    let names = ["Name", "Kind", "Scale", "Collation"]
        .map(str::to_owned)
        .into();
    let mut rows = Vec::new();
    for (name, kind) in inner
        .tables
        .get(&plain(name))
        .iter()
        .flat_map(|t| &t.columns)
    {
        let collation = match inner.ignores_case {
            true => "SQL_Latin1_General_CP1_CI_AS",
            false => "Latin1_General_BIN2",
        };
        let (kind, scale, collation) = match kind {
            parse::Type::Time(scale) => ("datetime2", i64::from(*scale), Value::Null),
            parse::Type::Text(_) => ("nvarchar", 0, Value::Text(collation.into())),
            _ => ("bigint", 0, Value::Null),
        };
        let kind = Value::Text(kind.into());
        rows.push(vec![
            Value::Text(name.clone()),
            kind,
            Value::Number(scale),
            collation,
        ]);
    }
    Answer { names, rows }
}

/// What `init` runs, as far as the stand-in needs it, and BEGIN TRANSACTION by hand.
fn set_up(session: &mut Session, database: &Database, text: &str) -> Result<Answer, Fault> {
    if text == "BEGIN TRANSACTION" {
        session.transactions += 1;
        return Ok(Answer::default());
    }
    let after = |word: &str| {
        let (_, rest) = text.split_once(word)?;
        let mut words = rest.split_whitespace();
        Some((plain(words.next()?), words.nth(1).map(str::to_owned)))
    };
    if let Some((table, _)) = after("CREATE TABLE ") {
        database.create(&table, 520);
    }
    if let Some((table, Some(column))) = after("ALTER TABLE ") {
        let kind = match column.as_str() {
            "TenureUntil" | "TenureSince" => parse::Type::Time(3),
            "TenureRequest" => parse::Type::Text(40),
            _ => parse::Type::BigInt,
        };
        let mut inner = database.lock();
        inner
            .tables
            .get_mut(&table)
            .unwrap()
            .columns
            .insert(column, kind);
    }
    Ok(Answer::default())
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A request of a new attempt.
pub fn request(key: &str, holder: &str, ttl: Duration) -> AcquireRequest {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
    AcquireRequest {
        key: self::key(key),
        holder: Holder::new(holder).unwrap(),
        ttl,
        attempt: Attempt::first(ATTEMPTS.fetch_add(1, Ordering::Relaxed)),
        ended: None,
    }
}

pub async fn granted(store: &dyn Store, key: &str, holder: &str) -> Lease {
    match store.acquire(&request(key, holder, LONG)).await.unwrap() {
        Acquired::Granted(lease) => lease,
        Acquired::Held(lease) => panic!("{key} is held: {lease:?}"),
    }
}
