//! The HTTP client below the client crate: hyper with rustls. It sends a request once.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::ClientConfig;

use crate::exchange::Notes;

/// Makes the HTTP clients of an object store: give it to `with_http_connector` of a store
/// that you build yourself, and leases see the service's clock.
#[derive(Clone)]
pub struct Connector {
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    request_timeout: Duration,
}

struct Service {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    request_timeout: Duration,
}

/// A connection that nobody used for so long is not used again: services close theirs
/// after some twenty seconds.
const IDLE_MAX: Duration = Duration::from_secs(18);
const IDLE_CONNECTIONS_MAX: usize = 4;

impl Connector {
    /// With this TLS. A request that has no answer after `request_timeout` is given up.
    pub fn new(tls: ClientConfig, connect_timeout: Duration, request_timeout: Duration) -> Self {
        Self {
            tls: Arc::new(tls),
            connect_timeout,
            request_timeout,
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.connect_timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.as_ref().clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // One request at a time on a connection: one that is given up closes its own.
        // What hyper does again by itself is what it did not begin to send.
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(https);
        Ok(HttpClient::new(Service {
            client,
            request_timeout: self.request_timeout,
        }))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let notes = Notes::begin(request.uri().path());
        let answer = tokio::time::timeout(self.request_timeout, self.client.request(request));
        let response = match answer.await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                if error.is_connect() {
                    notes.not_sent();
                    return Err(failure(HttpErrorKind::Connect, &error));
                }
                return Err(failure(HttpErrorKind::Unknown, &error));
            }
            Err(late) => return Err(HttpError::new(HttpErrorKind::Timeout, late)),
        };
        notes.answered(response.status(), response.headers());
        let (parts, body) = response.into_parts();
        let body = body.map_err(|error| failure(HttpErrorKind::Unknown, &error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// The error and its causes in one line: the client crate shows only the first.
fn failure(kind: HttpErrorKind, error: &dyn StdError) -> HttpError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    HttpError::new_boxed(kind, text.into())
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
