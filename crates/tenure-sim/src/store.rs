//! What both kinds of simulated store share: the record, its past, and what was done.

use std::time::Duration;

use tenure::election::{Answer, Request};
use tenure::{Acquired, Attempt, Holder, HolderRequest, Key, Lease, Loss, Notice, Released};
use tenure::{Renewed, Token, Version};

use crate::clock::SimClock;
use crate::event::{Message, Owner};
use crate::planted::Bug;
use crate::{store_clocked, store_watched};

/// Which kind of store: who judges that a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The store does, by its own clock.
    Clocked,
    /// The candidates do, by watching the record.
    Watched,
}

/// How many earlier states are kept, for stale reads and rollbacks.
const PAST_MAX: usize = 6;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) clock: SimClock,
    pub(crate) record: Option<Record>,
    pub(crate) past: Vec<Option<Record>>,
    pub(crate) revision: u64,
    /// A lost revision counter is counted again after a rollback.
    pub(crate) revision_rolls_back: bool,
    /// How long after its end a lease is still kept: some stores reap late.
    pub(crate) late: u64,
    /// The next reads show an earlier state.
    pub(crate) stale: bool,
    /// It pushes that something has changed, not what.
    pub(crate) only_says_look: bool,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) pushed: Vec<Notice>,
    pub(crate) bug: Option<Bug>,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// None once it was released: the record stays, because the token lives in it.
    pub(crate) holder: Option<Holder>,
    pub(crate) token: Token,
    pub(crate) attempt: Attempt,
    pub(crate) ttl: Duration,
    /// By the store's own clock.
    pub(crate) ends_at: u64,
    pub(crate) version: u64,
    /// The wall clock of whoever wrote it.
    pub(crate) wall_us: u64,
    pub(crate) request: Option<HolderRequest>,
}

/// What the store really did, for the checkers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// A new tenure was granted, or an attempt was given its tenure again.
    Granted {
        to: Owner,
        token: Token,
        again: bool,
    },
    /// A term began anew: asked for with one token, done to a record with another?
    Renewed { asked: Token, was: Token },
    /// A lease was freed: asked for with one token, done to a record with another?
    Freed { by: Owner, asked: Token, was: Token },
}

impl Store {
    /// Does what is asked, at once and as one step, and says which tenure it confirms.
    pub(crate) fn apply(&mut self, at: u64, message: &Message) -> (Answer, Option<Token>) {
        match &message.request {
            Request::Acquire(request) => {
                let acquired = match self.kind {
                    Kind::Clocked => store_clocked::acquire(self, at, message, request),
                    Kind::Watched => store_watched::acquire(self, at, message, request),
                };
                let confirms = match &acquired {
                    Ok(Acquired::Granted(lease)) => Some(lease.token),
                    _ => None,
                };
                (Answer::Acquire(acquired), confirms)
            }
            Request::Renew(lease, ttl) => {
                let renewed = self.renew(at, message, lease, *ttl);
                let confirms = match &renewed {
                    Renewed::Renewed(lease, _) => Some(lease.token),
                    Renewed::Lost(_) => None,
                };
                (Answer::Renew(Ok(renewed)), confirms)
            }
            Request::Release(lease) => {
                let released = self.release(at, message.from, lease);
                (Answer::Release(Ok(released)), None)
            }
            Request::Read(_) => (Answer::Read(Ok(self.read(at))), None),
        }
    }

    pub(crate) fn broken(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The record if somebody holds it, as far as this store can tell.
    pub(crate) fn live<'r>(&self, record: &'r Record, at: u64) -> Option<&'r Holder> {
        let ended = self.kind == Kind::Clocked && store_clocked::has_ended(self, record, at);
        record.holder.as_ref().filter(|_| !ended)
    }

    pub(crate) fn lease(&self, record: &Record, holder: &Holder, at: u64) -> Lease {
        let rest = match self.kind {
            Kind::Clocked => Some(store_clocked::rest(self, record, at)),
            Kind::Watched => None,
        };
        Lease {
            key: self.key.clone(),
            holder: holder.clone(),
            token: record.token,
            attempt: Some(record.attempt),
            ttl: record.ttl,
            rest,
            acquired_at: None,
            version: Version::new(record.version.to_string()),
        }
    }

    /// Writes a record for the one who asks, as a new tenure or as one it had before.
    pub(crate) fn grant(
        &mut self,
        at: u64,
        message: &Message,
        request: &tenure::AcquireRequest,
        again: bool,
    ) -> Lease {
        let old = self.record.as_ref();
        let last = old.map_or(Token(0), |record| record.token);
        let token = match old {
            Some(record) if again => record.token,
            _ if self.broken(Bug::TokenResetAfterDelete) => Token(last.0 + 1),
            _ => Token::next(last, self.clock.wall_us(at)),
        };
        let asked = old.filter(|_| again).and_then(|r| r.request.clone());
        let record = Record {
            holder: Some(request.holder.clone()),
            token,
            attempt: request.attempt,
            ttl: request.ttl,
            ends_at: store_clocked::ends_at(self, at, request.ttl),
            version: self.next_revision(),
            wall_us: message.wall_us,
            request: asked,
        };
        let lease = self.lease(&record, &request.holder, at);
        self.write(Some(record));
        let to = message.from;
        self.deeds.push(Deed::Granted { to, token, again });
        self.push(Notice::Held(lease.clone()));
        lease
    }

    fn renew(&mut self, at: u64, message: &Message, lease: &Lease, ttl: Duration) -> Renewed {
        let Some(record) = self.record.clone() else {
            return Renewed::Lost(Loss::Deleted);
        };
        let holder = self.live(&record, at).cloned();
        let version_held = lease.version.as_str() == record.version.to_string();
        let conflict = self.broken(Bug::RetryAfterCommitIsConflict) && !version_held;
        match holder {
            Some(holder) => {
                let same = holder == lease.holder && record.token == lease.token;
                if (!same && !self.broken(Bug::RenewWithoutCompare)) || conflict {
                    let token = record.token;
                    return Renewed::Lost(Loss::Superseded { holder, token });
                }
                let was = record.token;
                let renewed = Record {
                    holder: Some(lease.holder.clone()),
                    token: lease.token,
                    ttl,
                    ends_at: store_clocked::ends_at(self, at, ttl),
                    version: self.next_revision(),
                    wall_us: message.wall_us,
                    ..record
                };
                let request = renewed.request.clone();
                let lease = self.lease(&renewed, &lease.holder, at);
                self.write(Some(renewed));
                let asked = lease.token;
                self.deeds.push(Deed::Renewed { asked, was });
                if self.kind == Kind::Watched {
                    self.push(Notice::Held(lease.clone()));
                }
                Renewed::Renewed(lease, request)
            }
            None if record.holder.is_some() && record.token == lease.token => {
                Renewed::Lost(Loss::Expired)
            }
            None => Renewed::Lost(Loss::Deleted),
        }
    }

    fn release(&mut self, at: u64, by: Owner, lease: &Lease) -> Released {
        let Some(record) = self.record.clone() else {
            return Released::NotHeld;
        };
        let holder = self.live(&record, at);
        let held = match holder {
            _ if self.broken(Bug::ReleaseWithoutCompare) => holder.is_some(),
            _ if self.broken(Bug::ReleaseWithoutToken) => holder == Some(&lease.holder),
            _ => holder == Some(&lease.holder) && record.token == lease.token,
        };
        if !held {
            return Released::NotHeld;
        }
        let (asked, was) = (lease.token, record.token);
        self.deeds.push(Deed::Freed { by, asked, was });
        let version = self.next_revision();
        self.write(Some(Record {
            holder: None,
            request: None,
            version,
            ..record
        }));
        self.push(Notice::Free);
        Released::Released
    }

    fn read(&self, at: u64) -> Option<Lease> {
        let record = self.shown()?;
        let holder = self.live(record, at)?;
        Some(self.lease(record, holder, at))
    }

    /// The record as a read shows it: perhaps an earlier state.
    pub(crate) fn shown(&self) -> Option<&Record> {
        match self.past.last() {
            Some(earlier) if self.stale => earlier.as_ref(),
            _ => self.record.as_ref(),
        }
    }

    /// The state that a store would decide on if it read first and wrote later.
    pub(crate) fn earlier(&self) -> Option<&Record> {
        self.past.last().unwrap_or(&self.record).as_ref()
    }

    fn push(&mut self, notice: Notice) {
        let vague = self.only_says_look;
        self.pushed.push(if vague { Notice::Look } else { notice });
    }

    pub(crate) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(crate) fn write(&mut self, record: Option<Record>) {
        if self.past.len() == PAST_MAX {
            self.past.remove(0);
        }
        self.past.push(std::mem::replace(&mut self.record, record));
    }

    // What breaks

    /// Loses the last confirmed writes, as a replica that took over too early.
    pub(crate) fn roll_back(&mut self, writes: usize) -> bool {
        let kept = self.past.len().saturating_sub(writes);
        let Some(earlier) = self.past.get(kept).cloned() else {
            return false;
        };
        self.past.truncate(kept);
        self.record = earlier;
        if self.revision_rolls_back {
            self.revision = self.record.as_ref().map_or(0, |record| record.version);
        }
        true
    }

    /// Somebody deletes the record by hand.
    pub(crate) fn delete(&mut self) -> bool {
        let there = self.record.is_some();
        self.write(None);
        self.push(Notice::Free);
        there
    }

    /// Somebody asks the holder to step down.
    pub(crate) fn ask_to_step_down(&mut self) -> bool {
        match &mut self.record {
            Some(record) if record.holder.is_some() => {
                record.request = Some(HolderRequest::StepDown);
                self.pushed.push(Notice::Look);
                true
            }
            _ => false,
        }
    }
}
