//! Store calls of the short subcommands: bounded in time, so that a hung store is an answer too.

use std::future::Future;
use std::time::Duration;

use tenure::{Error, Result};

/// How long a person is left waiting for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for one store call, but not for ever.
pub async fn bounded<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::unavailable(format!(
            "the store did not answer within {}: check that it is reachable",
            humantime::format_duration(CALL_TIMEOUT)
        ))),
    }
}
