//! What goes into the election and what comes out of it.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::reason::EndReason;
use crate::store::{AcquireRequest, Acquired, Lease, Notice, Released, Renewed};
use crate::words::{Key, Token};

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The store has answered a call.
    Answer(CallId, Answer),
    /// The store has pushed a change.
    Notice(Notice),
    /// The leader is to give up its tenure, and rest before it campaigns again.
    Resign,
    /// The elector is to end its tenure, release it and stop.
    Stop,
    /// All guarded work of the tenure with this token has stopped, after
    /// [`Output::Drain`] or [`Output::End`].
    WorkDone(Token),
    /// The work reported progress at this moment.
    Progress(Moment),
    /// Somebody asked the tenure after its deadline, before an extension came: it has ended.
    Overrun,
    /// Work was told to stop, before an extension came: the tenure goes to its end.
    Told,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to the store and bring back the answer.
    Call(CallId, Request),
    /// Nobody waits for this call any more: give up its connection.
    Abandon(CallId, Operation),
    /// A tenure has begun.
    Begin {
        /// Its lease.
        lease: Lease,
        /// When it ends by itself.
        deadline: Moment,
    },
    /// The tenure goes on until this new deadline.
    Extend {
        /// When it now ends by itself.
        deadline: Moment,
    },
    /// Guarded work is to stop now; [`Input::WorkDone`] when it has.
    Drain(EndReason),
    /// The tenure has ended, once and for good.
    End(EndReason),
    /// Somebody else leads.
    Following(Lease),
    /// A call failed; what it asked for may have happened if the kind is unavailable.
    Failed(Operation, Error),
    /// A call has worked after others failed.
    Recovered,
    /// The election is over: no more outputs will come.
    Stopped,
}

/// The number of a call, to match the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call to the store.
#[derive(Clone, Debug)]
pub enum Request {
    /// [`Store::acquire`](crate::Store::acquire)
    Acquire(AcquireRequest),
    /// [`Store::renew`](crate::Store::renew)
    Renew(Lease, Duration),
    /// [`Store::release`](crate::Store::release)
    Release(Lease),
    /// [`Store::read`](crate::Store::read)
    Read(Key),
}

/// The answer to a [`Request`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// To an acquire.
    Acquire(Result<Acquired>),
    /// To a renewal.
    Renew(Result<Renewed>),
    /// To a release.
    Release(Result<Released>),
    /// To a read.
    Read(Result<Option<Lease>>),
}

/// The operations of the store contract, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Taking the lease.
    Acquire,
    /// Keeping it.
    Renew,
    /// Giving it back.
    Release,
    /// Finding out.
    Read,
}

impl Operation {
    /// The operation as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Acquire => "acquire",
            Operation::Renew => "renew",
            Operation::Release => "release",
            Operation::Read => "read",
        }
    }
}
