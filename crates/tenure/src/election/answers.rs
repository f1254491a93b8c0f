//! What the store's answers and notices do to an election.

use std::time::Duration;

use super::Election;
use super::messages::{Answer, CallId, Output};
use super::state::{Leading, Pending, Phase, Seen};
use crate::clock::Moment;
use crate::reason::EndReason;
use crate::store::{Acquired, HolderRequest, Lease, Loss, Notice, Renewed};

impl Election {
    pub(super) fn answered(&mut self, now: Moment, id: CallId, answer: Answer) {
        let Some(pending) = self.pending.take_if(|pending| pending.id == id) else {
            return; // It was given up, and what it said is no longer certain.
        };
        match answer {
            Answer::Acquire(Ok(Acquired::Granted(lease))) => self.granted(now, &pending, lease),
            Answer::Acquire(Ok(Acquired::Held(lease))) => {
                self.worked();
                self.unresolved = false;
                self.held(now, lease);
            }
            Answer::Renew(Ok(renewed)) => self.renewed(now, &pending, renewed),
            Answer::Release(Ok(_)) => {
                self.worked();
                self.after_release(now);
            }
            Answer::Read(Ok(lease)) => {
                self.worked();
                self.found_out(now, lease);
            }
            Answer::Acquire(Err(error))
            | Answer::Renew(Err(error))
            | Answer::Release(Err(error))
            | Answer::Read(Err(error)) => self.failed(now, pending.operation, error),
        }
    }

    fn granted(&mut self, now: Moment, pending: &Pending, lease: Lease) {
        self.worked();
        self.unresolved = true;
        let Phase::Campaigning { ask_at } = &mut self.phase else {
            return;
        };
        let leading = Leading {
            deadline: self.settings.timing.deadline(pending.sent),
            sent: pending.sent,
            renew_at: pending.sent,
            renew_by: pending.sent,
            looks: 0,
            progress_at: now,
            lease,
        };
        if self.stopping {
            self.unresolved = false;
            self.release(now, leading.lease, now);
            return;
        }
        if now >= leading.deadline.saturating_sub(self.settings.timing.grace) {
            // The answer lay about for too long. The same attempt gets the same tenure
            // again, with a deadline that can be kept.
            *ask_at = now;
            return;
        }
        self.unresolved = false;
        self.attempt = self.attempt.next();
        self.seen = None;
        self.runs_out = None;
        self.look_again = false;
        self.tenures += 1;
        self.outputs.push(Output::Begin {
            lease: leading.lease.clone(),
            deadline: leading.deadline,
        });
        let renew_at = self.renew_at(pending.sent);
        self.phase = Phase::Leading(Leading {
            renew_at,
            renew_by: renew_at,
            ..leading
        });
    }

    fn held(&mut self, now: Moment, lease: Lease) {
        if self.is_stray(&lease) {
            self.release(now, lease, now);
            return;
        }
        let ask_at = self.see(now, lease);
        let again = std::mem::take(&mut self.look_again);
        if let Phase::Campaigning { ask_at: next } = &mut self.phase {
            *next = if again { now } else { ask_at };
        }
    }

    /// Whether a record of ours is one that nobody leads by: a late copy of an earlier
    /// request was granted. One whose work may not have stopped is left to run out.
    fn is_stray(&self, lease: &Lease) -> bool {
        let runs_out = self.runs_out.as_ref().map(|lease| lease.token);
        self.is_ours(lease) && runs_out != Some(lease.token)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let attempt = lease.attempt;
        attempt.is_some_and(|attempt| attempt.same_elector(self.attempt))
    }

    /// Notes whose record this is and since when, and says when to ask for it.
    fn see(&mut self, now: Moment, lease: Lease) -> Moment {
        let timing = self.settings.timing;
        let known = self.seen.as_ref();
        let same_leader = known.is_some_and(|s| s.holder == lease.holder && s.token == lease.token);
        let since = known
            .filter(|seen| seen.version == lease.version)
            .map_or(now, |seen| seen.since);
        let poll_at = now + self.shorten(timing.poll_every);
        let ends_at = match lease.rest {
            Some(rest) => now + rest,
            None => since + timing.watched_term(lease.ttl),
        };
        let spread = timing.spread();
        // A record that should have ended and is held all the same is no reason to rush.
        let soonest = if ends_at <= now {
            timing.retry_first()
        } else {
            Duration::ZERO
        };
        let ours = self.is_ours(&lease);
        // The record of one's own last tenure, or of one before it, pushed late, is no new
        // leader.
        self.resting = self.resting.filter(|last| ours || lease.token < *last);
        self.seen = Some(Seen {
            holder: lease.holder.clone(),
            token: lease.token,
            version: lease.version.clone(),
            ttl: lease.ttl,
            since,
        });
        if !same_leader && !ours {
            self.outputs.push(Output::Following(lease));
        }
        let ends_at = ends_at.max(now + soonest) + self.chance(spread);
        poll_at.min(ends_at).max(now + Duration::from_millis(1))
    }

    fn renewed(&mut self, now: Moment, pending: &Pending, renewed: Renewed) {
        self.worked();
        match renewed {
            Renewed::Renewed(lease, request) => {
                let renew_at = self.renew_at(pending.sent);
                let deadline = self.settings.timing.deadline(pending.sent);
                match &mut self.phase {
                    Phase::Leading(leading) if leading.lease.token == lease.token => {
                        leading.lease = lease;
                        leading.deadline = leading.deadline.max(deadline);
                        leading.sent = pending.sent;
                        if pending.sent >= leading.renew_by {
                            leading.renew_by = renew_at;
                            leading.looks = 0;
                        }
                        leading.renew_at = leading.renew_by;
                        let deadline = leading.deadline;
                        if std::mem::take(&mut self.look_again) {
                            leading.look(now, self.settings.timing.retry_first());
                        }
                        self.outputs.push(Output::Extend { deadline });
                    }
                    // Work has been told to stop, and is not told otherwise.
                    Phase::Draining(leading, _) if leading.lease.token == lease.token => {
                        leading.lease = lease;
                    }
                    Phase::Releasing(releasing) if releasing.lease.token == lease.token => {
                        releasing.lease = lease;
                    }
                    _ => {}
                }
                if request == Some(HolderRequest::StepDown) {
                    self.drain(now, EndReason::AskedToStepDown);
                }
            }
            Renewed::Lost(loss) => {
                let reason = match loss {
                    Loss::Superseded { holder, token } => EndReason::Superseded { holder, token },
                    Loss::Expired => EndReason::Expired,
                    Loss::Deleted => EndReason::RecordDeleted,
                };
                if let Phase::Leading(_) | Phase::Draining(..) = &self.phase {
                    self.end(now, reason);
                }
            }
        }
    }

    pub(super) fn noticed(&mut self, now: Moment, notice: Notice) {
        match (&mut self.phase, notice) {
            (Phase::Leading(leading) | Phase::Draining(leading, _), Notice::Held(lease)) => {
                if lease.token > leading.lease.token {
                    let (holder, token) = (lease.holder, lease.token);
                    self.end(now, EndReason::Superseded { holder, token });
                }
            }
            (Phase::Leading(leading), Notice::Free | Notice::Look) => {
                self.look_again = self.pending.is_some();
                if !self.look_again {
                    leading.look(now, self.settings.timing.retry_first());
                }
            }
            (Phase::Campaigning { .. }, Notice::Held(lease)) => {
                let at = self.see(now, lease);
                if let (Phase::Campaigning { ask_at }, None) = (&mut self.phase, self.resting) {
                    *ask_at = (*ask_at).min(at);
                }
            }
            (Phase::Campaigning { ask_at }, Notice::Free | Notice::Look) => {
                if self.resting.is_none() {
                    *ask_at = (*ask_at).min(now);
                    self.look_again = self.pending.is_some();
                }
            }
            (Phase::Draining(..) | Phase::Releasing(_) | Phase::FindingOut { .. }, _) => {}
            (Phase::Stopped, _) => {}
        }
    }

    fn found_out(&mut self, now: Moment, lease: Option<Lease>) {
        match lease {
            Some(lease) if self.is_stray(&lease) => self.release(now, lease, now),
            _ => self.finish(),
        }
    }
}
