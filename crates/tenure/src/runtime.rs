//! The one thread and runtime that all electors of a process share by default.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, Result};

/// The shared runtime, started when it is first needed. It is not the caller's, so a
/// caller whose runtime is blocked or busy does not lose its lease by that.
pub(crate) fn shared() -> Result<Handle> {
    static SHARED: Mutex<Option<Handle>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = shared.as_ref() {
        return Ok(handle.clone());
    }
    let broken = |error| Error::unavailable(format!("no thread for the elector: {error}"));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("tenure".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(broken)?;
    *shared = Some(handle.clone());
    Ok(handle)
}
