//! PostgreSQL: one server, a streaming standby, and SQL by hand.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};

use crate::certs::Certs;
use crate::clock::ClockFault;
use crate::pgbouncer::PgBouncer;
use crate::ports::Port;
use crate::program::Kind;
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

pub(crate) const KIND: Kind = Kind {
    name: "PostgreSQL",
    variable: "TENURE_TEST_POSTGRES_URL",
    packages: "postgresql",
};

/// A private PostgreSQL server. Its superuser is `postgres`, its database `postgres`.
///
/// See [`Server`] for what can be done to it.
#[derive(Clone, Debug)]
pub struct Postgres {
    server: Server,
    programs: Programs,
    options: PostgresOptions,
    certs: Option<Certs>,
}

/// How a PostgreSQL server is set up.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PostgresOptions {
    password: Option<String>,
    tls: bool,
    client_certificate: bool,
    durable: bool,
    clock: Option<ClockFault>,
    settings: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
struct Programs {
    postgres: PathBuf,
    initdb: PathBuf,
    psql: PathBuf,
    basebackup: PathBuf,
}

impl PostgresOptions {
    /// No password, no TLS, data that survives a kill of the server but not of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clients must name this password (SCRAM), also the superuser.
    pub fn password(self, password: impl Into<String>) -> Self {
        Self {
            password: Some(password.into()),
            ..self
        }
    }

    /// Only connections with TLS are let in; see [`Postgres::certs`].
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

    /// Every commit is on the disk before it is answered, as in production.
    pub fn durable(self) -> Self {
        Self {
            durable: true,
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

    /// A line of `postgresql.conf`; the value is quoted for you.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and waits until it answers. `None` if this machine has none,
    /// which is then said (and is a failure with `CI=true`).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start(self) -> Option<Postgres> {
        let programs = Programs::find()?;
        if self.clock.is_some() && !ClockFault::is_available() {
            return None;
        }
        let template = template(&programs);
        let postgres = begin_on_free_port(|| {
            let folder = run::folder("pg", Place::Disk);
            copy(&template, &folder.join("data"));
            self.begin(&programs, folder)
        });
        if let Some(password) = &self.password {
            let password = password.replace('\'', "''");
            postgres.sql(&format!("ALTER ROLE postgres PASSWORD '{password}'"));
        }
        Some(postgres)
    }

    fn begin(&self, programs: &Programs, folder: PathBuf) -> Result<Postgres, Failure> {
        let user = user();
        let certs = self.tls.then(|| {
            let certs = Certs::write(&folder.join("certs"), "postgres");
            certs.give_to(user);
            certs
        });
        let port = Port::claim();
        let data = folder.join("data");
        save(&data.join("pg_hba.conf"), &self.host_based_access());
        save(
            &data.join("testbed.conf"),
            &self.configuration(&port, &folder, certs.as_ref()),
        );
        let address = port.address();
        own(&folder, user);
        let server = Server::begin(Spec {
            name: "postgres",
            program: programs.postgres.clone(),
            args: vec![OsString::from("-D"), data.into_os_string()],
            user,
            clock: self.clock.clone(),
            folder,
            ports: vec![port],
            stop_signal: Signal::SIGINT,
            wire: if self.tls { Wire::Raw } else { Wire::Postgres },
            ready: Box::new(move || is_ready(address)),
        })?;
        Ok(Postgres {
            server,
            programs: programs.clone(),
            options: self.clone(),
            certs,
        })
    }

    fn host_based_access(&self) -> String {
        let kind = if self.tls { "hostssl" } else { "host" };
        let method = match self.password {
            Some(_) => "scram-sha-256",
            None => "trust",
        };
        let certificate = match self.client_certificate {
            true => " clientcert=verify-ca",
            false => "",
        };
        // Over the socket in the server's own folder come only the testbed's own commands.
        format!(
            "local all all trust\n\
             local replication all trust\n\
             {kind} all all 127.0.0.1/32 {method}{certificate}\n"
        )
    }

    fn configuration(&self, port: &Port, folder: &Path, certs: Option<&Certs>) -> String {
        let durable = if self.durable { "on" } else { "off" };
        let mut lines = vec![
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", port.number().to_string()),
            ("unix_socket_directories", folder.display().to_string()),
            ("fsync", durable.to_owned()),
            ("full_page_writes", durable.to_owned()),
            ("max_connections", "200".to_owned()),
            ("shared_buffers", "32MB".to_owned()),
            ("wal_level", "replica".to_owned()),
            ("wal_keep_size", "16MB".to_owned()),
            ("log_line_prefix", "%m [%p] %u@%d ".to_owned()),
            ("timezone", "UTC".to_owned()),
        ];
        if let Some(certs) = certs {
            let path = |path: PathBuf| path.display().to_string();
            lines.push(("ssl", "on".to_owned()));
            lines.push(("ssl_cert_file", path(certs.server_cert())));
            lines.push(("ssl_key_file", path(certs.server_key())));
            lines.push(("ssl_ca_file", path(certs.ca())));
        }
        let more = self.settings.iter();
        lines.extend(more.map(|(name, value)| (name.as_str(), value.clone())));
        let mut text = String::new();
        for (name, value) in lines {
            let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
        }
        text
    }
}

impl Postgres {
    /// A server of the caller's own. `None` if this machine has none, which is then said.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn start() -> Option<Self> {
        PostgresOptions::new().start()
    }

    /// One server for all tests of this process, private all the same: do not break it.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The URL of the server for tests that break nothing: the user's own if
    /// `TENURE_TEST_POSTGRES_URL` names one, else of [`shared`](Self::shared).
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn shared_url() -> Option<String> {
        KIND.own_url().or_else(|| Some(Self::shared()?.url()))
    }

    /// The URL as the superuser, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same URL at another address: of a [`Proxy`](crate::Proxy) or a pooler.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let password = self.options.password.as_deref();
        Self::url_for(address, "postgres", password, "postgres")
    }

    /// A URL for any user and database.
    pub fn url_for(
        address: SocketAddr,
        user: &str,
        password: Option<&str>,
        database: &str,
    ) -> String {
        let login = crate::login(user, password);
        format!("postgres://{login}{address}/{database}")
    }

    /// The certificates of a server with TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// Runs SQL as the superuser, over the server's own socket, and gives what it printed:
    /// columns divided by `|`, rows by line.
    ///
    /// # Panics
    /// If the server refuses it, with its words.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in("postgres", sql)
    }

    /// The same in another database.
    ///
    /// # Panics
    /// If the server refuses it, with its words.
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(&self.programs.psql);
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", "postgres", "-d", database])
            .arg("-h")
            .arg(self.folder())
            .args(["-p", &self.port().to_string(), "-c", sql]);
        let output = command.output().unwrap_or_else(|e| panic!("psql: {e}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error} for: {sql}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// A user who may log in and nothing else.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn create_user(&self, name: &str, password: Option<&str>) {
        let password = password.unwrap_or_default().replace('\'', "''");
        self.sql(&format!(
            "CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'"
        ));
    }

    /// An empty database.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn create_database(&self, name: &str) {
        self.sql(&format!("CREATE DATABASE \"{name}\""));
    }

    /// PgBouncer in transaction mode before this server, for the users that it has now.
    /// `None` if this machine has no PgBouncer, which is then said.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn pgbouncer(&self) -> Option<PgBouncer> {
        self.pgbouncer_with(&[])
    }

    /// The same with settings of `pgbouncer.ini`: `[("default_pool_size", "1")]`.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn pgbouncer_with(&self, settings: &[(&str, &str)]) -> Option<PgBouncer> {
        PgBouncer::begin(self, settings)
    }

    pub(crate) fn has_password(&self) -> bool {
        self.options.password.is_some()
    }

    /// A streaming standby of this server: everything of it, but read-only.
    ///
    /// # Panics
    /// If it does not start, with the end of its log.
    pub fn standby(&self) -> Self {
        begin_on_free_port(|| {
            let folder = run::folder("pg-standby", Place::Disk);
            own(&folder, user());
            let data = folder.join("data");
            let mut command = as_user(&self.programs.basebackup, &folder);
            command
                .args(["-U", "postgres", "-c", "fast", "-X", "stream", "-R", "-N"])
                .arg("-h")
                .arg(self.folder())
                .args(["-p", &self.port().to_string()])
                .arg("-D")
                .arg(&data);
            done(&mut command);
            // The password came with the data.
            self.options.begin(&self.programs, folder)
        })
    }
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Programs {
    fn find() -> Option<Self> {
        let found = KIND.need(&["postgres", "initdb", "psql", "pg_basebackup"])?;
        let [postgres, initdb, psql, basebackup] = found.try_into().ok()?;
        Some(Self {
            postgres,
            initdb,
            psql,
            basebackup,
        })
    }
}

/// PostgreSQL refuses to run as root: then as its own user, or as nobody.
pub(crate) fn user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let mut names = ["postgres", "nobody"].into_iter();
    let user = names.find_map(|name| User::from_name(name).ok().flatten());
    let user = user.unwrap_or_else(|| panic!("no user but root to run PostgreSQL as"));
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// An empty cluster, made once for this user and version, copied for every server: a
/// copy takes a tenth of the time.
fn template(programs: &Programs) -> PathBuf {
    let version = Command::new(&programs.postgres).arg("--version").output();
    let version = version.unwrap_or_else(|e| panic!("postgres: {e}"));
    let version = String::from_utf8_lossy(&version.stdout);
    let version = version.split_whitespace().nth(2).unwrap_or("unknown");
    let owner = user().map_or(0, |(uid, _)| uid);
    let path = run::base().join(format!("template-1-pg-{version}-{owner}"));
    let _lock = run::lock("template.lock");
    if path.is_dir() {
        return path;
    }
    let work = run::folder("initdb", Place::Disk);
    own(&work, user());
    let data = work.join("data");
    let mut command = as_user(&programs.initdb, &work);
    command
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"])
        .args(["--no-sync", "--wal-segsize=1", "-D"])
        .arg(&data);
    done(&mut command);
    let config = data.join("postgresql.conf");
    let opened = File::options().append(true).open(&config);
    let written = opened.and_then(|mut file| file.write_all(b"\ninclude 'testbed.conf'\n"));
    written.unwrap_or_else(|e| panic!("{}: {e}", config.display()));
    fs::rename(&data, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

fn copy(from: &Path, to: &Path) {
    done(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// The folder and what lies directly in it and in its data belongs to the server's user.
fn own(folder: &Path, user: Option<(u32, u32)>) {
    let Some((uid, gid)) = user else { return };
    let files = ["", "data/pg_hba.conf", "data/testbed.conf", "certs"];
    for path in files.map(|name| folder.join(name)) {
        if path.exists() {
            chown(&path, Some(uid), Some(gid))
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

fn as_user(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C.UTF-8");
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    command
}

fn done(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program()));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

fn save(path: &Path, text: &str) {
    let saved = fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600)));
    saved.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Whether it answers a first message with anything but "starting up" (SQLSTATE 57P03).
pub(crate) fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut message = vec![0, 0, 0, 0, 0, 3, 0, 0];
        message.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        message[3] = u8::try_from(message.len()).unwrap_or(0);
        stream.write_all(&message)?;
        let mut answer = [0; 512];
        let length = stream.read(&mut answer)?;
        let answer = &answer[..length];
        let starting = answer.windows(6).any(|window| window == b"C57P03");
        Ok(!answer.is_empty() && !starting)
    };
    ask().unwrap_or(false)
}
