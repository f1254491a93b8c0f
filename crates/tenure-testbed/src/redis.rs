//! Redis: one server, and commands by hand.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::signal::Signal;

use crate::certs::Certs;
use crate::clock::ClockFault;
use crate::ports::Port;
use crate::program::Kind;
use crate::resp::{Connection, Reply};
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

pub(crate) const KIND: Kind = Kind {
    name: "Redis",
    variable: "TENURE_TEST_REDIS_URL",
    packages: "redis-server",
};

/// A private Redis server.
///
/// See [`Server`] for what can be done to it.
#[derive(Clone, Debug)]
pub struct Redis {
    server: Server,
    options: RedisOptions,
    certs: Option<Certs>,
}

/// How a Redis server is set up.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RedisOptions {
    password: Option<String>,
    tls: bool,
    client_certificate: bool,
    keep: Keep,
    clock: Option<ClockFault>,
    settings: Vec<(String, String)>,
}

/// What Redis keeps of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keep {
    Nothing,
    #[default]
    OverKill,
    OverPowerLoss,
}

impl RedisOptions {
    /// No password, no TLS, data that survives a kill of the server but not of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clients must name this password, as the user `default`.
    pub fn password(self, password: impl Into<String>) -> Self {
        Self {
            password: Some(password.into()),
            ..self
        }
    }

    /// Only connections with TLS are let in; see [`Redis::certs`].
    pub fn tls(self) -> Self {
        Self { tls: true, ..self }
    }

    /// Only clients with the certificate of [`Certs::client_cert`] are let in (with TLS).
    pub fn client_certificate(self) -> Self {
        Self {
            tls: true,
            client_certificate: true,
            ..self
        }
    }

    /// Every write is on the disk before it is answered (`appendfsync always`).
    pub fn durable(self) -> Self {
        Self {
            keep: Keep::OverPowerLoss,
            ..self
        }
    }

    /// A restart loses everything, as a Redis without persistence does.
    pub fn forgetful(self) -> Self {
        Self {
            keep: Keep::Nothing,
            ..self
        }
    }

    /// The server's own clock is wrong.
    pub fn clock(self, clock: ClockFault) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// A line of `redis.conf`: `maxmemory 10mb`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and waits until it answers. `None` if this machine has none,
    /// which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start(self) -> Option<Redis> {
        let [program] = KIND.need(&["redis-server"])?.try_into().ok()?;
        if self.clock.is_some() && !ClockFault::is_available() {
            return None;
        }
        Some(begin_on_free_port(|| {
            self.begin(&program, vec![Port::claim()])
        }))
    }

    /// The first port is for clients; the rest is only kept.
    pub(crate) fn begin(&self, program: &Path, ports: Vec<Port>) -> Result<Redis, Failure> {
        let place = match self.keep {
            Keep::OverPowerLoss => Place::Disk,
            Keep::Nothing | Keep::OverKill => Place::Memory,
        };
        let folder = run::folder("redis", place);
        let certs = self
            .tls
            .then(|| Certs::write(&folder.join("certs"), "client"));
        let args = self.arguments(&folder, &ports[0], certs.as_ref());
        let server = Server::begin(Spec {
            name: "redis-server",
            program: program.to_path_buf(),
            args: args.into_iter().map(OsString::from).collect(),
            user: None,
            clock: self.clock.clone(),
            ready: self.ready(folder.clone()),
            folder,
            ports,
            stop_signal: Signal::SIGTERM,
            wire: if self.tls { Wire::Raw } else { Wire::Redis },
        })?;
        Ok(Redis {
            server,
            options: self.clone(),
            certs,
        })
    }

    fn ready(&self, folder: PathBuf) -> Box<dyn Fn() -> bool + Send + Sync> {
        let password = self.password.clone();
        Box::new(move || {
            let reply = by_hand(&folder, password.as_deref(), &["PING"]);
            reply.is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
        })
    }

    fn arguments(&self, folder: &Path, port: &Port, certs: Option<&Certs>) -> Vec<String> {
        let (append, sync) = match self.keep {
            Keep::Nothing => ("no", "no"),
            Keep::OverKill => ("yes", "no"),
            Keep::OverPowerLoss => ("yes", "always"),
        };
        let number = port.number().to_string();
        let path = |path: PathBuf| path.display().to_string();
        let plain = if self.tls { "0" } else { &number };
        let mut lines = vec![
            ("port", plain.to_owned()),
            ("bind", "127.0.0.1".to_owned()),
            ("dir", path(folder.to_path_buf())),
            ("unixsocket", path(folder.join("socket"))),
            ("save", String::new()),
            ("appendonly", append.to_owned()),
            ("appendfsync", sync.to_owned()),
            ("enable-debug-command", "local".to_owned()),
            ("repl-diskless-sync-delay", "0".to_owned()),
        ];
        if let Some(certs) = certs {
            let clients = if self.client_certificate { "yes" } else { "no" };
            lines.push(("tls-port", number));
            lines.push(("tls-cert-file", path(certs.server_cert())));
            lines.push(("tls-key-file", path(certs.server_key())));
            lines.push(("tls-ca-cert-file", path(certs.ca())));
            lines.push(("tls-auth-clients", clients.to_owned()));
        }
        if let Some(password) = &self.password {
            lines.push(("requirepass", password.clone()));
            lines.push(("masterauth", password.clone()));
        }
        let more = self.settings.iter();
        lines.extend(more.map(|(name, value)| (name.as_str(), value.clone())));
        let mut args = Vec::new();
        for (name, value) in lines {
            args.push(format!("--{name}"));
            args.push(value);
        }
        args
    }
}

impl Redis {
    /// A server of the caller's own. `None` if this machine has none, which is then said.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        RedisOptions::new().start()
    }

    /// One server for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Redis>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The URL of the server for tests that break nothing: the user's own if
    /// `TENURE_TEST_REDIS_URL` names one, else of [`shared`](Self::shared).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared_url() -> Option<String> {
        KIND.own_url().or_else(|| Some(Self::shared()?.url()))
    }

    /// The URL, with the password if there is one: `redis://` or, with TLS, `rediss://`.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same URL at another address: of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, address: SocketAddr) -> String {
        self.url_for(address, "", self.options.password.as_deref())
    }

    /// A URL for any user.
    pub fn url_for(&self, address: SocketAddr, user: &str, password: Option<&str>) -> String {
        let scheme = if self.options.tls { "rediss" } else { "redis" };
        let login = crate::login(user, password);
        format!("{scheme}://{login}{address}")
    }

    /// The certificates of a server with TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// One command by hand, with all rights, over the server's own socket.
    ///
    /// # Panics
    /// If the server does not answer; a refusal is a [`Reply::Error`].
    pub fn command(&self, words: &[&str]) -> Reply {
        let password = self.options.password.as_deref();
        let reply = by_hand(self.folder(), password, words);
        reply.unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    /// A user by `ACL SETUSER name on >password rules…`: `["~app:*", "+get"]`.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn create_user(&self, name: &str, password: &str, rules: &[&str]) {
        let password = format!(">{password}");
        let mut words = vec!["ACL", "SETUSER", name, "on", &password];
        words.extend_from_slice(rules);
        let reply = self.command(&words);
        assert_eq!(reply, Reply::Text("OK".to_owned()), "{words:?}");
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// A URL with several hosts, and the password of one of them.
pub(crate) fn url_of_many(scheme: &str, node: &Redis, addresses: &[SocketAddr]) -> String {
    let login = crate::login("", node.options.password.as_deref());
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{scheme}://{login}{}", hosts.join(","))
}

/// One command over the socket in a server's folder.
pub(crate) fn by_hand(
    folder: &Path,
    password: Option<&str>,
    words: &[&str],
) -> std::io::Result<Reply> {
    let mut connection = Connection::open(&folder.join("socket"))?;
    if let Some(password) = password {
        connection.command(&["AUTH", password])?;
    }
    connection.command(words)
}
