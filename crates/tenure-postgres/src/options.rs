//! How a store is reached and which table it uses: plain data.

use std::time::Duration;

use tenure_net::{Secret, Tls, Verify};

use crate::hosts::Server;
use crate::names::Table;

/// Whether and how much TLS: the words of libpq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SslMode {
    /// None.
    Disable,
    /// If the server has it; its certificate is not checked unless an authority was named.
    #[default]
    Prefer,
    /// Always; its certificate is not checked unless an authority was named.
    Require,
    /// Always, with a certificate of a known authority.
    VerifyCa,
    /// Always, with a certificate of a known authority for this host's name.
    VerifyFull,
}

/// Whether the password's proof is bound to the TLS connection: the words of libpq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If both sides can.
    #[default]
    Prefer,
    /// Or no connection at all.
    Require,
}

/// Where changes are listened for, so that a waiter need not poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// On one more connection to the same servers. Whether a pooler is in between is
    /// found out.
    #[default]
    On,
    /// Not at all: waiters poll.
    Off,
    /// On a direct connection to these servers, where the usual way goes through a pooler.
    At(Vec<Server>),
}

/// Whether statements are prepared, which saves the server planning them each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepare {
    /// On connections that are proven to lead straight to the server, and no others. On
    /// the caller's own pool or client: not.
    #[default]
    Auto,
    /// Always. Wrong behind a pooler in transaction mode that does not know of them.
    On,
    /// Never.
    Off,
}

/// How a [`PostgresStore`](crate::PostgresStore) is reached, and which table it uses.
///
/// ```
/// use tenure_postgres::{PostgresOptions, PostgresStore};
///
/// let options = PostgresOptions::from_url("postgres://app@db.example/app?sslmode=verify-full")?;
/// let store = PostgresStore::open(options)?; // connects with the first call
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `PostgresStore::open`"]
pub struct PostgresOptions {
    pub(crate) servers: Vec<Server>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
    pub(crate) table: Table,
    pub(crate) ssl_mode: Option<SslMode>,
    pub(crate) tls: Tls,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) writable: Option<bool>,
    pub(crate) listen: Listen,
    pub(crate) prepare: Prepare,
    pub(crate) connections_max: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) application_name: String,
}

impl PostgresOptions {
    /// These servers of one database, tried in turn. Several are asked which one takes
    /// writes.
    pub fn new(servers: impl IntoIterator<Item = Server>) -> Self {
        Self {
            servers: servers.into_iter().collect(),
            user: None,
            password: None,
            database: None,
            table: Table::default(),
            ssl_mode: None,
            tls: Tls::new(),
            channel_binding: ChannelBinding::default(),
            writable: None,
            listen: Listen::default(),
            prepare: Prepare::default(),
            connections_max: 8,
            connect_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(3),
            application_name: "tenure".into(),
        }
    }

    /// No servers: for [`PostgresStore::with_pool`](crate::PostgresStore::with_pool), with
    /// a table of another name. A store that knows no server cannot listen, so waiters poll.
    pub fn for_pool() -> Self {
        Self::new([])
    }

    /// The user; the one who runs this process if none is named.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password.
    pub fn password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// The database; that of the user's name if none is named.
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// The table and its schema. Default `public`, `app_runtime_leases`.
    pub fn table(mut self, schema: impl Into<String>, table: impl Into<String>) -> Self {
        self.table = Table {
            schema: schema.into(),
            name: table.into(),
        };
        self
    }

    /// How much TLS. Default [`SslMode::Prefer`], or [`SslMode::VerifyFull`] if an
    /// authority is named.
    pub fn ssl_mode(mut self, mode: SslMode) -> Self {
        self.ssl_mode = Some(mode);
        self
    }

    /// Authority and client certificate.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Whether the password's proof is bound to the TLS connection.
    pub fn channel_binding(mut self, binding: ChannelBinding) -> Self {
        self.channel_binding = binding;
        self
    }

    /// Where changes are listened for. Default [`Listen::On`].
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen = listen;
        self
    }

    /// Whether statements are prepared. Default [`Prepare::Auto`].
    pub fn prepare(mut self, prepare: Prepare) -> Self {
        self.prepare = prepare;
        self
    }

    /// How many connections at most, without the one that listens. Default 8; each is
    /// made when it is needed.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count.max(1);
        self
    }

    /// How long making a connection may take, and waiting for a free one. Default 5 s.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How long a statement waits on the server for a row that somebody has locked.
    /// Default 3 s.
    pub fn lock_timeout(mut self, time: Duration) -> Self {
        self.lock_timeout = time;
        self
    }

    /// What has to be created, with least rights, for people to run.
    pub fn schema(&self) -> String {
        crate::schema::text(self)
    }

    /// What TLS means, with what was left open decided.
    pub(crate) fn security(&self) -> (SslMode, Verify) {
        let named = self.tls.authorities_pem().is_some();
        let mode = match (self.ssl_mode, named) {
            (Some(mode), _) => mode,
            (None, true) => SslMode::VerifyFull,
            (None, false) => SslMode::Prefer,
        };
        let verify = match mode {
            SslMode::VerifyFull => Verify::Full,
            SslMode::VerifyCa => Verify::Authority,
            // Like libpq: an authority that was named is there to be checked against.
            SslMode::Prefer | SslMode::Require if named => Verify::Authority,
            _ => Verify::Nothing,
        };
        (mode, verify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_authority_is_checked_against() {
        let tls = Tls::new().authorities("PEM");
        let options = PostgresOptions::new([Server::new("h", None)]);
        let security = |mode: Option<SslMode>, tls: Tls| {
            let mut options = options.clone().tls(tls);
            options.ssl_mode = mode;
            options.security()
        };
        assert_eq!(
            security(None, Tls::new()),
            (SslMode::Prefer, Verify::Nothing)
        );
        assert_eq!(
            security(None, tls.clone()),
            (SslMode::VerifyFull, Verify::Full)
        );
        let require = Some(SslMode::Require);
        assert_eq!(
            security(require, Tls::new()),
            (SslMode::Require, Verify::Nothing)
        );
        assert_eq!(
            security(require, tls),
            (SslMode::Require, Verify::Authority)
        );
    }
}
