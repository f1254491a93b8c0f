//! How a connection is made: TCP, TLS, the log-in; before any lease call is sent.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tenure::{Error, Result};
use tenure_net::Secret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::failure::{self, Place};

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub host: String,
    pub port: u16,
}

/// Who logs in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub user: Option<String>,
    pub password: Option<Secret>,
}

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector {
    pub login: Login,
    pub database: i64,
    pub tls: Option<Arc<ClientConfig>>,
    /// How long making a connection may take in all.
    pub timeout: Duration,
    /// Whether the next connection may lead to another server.
    pub moves: bool,
}

/// A connection that many calls share. The last one to let go of it closes it.
pub(crate) struct Line {
    pub server: Server,
    connection: MultiplexedConnection,
    driver: AbortHandle,
}

/// More lines, or longer ones, are no answer of Redis.
const LINE_BYTES_MAX: usize = 4096;

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

impl Connector {
    /// A connection for calls.
    pub(crate) async fn line(&self, server: &Server) -> Result<Line> {
        let stream = self.greeted(server).await?;
        // No time limit: the caller has one, and drops the call.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        // The log-in is done; the driver has nothing to send of its own.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| {
                Error::unreachable(format!("Redis at {server} cannot be used ({error})"))
            })?;
        Ok(Line {
            server: server.clone(),
            connection,
            driver: tokio::spawn(driver).abort_handle(),
        })
    }

    /// A connection for what is pushed.
    pub(crate) async fn pushes(&self, server: &Server) -> Result<PubSub> {
        let stream = self.greeted(server).await?;
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        PubSub::new(&info, stream).await.map_err(|error| {
            Error::unreachable(format!("Redis at {server} cannot be used ({error})"))
        })
    }

    async fn greeted(&self, server: &Server) -> Result<Pin<Box<dyn Stream>>> {
        let name = server.to_string();
        let place = Place {
            server: &name,
            moves: self.moves,
        };
        let connecting = async {
            let mut stream = self
                .stream(server)
                .await
                .map_err(|error| failure::of_connecting(place, &error))?;
            self.greet(place, &mut stream).await?;
            Ok(stream)
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(done) => done,
            Err(_) => {
                // One that does not speak TLS may wait for the rest of a line for ever.
                let tls = self.tls.as_ref().map_or("", |_| " and speaks TLS");
                Err(Error::unreachable(format!(
                    "Redis at {name} cannot be reached within {:?}: see that it runs{tls}, or raise connect-timeout",
                    self.timeout
                )))
            }
        }
    }

    async fn stream(&self, server: &Server) -> io::Result<Pin<Box<dyn Stream>>> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return Ok(Box::pin(stream));
        };
        let name = ServerName::try_from(server.host.clone())
            .map_err(|_| io::Error::other("its name cannot be in a certificate"))?;
        let connector = TlsConnector::from(config.clone());
        Ok(Box::pin(connector.connect(name, stream).await?))
    }

    /// Logs in by hand, since the driver takes every refusal for a wrong password. The
    /// PING at the end shows that the server takes calls at all, so that what fails here
    /// has surely not run.
    async fn greet(&self, place: Place<'_>, stream: &mut Pin<Box<dyn Stream>>) -> Result<()> {
        let mut asked = Vec::new();
        let mut count = 1;
        if let Some(password) = &self.login.password {
            let mut command = redis::cmd("AUTH");
            if let Some(user) = &self.login.user {
                command.arg(user);
            }
            asked.extend(command.arg(password.expose()).get_packed_command());
            count += 1;
        }
        if self.database != 0 {
            let mut command = redis::cmd("SELECT");
            asked.extend(command.arg(self.database).get_packed_command());
            count += 1;
        }
        asked.extend(redis::cmd("PING").get_packed_command());
        let failed = |error: io::Error| failure::of_connecting(place, &error);
        stream.write_all(&asked).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        for _ in 0..count {
            let line = line(stream).await.map_err(failed)?;
            let Some(error) = line.strip_prefix('-') else {
                continue;
            };
            let (code, detail) = error.split_once(' ').unwrap_or((error, ""));
            // Whoever may not PING is in all the same.
            if code != "NOPERM" || !detail.to_ascii_lowercase().contains("ping") {
                return Err(failure::of_greeting(place, code, detail));
            }
        }
        Ok(())
    }
}

/// One line of an answer. Nothing follows the last one, so nothing is read ahead.
async fn line(stream: &mut Pin<Box<dyn Stream>>) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            b'\r' => {}
            byte => line.push(byte),
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("it does not speak as Redis does"));
        }
    }
    match line.first() {
        Some(b'+' | b'-') => Ok(String::from_utf8_lossy(&line).into_owned()),
        _ => Err(io::Error::other("it does not speak as Redis does")),
    }
}

impl Line {
    /// Whether the driver has ended, which it does when the server closes the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Sends one command and waits for its answer. What the driver has sent stays in
    /// order even if this is dropped, but whoever drops it does not use the line again.
    pub(crate) async fn send(&self, command: &Cmd) -> redis::RedisResult<redis::Value> {
        self.connection.clone().send_packed_command(command).await
    }

    /// Sends these commands at once, with nothing in between.
    pub(crate) async fn send_all(
        &self,
        commands: &redis::Pipeline,
    ) -> redis::RedisResult<Vec<redis::Value>> {
        let mut connection = self.connection.clone();
        connection
            .send_packed_commands(commands, 0, commands.len())
            .await
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It would wait for answers that nobody waits for.
        self.driver.abort();
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({})", self.server)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("login", &self.login)
            .field("database", &self.database)
            .field("tls", &self.tls.is_some())
            .field("timeout", &self.timeout)
            .finish()
    }
}
