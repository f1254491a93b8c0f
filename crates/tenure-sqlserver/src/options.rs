//! How a store is reached and which table it uses: plain data.

use std::time::Duration;

use tenure::{Error, Result};
use tenure_net::{Secret, Tls};

use crate::names::Table;

/// The port of SQL Server.
pub(crate) const PORT: u16 = 1433;

/// Whether the connection is encrypted: the words of Microsoft's drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encrypt {
    /// From the first byte on (TDS 8.0): SQL Server 2022 and Azure.
    Strict,
    /// Always, or no connection at all.
    #[default]
    On,
    /// Only if the server insists. The password then goes over the network in a form that
    /// anybody can read.
    Off,
}

/// How a [`SqlServerStore`](crate::SqlServerStore) is reached, and which table it uses.
///
/// ```
/// use tenure_sqlserver::{SqlServerOptions, SqlServerStore};
///
/// let options = SqlServerOptions::from_url("sqlserver://app@db.example/app")?;
/// let store = SqlServerStore::open(options)?; // connects with the first call
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `SqlServerStore::open`"]
pub struct SqlServerOptions {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
    pub(crate) table: Table,
    pub(crate) encrypt: Encrypt,
    pub(crate) tls: Tls,
    pub(crate) trust_server_certificate: bool,
    pub(crate) certificate_name: Option<String>,
    pub(crate) connections_max: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) application_name: String,
}

impl SqlServerOptions {
    /// The server, or the listener of an availability group, at this name and the usual port.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: PORT,
            user: None,
            password: None,
            database: None,
            table: Table::default(),
            encrypt: Encrypt::default(),
            tls: Tls::new(),
            trust_server_certificate: false,
            certificate_name: None,
            connections_max: 8,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(3),
            application_name: "tenure".into(),
        }
    }

    /// No server: for [`with_client`](crate::SqlServerStore::with_client) and
    /// [`with_connector`](crate::SqlServerStore::with_connector), which bring their own.
    pub fn for_client() -> Self {
        Self::new("")
    }

    /// The port. Default 1433.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The SQL login.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Its password.
    pub fn password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// The database; the login's own if none is named.
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// The table and its schema. Default `dbo`, `Leases`.
    pub fn table(mut self, schema: impl Into<String>, table: impl Into<String>) -> Self {
        self.table = Table {
            schema: schema.into(),
            name: table.into(),
        };
        self
    }

    /// Whether the connection is encrypted. Default [`Encrypt::On`].
    pub fn encrypt(mut self, encrypt: Encrypt) -> Self {
        self.encrypt = encrypt;
        self
    }

    /// Authorities to trust beside the machine's.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Encrypts, but with whoever answers: he can read and change everything.
    pub fn trust_server_certificate(mut self, trust: bool) -> Self {
        self.trust_server_certificate = trust;
        self
    }

    /// The name that the certificate has to be for, if not the host's.
    pub fn certificate_name(mut self, name: impl Into<String>) -> Self {
        self.certificate_name = Some(name.into());
        self
    }

    /// How many connections at most. Default 8; each is made when it is needed.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count.max(1);
        self
    }

    /// How long making a connection may take, and waiting for a free one. Default 5 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How long a batch may take, with its answer. Default 10 s.
    pub fn command_timeout(mut self, time: Duration) -> Self {
        self.command_timeout = time;
        self
    }

    /// How long a batch waits on the server for a row that somebody has locked. Default 3 s.
    pub fn lock_timeout(mut self, time: Duration) -> Self {
        self.lock_timeout = time;
        self
    }

    /// What has to be created, with least rights, for people to run.
    pub fn schema(&self) -> String {
        crate::schema::text(self)
    }

    /// Refuses what cannot be meant, before anything is sent.
    pub(crate) fn check(&self) -> Result<()> {
        self.table.check()?;
        let wrong = |why: &str| Err(Error::invalid(why));
        if self.host.is_empty() {
            return wrong("no server is named: write sqlserver://user@host/database");
        }
        if self.user.is_none() {
            return wrong(
                "no user is named: write sqlserver://user@host/database, or bring a connection of your own for another way to log in",
            );
        }
        let certificate = self.tls.authorities_pem().is_some()
            || self.trust_server_certificate
            || self.certificate_name.is_some();
        if self.encrypt == Encrypt::Off && certificate {
            return wrong(
                "encrypt=off with tls-ca, trustServerCertificate or hostNameInCertificate: leave one of them out",
            );
        }
        if self.trust_server_certificate
            && (self.tls.authorities_pem().is_some() || self.certificate_name.is_some())
        {
            return wrong(
                "trustServerCertificate with tls-ca or hostNameInCertificate: leave one of them out",
            );
        }
        if self.tls.identity_pem().is_some() {
            return wrong(
                "tls-cert and tls-key: SQL Server lets nobody in by a certificate; name a user and a password",
            );
        }
        Ok(())
    }
}
