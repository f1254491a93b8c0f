//! A refusal as `application/problem+json`.

use http::header::{CONTENT_TYPE as CONTENT_TYPE_HEADER, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::gate::Refused;
use crate::error::FenceError;

/// The type of a refusal's body.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The answer to a request that the fence did not let pass.
pub(crate) fn response<B: From<String>>(refused: &Refused) -> Response<B> {
    let (status, mut body) = problem(refused);
    body["status"] = status.as_u16().into();
    body["detail"] = refused.error().to_string().into();
    let mut response = Response::new(B::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE_HEADER, HeaderValue::from_static(CONTENT_TYPE));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn problem(refused: &Refused) -> (StatusCode, Value) {
    let error = match refused {
        Refused::Full(_) => {
            let body = json!({ "title": "The fence is full", "fence": "full" });
            return (StatusCode::INSUFFICIENT_STORAGE, body);
        }
        Refused::By(error) => error,
    };
    match error {
        FenceError::Stale(stale) => {
            let body = json!({
                "title": "The token is out of date", "fence": "stale",
                "token": stale.token.0, "seen": stale.seen.0,
            });
            (StatusCode::CONFLICT, body)
        }
        FenceError::Missing { .. } => {
            let body = json!({ "title": "The token is missing", "fence": "missing" });
            (StatusCode::PRECONDITION_REQUIRED, body)
        }
        FenceError::NoNumber { found } => {
            let body =
                json!({ "title": "The token is no number", "fence": "no-number", "found": found });
            (StatusCode::BAD_REQUEST, body)
        }
        FenceError::Invalid(_) => {
            let body = json!({ "title": "The resource cannot be fenced", "fence": "invalid" });
            (StatusCode::BAD_REQUEST, body)
        }
        FenceError::Busy { resource } => {
            let body = json!({ "title": "An older leader's request is under way", "fence": "busy", "resource": resource });
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
        _ => {
            let body = json!({ "title": "The token could not be kept", "fence": "not-kept" });
            (StatusCode::INTERNAL_SERVER_ERROR, body)
        }
    }
}
