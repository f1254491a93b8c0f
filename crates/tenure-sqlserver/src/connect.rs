//! Connections: how one is made, and what a batch on it needs.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use futures_util::io::{AsyncRead, AsyncWrite};
use tenure::Result;
use tiberius::{AuthMethod, Client, Config, EncryptionLevel, Row, ToSql};
use tokio::net::TcpStream;

use crate::failure::Place;
use crate::options::{Encrypt, SqlServerOptions};

/// How often a server may send us on to another address (Azure does, once).
const ROUTES_MAX: usize = 3;

/// Makes connections for a store: for those who log in in a way that a URL cannot say.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// Makes one. An error should say that nothing was sent ([`tenure::Error::unreachable`])
    /// or what has to be set ([`tenure::Error::misconfigured`]).
    async fn connect(&self) -> Result<Connection>;
}

/// One connection of tiberius, over whatever stream.
pub struct Connection {
    session: Box<dyn Session>,
    /// The socket, if it is ours, to see whether it was closed meanwhile.
    socket: Option<Arc<TcpStream>>,
}

#[async_trait]
trait Session: Send {
    async fn query(&mut self, batch: &str, parameters: &[&dyn ToSql])
    -> tiberius::Result<Vec<Row>>;

    async fn run(&mut self, batch: &str) -> tiberius::Result<()>;
}

#[async_trait]
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session for Client<S> {
    async fn query(
        &mut self,
        batch: &str,
        parameters: &[&dyn ToSql],
    ) -> tiberius::Result<Vec<Row>> {
        // To the end: what comes after the rows may be an error.
        let results = Client::query(self, batch, parameters).await?;
        let results = results.into_results().await?;
        Ok(results.into_iter().next_back().unwrap_or_default())
    }

    async fn run(&mut self, batch: &str) -> tiberius::Result<()> {
        self.simple_query(batch).await?.into_results().await?;
        Ok(())
    }
}

impl Connection {
    /// Uses this client. It must have no transaction open, and nobody else may use it.
    pub fn new<S>(client: Client<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self {
            session: Box::new(client),
            socket: None,
        }
    }

    /// One batch with its parameters, and the rows of its last result.
    pub(crate) async fn query(
        &mut self,
        batch: &str,
        parameters: &[&dyn ToSql],
    ) -> tiberius::Result<Vec<Row>> {
        self.session.query(batch, parameters).await
    }

    /// Statements without parameters, for setting up.
    pub(crate) async fn run(&mut self, batch: &str) -> tiberius::Result<()> {
        self.session.run(batch).await
    }

    /// Whether nothing has come in that nobody asked for: an end, a reset, a last word.
    /// Then nothing need be sent to find out.
    pub(crate) fn is_quiet(&self) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        let read = socket.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Makes connections as the options say.
pub(crate) struct Connector {
    options: SqlServerOptions,
    place: Arc<Place>,
}

impl Connector {
    pub(crate) fn new(options: &SqlServerOptions, place: Arc<Place>) -> Result<Self> {
        options.check()?;
        Ok(Self {
            options: options.clone(),
            place,
        })
    }

    fn config(&self, host: &str, port: u16) -> Config {
        let options = &self.options;
        let mut config = Config::new();
        config.host(host);
        config.port(port);
        config.application_name(&options.application_name);
        config.encryption(match options.encrypt {
            Encrypt::Strict => EncryptionLevel::Strict,
            Encrypt::On => EncryptionLevel::Required,
            Encrypt::Off => EncryptionLevel::NotSupported,
        });
        if let Some(database) = &options.database {
            config.database(database);
        }
        if let Some(user) = &options.user {
            let password = options.password.as_ref();
            let password = password.map_or("", |password| password.expose());
            config.authentication(AuthMethod::sql_server(user, password));
        }
        if options.trust_server_certificate {
            config.trust_cert();
        }
        if let Some(pem) = options.tls.authorities_pem() {
            config.trust_cert_ca_bundle(pem);
        }
        if let Some(name) = &options.certificate_name {
            config.hostname_in_certificate(name);
        }
        // Both are bounded here, by the pool: a limit of the driver's own would only blur
        // which one it was.
        config.handshake_timeout(None);
        config.command_timeout(None);
        config
    }
}

#[async_trait]
impl Connect for Connector {
    async fn connect(&self) -> Result<Connection> {
        let (mut host, mut port) = (self.options.host.clone(), self.options.port);
        for _ in 0..ROUTES_MAX {
            let stream = TcpStream::connect((host.as_str(), port)).await;
            let stream = stream.map_err(|error| self.place.unreachable(&error.to_string()))?;
            // A request is one write, and waits for nothing.
            let _ = stream.set_nodelay(true);
            let socket = Arc::new(stream);
            let wire = Wire(socket.clone());
            match Client::connect(self.config(&host, port), wire).await {
                Ok(client) => {
                    return Ok(Connection {
                        session: Box::new(client),
                        socket: Some(socket),
                    });
                }
                Err(tiberius::error::Error::Routing { host: to, port: at }) => {
                    (host, port) = (to, at);
                }
                Err(error) => return Err(self.place.of_connect(&error)),
            }
        }
        Err(self
            .place
            .unreachable("it sends us from one address to the next"))
    }
}

/// A socket that can be looked at while the driver has it.
struct Wire(Arc<TcpStream>);

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Dropping it closes it.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
