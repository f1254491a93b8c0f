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
    pub(super) renew_at: Moment,
    pub(super) progress_at: Moment,
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
