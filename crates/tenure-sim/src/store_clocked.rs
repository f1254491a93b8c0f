//! The simulated store with a clock of its own: it judges expiry, in the step that takes the lease.

use std::time::Duration;

use tenure::{AcquireRequest, Acquired, Result};

use crate::event::Message;
use crate::planted::Bug;
use crate::store::{Record, Store};

pub(crate) fn acquire(
    store: &mut Store,
    at: u64,
    message: &Message,
    request: &AcquireRequest,
) -> Result<Acquired> {
    let record = if store.broken(Bug::CheckThenAct) {
        store.earlier()
    } else {
        store.record.as_ref()
    };
    let mut again = false;
    if let Some(record) = record
        && let Some(holder) = store.live(record, at)
    {
        again = *holder == request.holder && record.attempt == request.attempt;
        if !again {
            return Ok(Acquired::Held(store.lease(record, holder, at)));
        }
    }
    Ok(Acquired::Granted(store.grant(at, message, request, again)))
}

pub(crate) fn has_ended(store: &Store, record: &Record, at: u64) -> bool {
    record.ends_at + store.late <= now(store, at)
}

pub(crate) fn rest(store: &Store, record: &Record, at: u64) -> Duration {
    Duration::from_nanos(record.ends_at.saturating_sub(now(store, at)))
}

pub(crate) fn ends_at(store: &Store, at: u64, ttl: Duration) -> u64 {
    now(store, at) + ttl.as_nanos() as u64
}

fn now(store: &Store, at: u64) -> u64 {
    if store.broken(Bug::StoreTrustsWallClock) {
        return store.clock.wall_us(at) * 1_000;
    }
    store.clock.now(at)
}
