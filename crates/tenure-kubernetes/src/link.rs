//! The requests: one HTTP request each, sent once, with an end.

use std::fmt;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use tenure::{Error, Result};

use crate::answer::Answer;
use crate::connect::{Connected, Connector};
use crate::failure::{self, Right};

/// An answer that is greater is none that we asked for.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Leases on one page of a list.
const PAGE: usize = 500;

/// The way to the Leases of one namespace.
pub(crate) struct Link {
    connector: Connector,
    namespace: Option<String>,
    timeout: Duration,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Map<String, Value>>,
    /// Where the next page begins.
    pub(crate) more: Option<String>,
}

impl Link {
    pub(crate) fn new(connector: Connector, namespace: Option<String>, timeout: Duration) -> Self {
        Self {
            connector,
            namespace,
            timeout,
        }
    }

    pub(crate) fn shown_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("(of the context)")
    }

    /// The namespace of the Leases, and the server's name for people.
    pub(crate) async fn place(&self) -> Result<(String, String)> {
        let connected = self.connector.get().await?;
        Ok((self.namespace_of(&connected), connected.whose))
    }

    /// The namespace of the context or of our own pod.
    pub(crate) async fn home(&self) -> Result<String> {
        Ok(self.connector.get().await?.namespace)
    }

    /// The Lease of this name.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Map<String, Value>>> {
        let path = format!("/{}", escaped(name));
        let answer = self.ask(Method::GET, &path, None, Right::leases("get"));
        let answer = answer.await?;
        match answer.status {
            StatusCode::NOT_FOUND if answer.about() == Some("leases") => Ok(None),
            _ => self.object(answer, Right::leases("get")).await.map(Some),
        }
    }

    /// Creates this Lease; none if there is one already.
    pub(crate) async fn create(
        &self,
        object: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>> {
        let right = Right::leases("create");
        let answer = self.ask(Method::POST, "", Some(object), right).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(None),
            _ => self.object(answer, right).await.map(Some),
        }
    }

    /// Replaces this Lease, which carries its resourceVersion and its uid; none if it is not
    /// that state any more, or not that object.
    pub(crate) async fn replace(
        &self,
        name: &str,
        object: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>> {
        let right = Right::leases("update");
        let path = format!("/{}", escaped(name));
        let answer = self.ask(Method::PUT, &path, Some(object), right).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(None),
            StatusCode::NOT_FOUND if answer.about() == Some("leases") => Ok(None),
            _ => self.object(answer, right).await.map(Some),
        }
    }

    /// A page of the Leases of the namespace.
    pub(crate) async fn list(&self, from: Option<&str>) -> Result<Page> {
        let right = Right::leases("list");
        let mut path = format!("?limit={PAGE}");
        if let Some(from) = from {
            path.push_str("&continue=");
            path.push_str(&escaped(from));
        }
        let answer = self.ask(Method::GET, &path, None, right).await?;
        let mut page = self.object(answer, right).await?;
        let more = page.get("metadata").and_then(|meta| meta.get("continue"));
        let more = more.and_then(Value::as_str).filter(|more| !more.is_empty());
        let more = more.map(str::to_owned);
        let items = match page.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let objects = items.into_iter().filter_map(|item| match item {
            Value::Object(object) => Some(object),
            _ => None,
        });
        Ok(Page {
            objects: objects.collect(),
            more,
        })
    }

    /// The stream of changes of one Lease: first what there is, then each change.
    pub(crate) async fn watch(&self, name: &str) -> Result<Response<Body>> {
        let right = Right::leases("watch");
        let selector = escaped(&format!("metadata.name={name}"));
        let path = format!("?watch=true&resourceVersion=0&fieldSelector={selector}");
        let connected = self.connector.get().await?;
        let path = self.leases(&connected, &path);
        let response = self.bounded(right, &connected, async {
            let request = request(Method::GET, path, None, "application/json")?;
            self.sent(&connected, right, request).await
        });
        let response = response.await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let answer = self.bounded(right, &connected, self.whole(&connected, right, response));
        Err(self.refused(&answer.await?, right, &connected))
    }

    /// Any other request, of which only the status counts.
    pub(crate) async fn other(
        &self,
        method: Method,
        path: String,
        body: &Value,
        content: &'static str,
        right: Right,
    ) -> Result<()> {
        let connected = self.connector.get().await?;
        let answer = self.bounded(right, &connected, async {
            let body = body.to_string().into_bytes();
            let request = request(method, path, Some(body), content)?;
            let response = self.sent(&connected, right, request).await?;
            self.whole(&connected, right, response).await
        });
        let answer = answer.await?;
        match answer.is_success() {
            true => Ok(()),
            false => Err(self.refused(&answer, right, &connected)),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        object: Option<&Map<String, Value>>,
        right: Right,
    ) -> Result<Answer> {
        let connected = self.connector.get().await?;
        let path = self.leases(&connected, path);
        self.bounded(right, &connected, async {
            let body = object.map(serde_json::to_vec).transpose();
            let body = body.map_err(|e| Error::invalid(format!("no JSON of a Lease: {e}")))?;
            let request = request(method, path, body, "application/json")?;
            let response = self.sent(&connected, right, request).await?;
            self.whole(&connected, right, response).await
        })
        .await
    }

    /// The object of an answer that must be a success.
    async fn object(&self, answer: Answer, right: Right) -> Result<Map<String, Value>> {
        if answer.is_success() && !answer.body.is_empty() {
            return Ok(answer.body);
        }
        let connected = self.connector.get().await?;
        if answer.is_success() {
            let whose = &connected.whose;
            let text = format!("{whose} gave an answer that is no JSON");
            return Err(failure::unknown(right, text));
        }
        Err(self.refused(&answer, right, &connected))
    }

    fn refused(&self, answer: &Answer, right: Right, connected: &Connected) -> Error {
        if answer.status == StatusCode::UNAUTHORIZED {
            // Perhaps there is a newer token by now.
            self.connector.forget();
        }
        let namespace = self.namespace_of(connected);
        failure::refused(answer, right, &connected.whose, &namespace)
    }

    async fn sent(
        &self,
        connected: &Connected,
        right: Right,
        request: Request<Body>,
    ) -> Result<Response<Body>> {
        let response = connected.client.send(request).await;
        response.map_err(|error| {
            if failure::is_client_gone(&error) {
                self.connector.forget();
                return Error::unreachable(
                    "the runtime on which the Kubernetes client was made has ended: nothing was sent, try again",
                );
            }
            failure::no_answer(&error, right, &connected.whose)
        })
    }

    async fn whole(
        &self,
        connected: &Connected,
        right: Right,
        response: Response<Body>,
    ) -> Result<Answer> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            let whose = &connected.whose;
            failure::unknown(right, format!("{whose} broke off its answer: {error}"))
        })?;
        Ok(Answer::new(parts.status, &parts.headers, &body.to_bytes()))
    }

    /// The connection of a request that is given up is closed: an answer that comes late
    /// cannot be taken for another's.
    async fn bounded<T>(
        &self,
        right: Right,
        connected: &Connected,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                let (whose, after) = (&connected.whose, self.timeout);
                let text = format!("{whose} gave no answer within {after:?}");
                Err(failure::unknown(right, text))
            }
        }
    }

    fn namespace_of(&self, connected: &Connected) -> String {
        let namespace = self.namespace.as_ref();
        namespace.unwrap_or(&connected.namespace).clone()
    }

    fn leases(&self, connected: &Connected, rest: &str) -> String {
        let namespace = escaped(&self.namespace_of(connected));
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{rest}")
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connector", &self.connector)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// As part of a path or a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn request(
    method: Method,
    path: String,
    body: Option<Vec<u8>>,
    content: &'static str,
) -> Result<Request<Body>> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json");
    let request = match body {
        Some(body) => request
            .header(header::CONTENT_TYPE, content)
            .body(Body::from(body)),
        None => request.body(Body::empty()),
    };
    request
        .map_err(|e| Error::invalid(format!("no request to Kubernetes can be made of this: {e}")))
}
