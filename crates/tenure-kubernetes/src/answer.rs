//! One answer of the API server: its status and its JSON.

use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value};

/// What came back, whatever it says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Map<String, Value>,
    /// Seconds, if the server asks us to wait.
    pub(crate) retry_after: Option<u64>,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let retry_after = headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        Self {
            status,
            // A proxy in between may say something that is no JSON: the status counts then.
            body: serde_json::from_slice(body).unwrap_or_default(),
            retry_after,
        }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The server's own sentence, in one line.
    pub(crate) fn message(&self) -> String {
        let message = self.body.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default().replace(['\n', '\r'], " ");
        match message.is_empty() {
            true => self.status.to_string(),
            false => message,
        }
    }

    /// What kind of thing the server speaks of, if it says: `leases`, `namespaces`.
    pub(crate) fn about(&self) -> Option<&str> {
        self.body.get("details")?.get("kind")?.as_str()
    }
}
