//! The client side: the token of a tenure as a header, and the answers of a fence read back.

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tenure::{StaleToken, Tenure, Token};

use super::HEADER;
use crate::error::{FenceError, Result};
use crate::token::sendable;

/// Puts the token of this tenure on a request, in place of one that is there already. A
/// tenure that has ended is refused: do not send the request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::{Elector, MemoryStore, Settings};
/// let elector = Elector::start(MemoryStore::new(), Settings::new("jobs")?)?;
/// let tenure = elector.elected().await?;
///
/// let mut request = http::Request::post("http://localhost/jobs").body(())?;
/// tenure_fences::http::send_with(&tenure, request.headers_mut())?;
/// assert_eq!(request.headers()["tenure-token"], tenure.token().to_string());
/// # elector.stop().await; Ok(()) }
/// ```
pub fn send_with(tenure: &Tenure, headers: &mut HeaderMap) -> Result<()> {
    let token = sendable(tenure)?;
    headers.insert(HEADER, HeaderValue::from(token.0));
    Ok(())
}

/// What the fence said, if this answer is a refusal of a fence; None if it is another one,
/// also another 409.
pub fn refusal(status: StatusCode, body: &[u8]) -> Option<FenceError> {
    let problem: Value = serde_json::from_slice(body).ok()?;
    let fence = problem.get("fence")?.as_str()?;
    let number = |name: &str| problem.get(name)?.as_u64().map(Token);
    match (status, fence) {
        (StatusCode::CONFLICT, "stale") => {
            let (token, seen) = (number("token")?, number("seen")?);
            Some(StaleToken { token, seen }.into())
        }
        (StatusCode::PRECONDITION_REQUIRED, "missing") => Some(FenceError::Missing {
            how: "the header Tenure-Token",
        }),
        (StatusCode::BAD_REQUEST, "no-number") => {
            let found = problem.get("found")?.as_str()?.to_owned();
            Some(FenceError::NoNumber { found })
        }
        (StatusCode::SERVICE_UNAVAILABLE, "busy") => {
            let resource = problem.get("resource")?.as_str()?.to_owned();
            Some(FenceError::Busy { resource })
        }
        _ => {
            let detail = problem.get("detail")?.as_str()?.to_owned();
            Some(FenceError::resource(detail))
        }
    }
}
