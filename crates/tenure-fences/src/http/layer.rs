//! The tower layer and its service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tenure::Token;
use tower_layer::Layer;
use tower_service::Service;

use super::gate::HttpFence;
use super::{HEADER, problem};
use crate::error::{FenceError, Result};
use crate::token::{read_token, shown};

type ResourceOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Puts a fence in front of a service: see [`HttpFence::layer`].
#[derive(Clone)]
pub struct FenceLayer {
    fence: HttpFence,
    resource: ResourceOf,
}

/// A service behind a fence.
#[derive(Clone)]
pub struct Fenced<S> {
    layer: FenceLayer,
    inner: S,
}

impl FenceLayer {
    pub(crate) fn new(fence: HttpFence, resource: ResourceOf) -> Self {
        Self { fence, resource }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        let layer = self.clone();
        Fenced { layer, inner }
    }
}

impl<S, In, Out> Service<Request<In>> for Fenced<S>
where
    S: Service<Request<In>, Response = Response<Out>> + Clone + Send + 'static,
    S::Future: Send,
    In: Send + 'static,
    Out: From<String>,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Out>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        // The one that said that it is ready takes the request; its clone stays here.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let fence = self.layer.fence.clone();
        let (parts, body) = request.into_parts();
        let Some(resource) = (self.layer.resource)(&parts) else {
            return Box::pin(inner.call(Request::from_parts(parts, body)));
        };
        Box::pin(async move {
            let passed = match token(&parts.headers) {
                Ok(token) => fence.pass(&resource, token).await,
                Err(error) => Err(error.into()),
            };
            match passed {
                Ok(_passed) => inner.call(Request::from_parts(parts, body)).await,
                Err(refused) => Ok(problem::response(&refused)),
            }
        })
    }
}

fn token(headers: &HeaderMap) -> Result<Token> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Err(FenceError::Missing {
            how: "the header Tenure-Token",
        });
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    if let Some(second) = values.next() {
        let second = String::from_utf8_lossy(second.as_bytes());
        return Err(FenceError::NoNumber {
            found: shown(&format!("{text}, {second}")),
        });
    }
    read_token(&text)
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Fenced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layer.fmt(f)
    }
}
