//! Connections: how they are made, and a pool of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolConfig, QueueMode, RecyclingMethod, Runtime,
    Timeouts,
};
use tenure::{Error, Result};
use tokio_postgres::config::{ChannelBinding as PgBinding, SslMode as PgSslMode};
use tokio_postgres::config::{Config, TargetSessionAttrs};
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::direct::is_direct;
use crate::hosts::Server;
use crate::options::{ChannelBinding, PostgresOptions, SslMode};

/// A connection that was silent for so long is asked whether it still lives.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;
/// What was sent and not acknowledged for so long will not be.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// Makes connections as the options say.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    timeout: Duration,
}

/// A connection's other half, which has to be driven.
pub(crate) type Driven = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// Either kind of the other half.
pub(crate) enum Other {
    Tls(Box<Driven>),
    Plain(
        Box<tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>>,
    ),
}

impl Connector {
    pub(crate) fn new(options: &PostgresOptions, servers: &[Server]) -> Result<Self> {
        if servers.is_empty() {
            return Err(Error::invalid(
                "no server is named: give at least one to PostgresOptions::new",
            ));
        }
        let (mode, verify) = options.security();
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(MakeRustlsConnect::new(options.tls.client_config(verify)?)),
        };
        let mut config = Config::new();
        for server in servers {
            server.add_to(&mut config);
        }
        if let Some(user) = &options.user {
            config.user(user);
        }
        if let Some(password) = &options.password {
            config.password(password.expose());
        }
        if let Some(database) = &options.database {
            config.dbname(database);
        }
        let writable = options.writable.unwrap_or(servers.len() > 1);
        config
            .application_name(&options.application_name)
            .ssl_mode(match mode {
                SslMode::Disable => PgSslMode::Disable,
                SslMode::Prefer => PgSslMode::Prefer,
                _ => PgSslMode::Require,
            })
            .channel_binding(match options.channel_binding {
                ChannelBinding::Disable => PgBinding::Disable,
                ChannelBinding::Prefer => PgBinding::Prefer,
                ChannelBinding::Require => PgBinding::Require,
            })
            .target_session_attrs(match writable {
                true => TargetSessionAttrs::ReadWrite,
                false => TargetSessionAttrs::Any,
            })
            .connect_timeout(options.connect_timeout)
            .tcp_user_timeout(UNACKNOWLEDGED_MAX)
            .keepalives_idle(KEEPALIVE_AFTER)
            .keepalives_interval(KEEPALIVE_EVERY)
            .keepalives_retries(KEEPALIVE_COUNT);
        // A Unix socket has no TLS, and libpq does not ask for it there either.
        if servers.iter().all(|s| matches!(s, Server::Unix(..))) {
            config.ssl_mode(PgSslMode::Disable);
        }
        let timeout = options.connect_timeout;
        Ok(Self {
            config,
            tls,
            timeout,
        })
    }

    /// A pool that makes connections when they are needed. With `prepare` each is asked
    /// whether it leads straight to the server; one that does not switches it off.
    pub(crate) fn pool(
        &self,
        connections_max: usize,
        prepare: Option<Arc<AtomicBool>>,
    ) -> Result<Pool> {
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = match self.tls.clone() {
            Some(tls) => Manager::from_config(self.config.clone(), tls, recycling),
            None => Manager::from_config(self.config.clone(), NoTls, recycling),
        };
        let mut settings = PoolConfig::new(connections_max);
        settings.timeouts = Timeouts {
            wait: Some(self.timeout),
            // Several addresses may have to be tried.
            create: Some(self.timeout * 4),
            recycle: Some(self.timeout),
        };
        // The one that was used last is the one that surely lives.
        settings.queue_mode = QueueMode::Lifo;
        let mut builder = Pool::builder(manager)
            .config(settings)
            .runtime(Runtime::Tokio1);
        if let Some(prepare) = prepare {
            builder = builder.post_create(Hook::async_fn(move |client, _| {
                let prepare = prepare.clone();
                Box::pin(async move {
                    let direct = is_direct(client).await.map_err(HookError::Backend)?;
                    if !direct && prepare.swap(false, Ordering::AcqRel) {
                        tracing::debug!("a pooler is in between: statements are not prepared");
                    }
                    Ok(())
                })
            }));
        }
        builder
            .build()
            .map_err(|error| Error::invalid(format!("the pool cannot be made: {error}")))
    }

    /// One connection of its own. Nothing if it took too long.
    pub(crate) async fn connect(
        &self,
    ) -> Option<std::result::Result<(Client, Other), tokio_postgres::Error>> {
        let connecting = async {
            match self.tls.clone() {
                Some(tls) => {
                    let (client, other) = self.config.connect(tls).await?;
                    Ok((client, Other::Tls(Box::new(other))))
                }
                None => {
                    let (client, other) = self.config.connect(NoTls).await?;
                    Ok((client, Other::Plain(Box::new(other))))
                }
            }
        };
        tokio::time::timeout(self.timeout * 4, connecting)
            .await
            .ok()
    }
}
