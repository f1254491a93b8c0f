//! etcd: one member or three, and `etcdctl` by hand.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::certs::Certs;
use crate::ports::Port;
use crate::program::Kind;
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wait::{self, SERVER_LIMIT};
use crate::wire::Wire;

pub(crate) const KIND: Kind = Kind {
    name: "etcd",
    variable: "TENURE_TEST_ETCD_URL",
    packages: "etcd-server etcd-client",
};

/// A private etcd of one or more members.
#[derive(Clone, Debug)]
pub struct Etcd {
    members: Vec<Server>,
    options: EtcdOptions,
    certs: Option<Certs>,
    ctl: PathBuf,
}

/// How an etcd is set up.
#[derive(Clone, Debug)]
#[must_use]
pub struct EtcdOptions {
    members: usize,
    root_password: Option<String>,
    tls: bool,
    client_certificate: bool,
    durable: bool,
    arguments: Vec<String>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl EtcdOptions {
    /// One member, no users, no TLS, data in memory (of the machine: it survives a kill).
    pub fn new() -> Self {
        Self {
            members: 1,
            root_password: None,
            tls: false,
            client_certificate: false,
            durable: false,
            arguments: Vec::new(),
        }
    }

    /// So many members.
    pub fn members(self, members: usize) -> Self {
        Self { members, ..self }
    }

    /// Authentication is on, and the user `root` has this password. Others are made by
    /// [`Etcd::create_user`].
    pub fn root_password(self, password: impl Into<String>) -> Self {
        Self {
            root_password: Some(password.into()),
            ..self
        }
    }

    /// Clients must use TLS; see [`Etcd::certs`].
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

    /// Data on the disk: every write waits for it, as in production.
    pub fn durable(self) -> Self {
        Self {
            durable: true,
            ..self
        }
    }

    /// One more argument of every member: `--quota-backend-bytes=16777216`,
    /// `--auth-token-ttl=1`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts all members and waits until they answer. `None` if this machine has no
    /// etcd, which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start(self) -> Option<Etcd> {
        let found = KIND.need(&["etcd", "etcdctl"])?;
        let [program, ctl] = found.try_into().ok()?;
        let etcd = begin_on_free_port(|| self.begin(&program, &ctl));
        if let Some(password) = &self.root_password {
            etcd.run(&["user", "add", &format!("root:{password}")], None);
            etcd.run(&["user", "grant-role", "root", "root"], None);
            etcd.run(&["auth", "enable"], None);
        }
        Some(etcd)
    }

    fn begin(&self, program: &Path, ctl: &Path) -> Result<Etcd, Failure> {
        let place = if self.durable {
            Place::Disk
        } else {
            Place::Memory
        };
        let certs = self
            .tls
            .then(|| Certs::write(&run::folder("etcd-certs", Place::Disk), "root"));
        let wire = if self.tls { Wire::Raw } else { Wire::Http2 };
        let members: Vec<Member> = (0..self.members).map(|_| Member::new(place)).collect();
        let cluster: Vec<String> = members.iter().map(Member::in_cluster).collect();
        let cluster = cluster.join(",");
        // A member answers only once it has met the others: all are started, then waited for.
        let begun: Vec<Result<Server, Failure>> = std::thread::scope(|scope| {
            let starting: Vec<_> = members
                .into_iter()
                .map(|member| {
                    let args = self.arguments(&member, &cluster, certs.as_ref());
                    scope.spawn(move || member.begin(program.to_path_buf(), args, wire))
                })
                .collect();
            let joined = starting
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join);
            joined
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        Ok(Etcd {
            members: begun.into_iter().collect::<Result<_, _>>()?,
            options: self.clone(),
            certs,
            ctl: ctl.to_path_buf(),
        })
    }

    fn arguments(&self, member: &Member, cluster: &str, certs: Option<&Certs>) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let client = format!("{scheme}://{}", member.client.address());
        let peer = format!("http://{}", member.peer.address());
        let mut args = vec![
            format!("--name={}", member.name()),
            format!("--data-dir={}", member.folder.join("data").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={cluster}"),
            format!("--listen-metrics-urls=http://{}", member.health.address()),
            "--bcrypt-cost=4".to_owned(),
        ];
        if self.members == 1 {
            // A member alone need not wait for others before it leads. With several, the
            // defaults stay: on a busy machine a hurried election finds no end.
            args.push("--heartbeat-interval=50".to_owned());
            args.push("--election-timeout=500".to_owned());
        }
        if let Some(certs) = certs {
            args.push(format!("--cert-file={}", certs.server_cert().display()));
            args.push(format!("--key-file={}", certs.server_key().display()));
            args.push(format!("--trusted-ca-file={}", certs.ca().display()));
            if self.client_certificate {
                args.push("--client-cert-auth".to_owned());
            }
        }
        args.extend(self.arguments.iter().cloned());
        args
    }
}

impl Etcd {
    /// One member of the caller's own. `None` if this machine has none, which is then said.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        EtcdOptions::new().start()
    }

    /// One for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Etcd>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The URL of the server for tests that break nothing: the user's own if
    /// `TENURE_TEST_ETCD_URL` names one, else of [`shared`](Self::shared).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared_url() -> Option<String> {
        KIND.own_url().or_else(|| Some(Self::shared()?.url()))
    }

    /// The URL with all members: `etcd://…` or, with TLS, `etcds://…`, as `root` if there
    /// is a password.
    pub fn url(&self) -> String {
        let addresses: Vec<SocketAddr> = self.members.iter().map(Server::address).collect();
        self.url_at(&addresses)
    }

    /// The same URL at other addresses: of one member, or of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, addresses: &[SocketAddr]) -> String {
        let root = self.options.root_password.as_deref();
        match root {
            Some(password) => self.url_for(addresses, "root", Some(password)),
            None => self.url_for(addresses, "", None),
        }
    }

    /// A URL for any user.
    pub fn url_for(&self, addresses: &[SocketAddr], user: &str, password: Option<&str>) -> String {
        let scheme = if self.options.tls { "etcds" } else { "etcd" };
        let login = crate::login(user, password);
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("{scheme}://{login}{}", hosts.join(","))
    }

    /// The members, to be paused, killed and started again.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// The first member: the only one unless there are more.
    pub fn server(&self) -> &Server {
        &self.members[0]
    }

    /// The member that leads now.
    ///
    /// # Panics
    /// If there is none for long.
    pub fn leader(&self) -> &Server {
        wait::wait_until("a leader of etcd", SERVER_LIMIT, || {
            let running = self.members.iter().filter(|member| member.is_running());
            running.into_iter().find(|member| self.is_leader(member))
        })
    }

    /// The certificates of a server with TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// `etcdctl` with these arguments and all rights, on any member; gives what it printed.
    ///
    /// # Panics
    /// If it fails, with its words.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let root = self.options.root_password.as_ref();
        let login = root.map(|password| format!("root:{password}"));
        self.run(arguments, login.as_deref())
    }

    /// A user with these rights: `("readwrite", "app/")` for all keys that begin so. None:
    /// one who may log in and nothing else.
    ///
    /// # Panics
    /// If etcd refuses it.
    pub fn create_user(&self, name: &str, password: &str, rights: &[(&str, &str)]) {
        self.ctl(&["user", "add", &format!("{name}:{password}")]);
        self.ctl(&["role", "add", name]);
        for (right, prefix) in rights {
            self.ctl(&[
                "role",
                "grant-permission",
                "--prefix=true",
                name,
                right,
                prefix,
            ]);
        }
        self.ctl(&["user", "grant-role", name, name]);
    }

    fn run(&self, arguments: &[&str], login: Option<&str>) -> String {
        let members = self.members.iter().filter(|member| member.is_running());
        let endpoints: Vec<String> = members.map(|member| self.endpoint(member)).collect();
        let mut command = self.command(&endpoints.join(","), login);
        command.args(arguments);
        let output = command.output().unwrap_or_else(|e| panic!("etcdctl: {e}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    fn command(&self, endpoints: &str, login: Option<&str>) -> Command {
        let mut command = Command::new(&self.ctl);
        command.env("ETCDCTL_API", "3");
        command.arg(format!("--endpoints={endpoints}"));
        if let Some(login) = login {
            command.arg(format!("--user={login}"));
        }
        if let Some(certs) = &self.certs {
            command
                .arg(format!("--cacert={}", certs.ca().display()))
                .arg(format!("--cert={}", certs.client_cert().display()))
                .arg(format!("--key={}", certs.client_key().display()));
        }
        command
    }

    fn endpoint(&self, member: &Server) -> String {
        let scheme = if self.options.tls { "https" } else { "http" };
        format!("{scheme}://{}", member.address())
    }

    fn is_leader(&self, member: &Server) -> bool {
        let root = self.options.root_password.as_ref();
        let login = root.map(|password| format!("root:{password}"));
        let mut command = self.command(&self.endpoint(member), login.as_deref());
        let output = command.args(["endpoint", "status"]).output();
        // Address, id, version, size, leads, …
        output.is_ok_and(|output| {
            let line = String::from_utf8_lossy(&output.stdout).into_owned();
            line.split(", ").nth(4) == Some("true")
        })
    }
}

struct Member {
    folder: PathBuf,
    client: Port,
    peer: Port,
    health: Port,
}

impl Member {
    fn new(place: Place) -> Self {
        Self {
            folder: run::folder("etcd", place),
            client: Port::claim(),
            peer: Port::claim(),
            health: Port::claim(),
        }
    }

    fn name(&self) -> String {
        format!("m{}", self.client.number())
    }

    fn in_cluster(&self) -> String {
        format!("{}=http://{}", self.name(), self.peer.address())
    }

    fn begin(self, program: PathBuf, args: Vec<String>, wire: Wire) -> Result<Server, Failure> {
        let health = self.health.address();
        Server::begin(Spec {
            name: "etcd",
            program,
            args: args.into_iter().map(OsString::from).collect(),
            user: None,
            clock: None,
            folder: self.folder,
            ports: vec![self.client, self.peer, self.health],
            stop_signal: Signal::SIGTERM,
            wire,
            ready: Box::new(move || is_healthy(health)),
        })
    }
}

/// By HTTP on the port for metrics, which asks for no certificate and no user.
fn is_healthy(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains("\"health\":\"true\""))
    };
    ask().unwrap_or(false)
}
