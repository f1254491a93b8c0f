//! The phases of an election and what each remembers.

use std::time::Duration;

use super::messages::{CallId, Operation};
use crate::clock::Moment;
use crate::reason::EndReason;
use crate::store::Lease;
use crate::words::{Holder, Token, Version};

#[derive(Debug)]
pub(super) enum Phase {
    Campaigning {
        ask_at: Moment,
    },
    Leading(Leading),
    Draining(Leading, Drain),
    Releasing(Releasing),
    /// Stopping with an unresolved attempt: find out whether it was granted.
    FindingOut {
        since: Moment,
        ask_at: Moment,
    },
    Stopped,
}

#[derive(Clone, Debug)]
pub(super) struct Leading {
    pub(super) lease: Lease,
    pub(super) deadline: Moment,
    /// When the renewal that was confirmed last was sent.
    pub(super) sent: Moment,
    /// When the next renewal is sent: at its time, or sooner for a look.
    pub(super) renew_at: Moment,
    /// When it is its time.
    pub(super) renew_by: Moment,
    /// How often it was looked since the last renewal that came at its time.
    pub(super) looks: u32,
    pub(super) progress_at: Moment,
}

impl Leading {
    /// Renews sooner, to see whether the lease is still there. Each look before the next
    /// renewal waits twice as long as the one before: a store that pushes too much, such
    /// as one's own renewals, must not make a storm.
    pub(super) fn look(&mut self, now: Moment, first_wait: Duration) {
        let wait = match self.looks {
            0 => Duration::ZERO,
            looks => first_wait.saturating_mul(1 << looks.min(20)),
        };
        let at = now.max(self.sent + wait);
        if at < self.renew_at {
            self.renew_at = at;
            self.looks += 1;
        }
    }
}

#[derive(Debug)]
pub(super) struct Drain {
    pub(super) reason: EndReason,
    /// When work that has not stopped is no longer waited for.
    pub(super) until: Moment,
}

#[derive(Debug)]
pub(super) struct Releasing {
    pub(super) lease: Lease,
    pub(super) ask_at: Moment,
    /// When it is left to run out.
    pub(super) until: Moment,
    /// When to campaign again.
    pub(super) rest_until: Moment,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: CallId,
    pub(super) operation: Operation,
    pub(super) sent: Moment,
    pub(super) give_up_at: Moment,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) holder: Holder,
    pub(super) token: Token,
    pub(super) version: Version,
    pub(super) ttl: Duration,
    /// When an answer first showed this version: the moment that the answer came, since
    /// the record may have been written as late as that.
    pub(super) since: Moment,
}
