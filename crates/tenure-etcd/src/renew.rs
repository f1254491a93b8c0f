//! Renewals: a keep-alive of the tenure's etcd lease and a read of its record, side by side.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::{BootClock, Clock, Error, Key, Lease, Loss, Renewed, Result};

use crate::bind;
use crate::client::Kept;
use crate::keys::{self, found};
use crate::proto::{ResponseHeader, TxnResponse};
use crate::record::{Note, Record, bound_to};
use crate::store::EtcdStore;

/// How many leases share a stream of keep-alives and a read: a transaction may have 128
/// operations, and each lease has two keys.
const BATCH: usize = 64;

/// What a keep-alive and a read beside it have found.
struct Seen {
    record: Option<Record>,
    /// What was kept alive, and whether that was confirmed.
    kept: Option<(i64, Proof)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The etcd lease lives, for this many seconds from after the call was sent.
    Lives {
        seconds: i64,
    },
    Gone,
    /// The answer came from a leader that may have been replaced before.
    Unproven,
}

impl Proof {
    fn of(kept: Kept, header: Option<&ResponseHeader>) -> Self {
        match kept {
            Kept::Gone => Proof::Gone,
            Kept::Alive { seconds, .. } if kept.proves(header) => Proof::Lives { seconds },
            Kept::Alive { .. } => Proof::Unproven,
        }
    }
}

impl EtcdStore {
    pub(crate) async fn renew_one(&self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let seen = self.look(&lease.key, bound_to(lease)).await?;
        self.judge(lease, ttl, seen).await
    }

    pub(crate) async fn renew_batch(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let batches = leases.chunks(BATCH).map(|batch| async move {
            let seen = self.look_at_many(batch).await;
            let judged = batch
                .iter()
                .zip(seen)
                .map(|((lease, ttl), seen)| async { self.judge(lease, *ttl, seen?).await });
            join_all(judged).await
        });
        join_all(batches).await.into_iter().flatten().collect()
    }

    /// Keeps this etcd lease alive, if it is known, and reads the record, in one round trip.
    async fn look(&self, key: &Key, known: Option<i64>) -> Result<Seen> {
        let read = self.client().read(self.keys().read(key));
        let Some(id) = known else {
            let record = keys::record(key, read.await?)?;
            return Ok(Seen { record, kept: None });
        };
        let (kept, answer) = tokio::join!(self.client().keep(id), read);
        let answer = answer?;
        let proof = Proof::of(kept?, answer.header.as_ref());
        let record = keys::record(key, answer)?;
        let kept = Some((id, proof));
        Ok(Seen { record, kept })
    }

    /// The same for many: one stream of keep-alives and one read.
    async fn look_at_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Seen>> {
        let known: Vec<_> = leases.iter().map(|(lease, _)| bound_to(lease)).collect();
        let ids: Vec<_> = known.iter().copied().flatten().collect();
        let reads = leases
            .iter()
            .flat_map(|(lease, _)| self.keys().read(&lease.key));
        let read = self.client().read(reads.collect());
        let (kept, answer) = tokio::join!(self.client().keep_many(&ids), read);
        let answer: TxnResponse = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let error = Error::from(failure);
                return leases.iter().map(|_| Err(error.clone())).collect();
            }
        };
        let header = answer.header.clone();
        let found = found(answer);
        let mut kept = kept.into_iter();
        let looked = leases
            .iter()
            .zip(known)
            .enumerate()
            .map(|(n, ((lease, _), known))| {
                let kept = match known {
                    Some(id) => {
                        let answer = kept.next().unwrap_or_else(|| Err(self.unanswered()));
                        Some((id, Proof::of(answer?, header.as_ref())))
                    }
                    None => None,
                };
                let at = |index: usize| found.get(2 * n + index).and_then(|kvs| kvs.first());
                let record = Record::read(&lease.key, at(0), at(1))?;
                Ok(Seen { record, kept })
            });
        looked.collect()
    }

    fn unanswered(&self) -> Error {
        Error::unavailable(format!(
            "{} answered fewer keep-alives than it was sent",
            self.client().whose()
        ))
    }

    /// What this means for the one who says that it holds this lease.
    async fn judge(&self, lease: &Lease, ttl: Duration, mut seen: Seen) -> Result<Renewed> {
        let mut looks_left = 2;
        loop {
            let Some(record) = seen.record else {
                let expired = matches!(seen.kept, Some((_, Proof::Gone)));
                return Ok(Renewed::Lost(match expired {
                    true => Loss::Expired,
                    false => Loss::Deleted,
                }));
            };
            if !record.is_of(lease) {
                let (holder, token) = (record.holder, record.token);
                return Ok(Renewed::Lost(Loss::Superseded { holder, token }));
            }
            match seen.kept {
                Some((id, Proof::Lives { seconds })) if id == record.bound_to => {
                    return self.go_on(&lease.key, record, seconds, ttl).await;
                }
                Some((id, Proof::Unproven)) if id == record.bound_to => {
                    return Err(bind::unproven(self.client()));
                }
                // The version was an older one and the record has another etcd lease now,
                // or that ended just after the record was read.
                _ if looks_left > 0 => looks_left -= 1,
                _ => break,
            }
            seen = self.look(&lease.key, Some(record.bound_to)).await?;
        }
        Err(Error::unavailable(format!(
            "the record of {:?} in etcd changed time and again during its renewal: try again",
            lease.key
        )))
    }

    /// The tenure is the caller's and lives: gives it the ttl that was asked for.
    async fn go_on(
        &self,
        key: &Key,
        record: Record,
        seconds: i64,
        ttl: Duration,
    ) -> Result<Renewed> {
        let fits = match &record.note {
            Some(note) => note.ttl() == ttl,
            None => seconds == bind::seconds(ttl),
        };
        if fits {
            let request = record.request();
            return Ok(Renewed::Renewed(record.lease(key, ttl, Some(ttl)), request));
        }
        self.rebind(key, record, ttl).await
    }

    /// An etcd lease cannot change its ttl: binds the record to another one.
    async fn rebind(&self, key: &Key, record: Record, ttl: Duration) -> Result<Renewed> {
        let note = match &record.note {
            Some(note) => Some(note.clone().with_ttl(ttl)),
            // What cannot be read is not overwritten; it then belongs to no tenure any more.
            None if record.note_unreadable => None,
            None => Some(Note::new(None, ttl, BootClock.wall())),
        };
        let txn = |id| self.keys().rebind(key, &record, note.as_ref(), id);
        let (answer, id) = bind::commit(self.client(), self.spares(), ttl, txn).await?;
        if answer.succeeded {
            if record.note.is_some() {
                self.client().revoke_later(record.bound_to);
            }
            let request = record.request();
            let record = Record {
                bound_to: id,
                note,
                ..record
            };
            return Ok(Renewed::Renewed(record.lease(key, ttl, Some(ttl)), request));
        }
        match keys::record(key, answer)? {
            Some(now) if now.holder == record.holder && now.token == record.token => {
                // A request was left, or another renewal came through: nothing was written.
                Err(Error::unreachable(format!(
                    "the record of {key:?} in etcd changed during its renewal: try again"
                )))
            }
            Some(now) => Ok(Renewed::Lost(Loss::Superseded {
                holder: now.holder,
                token: now.token,
            })),
            None => Ok(Renewed::Lost(Loss::Deleted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No real etcd can be made to answer so at will: a leader that was replaced and does
    /// not know it keeps a lease alive that its successor may have ended.
    #[test]
    fn a_renewal_counts_on_no_keep_alive_of_an_earlier_term() {
        let kept = |term| Kept::Alive { seconds: 9, term };
        let read = |raft_term| ResponseHeader {
            raft_term,
            ..ResponseHeader::default()
        };
        let proof = |term, header: Option<&ResponseHeader>| Proof::of(kept(term), header);
        assert!(proof(3, Some(&read(4))) == Proof::Unproven);
        assert!(proof(4, Some(&read(4))) == Proof::Lives { seconds: 9 });
        assert!(proof(5, Some(&read(4))) == Proof::Lives { seconds: 9 });
        assert!(proof(5, None) == Proof::Unproven);
        assert!(Proof::of(Kept::Gone, Some(&read(4))) == Proof::Gone);
    }
}
