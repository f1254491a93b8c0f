//! Binding a record to an etcd lease of its own, in one round trip.
//!
//! Every tenure has an etcd lease that no other tenure ever had. A fresh one is granted
//! beside the transaction that uses it; if the transaction comes first, etcd refuses it
//! without writing anything, and it is sent again. An etcd lease whose transaction was
//! refused was never bound to anything: it is spare, and the next one uses it with a
//! keep-alive, which is sent beside the transaction too. So a waiter, who was refused
//! before, needs one round trip for sure.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{BootClock, Clock, Error, ErrorKind, Moment, Result};

use crate::client::Client;
use crate::failure::Failure;
use crate::proto::{TxnRequest, TxnResponse};

/// How many are kept; more are left to their end.
const SPARES_MAX: usize = 16;

/// Etcd leases that were granted and never bound, by their seconds.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<HashMap<i64, Vec<Spare>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spare {
    id: i64,
    /// Until then it lives, as far as one knows here. A guess that is wrong costs time only.
    until: Moment,
}

impl Spares {
    fn take(&self, seconds: i64, now: Moment) -> Option<i64> {
        let mut all = self.all();
        let spares = all.get_mut(&seconds)?;
        spares.retain(|spare| spare.until > now);
        spares.pop().map(|spare| spare.id)
    }

    fn put(&self, seconds: i64, id: i64, asked_at: Moment) {
        let mut all = self.all();
        if all.values().map(Vec::len).sum::<usize>() >= SPARES_MAX {
            all.values_mut()
                .for_each(|spares| spares.retain(|spare| spare.until > asked_at));
            all.retain(|_, spares| !spares.is_empty());
        }
        if all.values().map(Vec::len).sum::<usize>() < SPARES_MAX {
            let until = asked_at + Duration::from_secs(seconds.unsigned_abs());
            all.entry(seconds).or_default().push(Spare { id, until });
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<i64, Vec<Spare>>> {
        // No step under the lock can leave it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Etcd counts whole seconds: never fewer than were asked for.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let up = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs() + up).unwrap_or(i64::MAX)
}

/// Commits the transaction that `txn` makes of an etcd lease of this ttl.
///
/// If it succeeded, that etcd lease lives for the ttl from after this was called.
pub(crate) async fn commit(
    client: &Client,
    spares: &Spares,
    ttl: Duration,
    txn: impl Fn(i64) -> TxnRequest,
) -> Result<(TxnResponse, i64)> {
    let seconds = seconds(ttl);
    let now = BootClock.now();
    if let Some(id) = spares.take(seconds, now) {
        let (kept, answer) = tokio::join!(client.keep(id), client.txn(txn(id)));
        match answer {
            // It had ended: nothing was written.
            Err(Failure::LeaseNotFound) => {}
            // It may be bound now, so nobody else may have it.
            Err(Failure::Other(error)) => return Err(error),
            Ok(answer) if answer.succeeded => {
                let kept = kept.map_err(Error::from)?;
                return match kept.proves(answer.header.as_ref()) {
                    true => Ok((answer, id)),
                    false => Err(unproven(client)),
                };
            }
            Ok(answer) => {
                spares.put(seconds, id, now);
                return Ok((answer, id));
            }
        }
    }
    let id = fresh_id();
    let (granted, answer) = tokio::join!(client.grant(id, seconds), client.txn(txn(id)));
    let answer = match answer {
        Err(Failure::LeaseNotFound) => {
            granted.map_err(nothing_written)?;
            client.txn(txn(id)).await?
        }
        // If it succeeded, the etcd lease was there, and it was not before this call.
        answer => answer?,
    };
    if !answer.succeeded {
        spares.put(seconds, id, now);
    }
    Ok((answer, id))
}

pub(crate) fn unproven(client: &Client) -> Error {
    Error::unavailable(format!(
        "{} changed its leader during the call, so the term is not certain: try again",
        client.whose()
    ))
}

/// The grant may have worked, but the record was surely not written.
fn nothing_written(failure: Failure) -> Error {
    let error = Error::from(failure);
    match error.kind() {
        ErrorKind::Unavailable => Error::unreachable(error.to_string()),
        _ => error,
    }
}

/// A number that no other etcd lease has: 63 random bits, and not zero.
fn fresh_id() -> i64 {
    fastrand::Rng::new().i64(1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (ms, expected) in [(2000, 2), (2001, 3), (2999, 3), (1, 1)] {
            assert_eq!(seconds(Duration::from_millis(ms)), expected);
        }
        assert_eq!(seconds(Duration::new(2, 1)), 3);
    }

    #[test]
    fn a_spare_is_given_out_once_and_while_it_lives() {
        let spares = Spares::default();
        let at = |second: u64| Moment::from_nanos(second * 1_000_000_000);
        spares.put(3, 7, at(1));
        assert_eq!(spares.take(4, at(1)), None);
        assert_eq!(
            (spares.take(3, at(2)), spares.take(3, at(2))),
            (Some(7), None)
        );
        spares.put(3, 8, at(1));
        assert_eq!(spares.take(3, at(4)), None, "it has ended");
        for id in 0..100 {
            spares.put(id % 3 + 10, id, at(1));
        }
        let count = |spares: &Spares| spares.all().values().map(Vec::len).sum::<usize>();
        assert_eq!(count(&spares), SPARES_MAX);
        spares.put(3, 9, at(60));
        assert_eq!(count(&spares), 1, "those that have ended make room");
    }
}
