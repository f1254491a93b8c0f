//! The simulated store without a clock: candidates watch, and name the version that has ended.

use tenure::{AcquireRequest, Acquired, Error, Result};

use crate::event::Message;
use crate::planted::Bug;
use crate::store::Store;

/// Reads, decides, and writes only if the version is still the one that it read: so a
/// stale read may answer with an old record, and can never take a newer one.
pub(crate) fn acquire(
    store: &mut Store,
    at: u64,
    message: &Message,
    request: &AcquireRequest,
) -> Result<Acquired> {
    let mut again = false;
    let mut read_version = None;
    if let Some(record) = store.shown() {
        read_version = Some(record.version);
        if let Some(holder) = &record.holder {
            let version = record.version.to_string();
            let named = request.ended.as_ref().map(tenure::Version::as_str);
            let ended = if store.broken(Bug::TakeWithoutCompare) {
                named.is_some()
            } else {
                named == Some(version.as_str())
            };
            again = *holder == request.holder && record.attempt == request.attempt;
            if !again && !ended {
                return Ok(Acquired::Held(store.lease(record, holder, at)));
            }
        }
    }
    let current = store.record.as_ref().map(|record| record.version);
    if read_version != current {
        return Err(Error::unavailable("409 conflict: the record has changed"));
    }
    Ok(Acquired::Granted(store.grant(at, message, request, again)))
}
