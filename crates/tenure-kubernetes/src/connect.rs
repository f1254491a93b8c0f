//! The client: given by the caller, or made from a kubeconfig or the pod's own account when
//! it is first used.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tenure::{Error, Result};

use crate::failure::deepest;

/// How long the API server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which nothing comes for so long is dead. A watch is begun anew before,
/// and all other requests have a shorter limit of their own.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the cluster and the credentials come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) in_cluster: bool,
}

/// The client, once it was made, and what it is a client of.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// For people.
    pub(crate) whose: String,
    /// The namespace of the context or of the pod.
    pub(crate) namespace: String,
}

/// Makes the client at the first call, and again after the server refused who we are.
pub(crate) struct Connector {
    source: Option<Source>,
    made: Mutex<Option<Connected>>,
    making: tokio::sync::Mutex<()>,
}

impl Connector {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source: Some(source),
            made: Mutex::new(None),
            making: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn given(client: Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        let connected = Connected {
            client,
            whose: "the Kubernetes API server".to_owned(),
            namespace,
        };
        Self {
            source: None,
            made: Mutex::new(Some(connected)),
            making: tokio::sync::Mutex::new(()),
        }
    }

    /// The client, made now if there is none.
    pub(crate) async fn get(&self) -> Result<Connected> {
        if let Some(connected) = self.made() {
            return Ok(connected);
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(connected) = self.made() {
            return Ok(connected);
        }
        let source = self.source.clone().unwrap_or_default();
        let config = source.config().await?;
        // A kubeconfig may name a program that fetches the credentials, and waits for it.
        let connected = tokio::task::spawn_blocking(move || connect(config)).await;
        let connected = connected.map_err(|error| {
            Error::unreachable(format!("the Kubernetes client could not be made: {error}"))
        })??;
        *self.lock() = Some(connected.clone());
        Ok(connected)
    }

    /// Gives the client up, so that the next call reads the credentials anew. One that the
    /// caller gave is the caller's to mend.
    pub(crate) fn forget(&self) {
        if self.source.is_some() {
            *self.lock() = None;
        }
    }

    fn made(&self) -> Option<Connected> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Connected>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Source {
    async fn config(&self) -> Result<Config> {
        let wrong = |error: &(dyn std::error::Error + 'static), hint: &str| {
            let reason = deepest(error);
            Error::misconfigured(format!("no way to a Kubernetes cluster: {reason}; {hint}"))
        };
        if self.in_cluster {
            return Config::incluster().map_err(|e| {
                wrong(
                    &e,
                    "in-cluster=on works inside a pod with a service account token",
                )
            });
        }
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        if let Some(path) = &self.kubeconfig {
            let hint = "check the file that kubeconfig= names, and its context";
            let file = Kubeconfig::read_from(path).map_err(|e| wrong(&e, hint))?;
            let config = Config::from_custom_kubeconfig(file, &options).await;
            return config.map_err(|e| wrong(&e, hint));
        }
        if self.context.is_some() {
            let config = Config::from_kubeconfig(&options).await;
            return config.map_err(|e| wrong(&e, "check the context in your kubeconfig"));
        }
        let config = Config::infer().await;
        config.map_err(|e| {
            wrong(
                &e,
                "set KUBECONFIG, name a file with kubeconfig=, or run in a pod with a service account token",
            )
        })
    }
}

fn connect(mut config: Config) -> Result<Connected> {
    // A lease write must not be sent again behind our back: what became of it is the
    // elector's to find out.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default();
    let whose = match url.port_u16() {
        Some(port) => format!("the Kubernetes API server at {host}:{port}"),
        None => format!("the Kubernetes API server at {host}"),
    };
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| {
        let reason = deepest(&error);
        Error::misconfigured(format!(
            "{whose} cannot be reached with this kubeconfig: {reason}"
        ))
    })?;
    Ok(Connected {
        client,
        whose,
        namespace,
    })
}
