//! PgBouncer in transaction mode before a PostgreSQL server.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::chown;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::ports::Port;
use crate::postgres::{Postgres, is_ready, user};
use crate::program::Kind;
use crate::run::{self, Place};
use crate::server::{Failure, Server, Spec, begin_on_free_port};
use crate::wire::Wire;

const KIND: Kind = Kind {
    packages: "pgbouncer",
    ..crate::postgres::KIND
};

/// A private PgBouncer in transaction mode: two statements of one client may run in two
/// sessions of the server.
///
/// See [`Server`] for what can be done to it.
#[derive(Clone, Debug)]
pub struct PgBouncer {
    server: Server,
    postgres: Postgres,
}

impl PgBouncer {
    /// The URL as the superuser, through the pooler.
    pub fn url(&self) -> String {
        self.postgres.url_at(self.address())
    }

    pub(crate) fn begin(postgres: &Postgres, settings: &[(&str, &str)]) -> Option<Self> {
        let [program] = KIND.need(&["pgbouncer"])?.try_into().ok()?;
        Some(begin_on_free_port(|| {
            let server = begin_once(&program, postgres, settings)?;
            Ok(Self {
                server,
                postgres: postgres.clone(),
            })
        }))
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn begin_once(
    program: &Path,
    postgres: &Postgres,
    settings: &[(&str, &str)],
) -> Result<Server, Failure> {
    let port = Port::claim();
    let address = port.address();
    let folder = run::folder("pgbouncer", Place::Disk);
    let config = folder.join("pgbouncer.ini");
    let users = folder.join("users");
    write(&users, &login_list(postgres));
    write(&config, &configuration(&port, &users, postgres, settings));
    if let Some((uid, gid)) = user() {
        for path in [&folder, &config, &users] {
            chown(path, Some(uid), Some(gid)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
    Server::begin(Spec {
        name: "pgbouncer",
        program: program.to_path_buf(),
        args: vec![OsString::from(config)],
        user: user(),
        clock: None,
        folder,
        ports: vec![port],
        stop_signal: Signal::SIGTERM,
        wire: Wire::Postgres,
        ready: Box::new(move || is_ready(address)),
    })
}

fn configuration(
    port: &Port,
    users: &Path,
    postgres: &Postgres,
    settings: &[(&str, &str)],
) -> String {
    let method = match postgres.has_password() {
        true => "scram-sha-256",
        false => "trust",
    };
    let mut text = format!(
        "[databases]\n\
         * = host=127.0.0.1 port={}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {}\n\
         unix_socket_dir =\n\
         auth_type = {method}\n\
         auth_file = {}\n\
         pool_mode = transaction\n\
         max_client_conn = 500\n\
         ignore_startup_parameters = extra_float_digits\n",
        postgres.port(),
        port.number(),
        users.display(),
    );
    for (name, value) in settings {
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

/// Every user of the server with the secret that the server keeps of the password, which
/// PgBouncer can log in with too.
fn login_list(postgres: &Postgres) -> String {
    let rows = postgres.sql("SELECT rolname, rolpassword FROM pg_authid WHERE rolcanlogin");
    let mut text = String::new();
    for row in rows.lines() {
        let (name, secret) = row.split_once('|').unwrap_or((row, ""));
        let _ = writeln!(text, "\"{name}\" \"{secret}\"");
    }
    text
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
