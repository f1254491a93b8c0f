//! Where a server is: a host and a port, or a folder with its socket.

use std::fmt;
use std::path::PathBuf;

/// The port of PostgreSQL.
const PORT: u16 = 5432;

/// One address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// The folder with the server's Unix socket, and the port that is part of its name.
    Unix(PathBuf, u16),
}

impl Server {
    /// A path is a folder with a socket, anything else a name or an address.
    pub fn new(host: impl Into<String>, port: Option<u16>) -> Self {
        let (host, port) = (host.into(), port.unwrap_or(PORT));
        match host.starts_with('/') {
            true => Self::Unix(host.into(), port),
            false => Self::Tcp(host, port),
        }
    }

    pub(crate) fn of_url(host: &tenure_net::Host) -> Self {
        Self::Tcp(host.name.clone(), host.port.unwrap_or(PORT))
    }

    pub(crate) fn add_to(&self, config: &mut tokio_postgres::Config) {
        match self {
            Self::Tcp(name, port) => config.host(name).port(*port),
            Self::Unix(folder, port) => config.host_path(folder).port(*port),
        };
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp(name, port) => write!(f, "{name}:{port}"),
            Self::Unix(folder, port) => write!(f, "{}/.s.PGSQL.{port}", folder.display()),
        }
    }
}
