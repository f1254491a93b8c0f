//! What can happen in a simulated world, in the order of true time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tenure::election::{Answer, CallId, Request};
use tenure::{Notice, Token};

use crate::phase::Phase;

/// A process: which node, and which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: usize,
    pub(crate) life: u64,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The election wants to be told that time has passed.
    Wake { owner: Owner, number: u64 },
    /// The tenure's own timer: work is told, then cut off.
    Timer { owner: Owner, number: u64 },
    /// A request reaches the store.
    Request(Box<Message>),
    /// An answer reaches the process that asked.
    Reply(Box<Reply>),
    /// A pushed change reaches a process.
    Notice(Owner, Box<Notice>),
    /// Work asks whether it leads.
    Check { owner: Owner, token: Token },
    /// Work writes to the resource, some time after it asked.
    Use { owner: Owner, token: Token },
    /// Work that was told to stop has stopped.
    WorkStops { owner: Owner, token: Token },
    /// A fault of the plan begins.
    FaultBegins(usize),
    /// A fault of the plan ends.
    FaultEnds(usize),
    /// A process that crashed or was stopped starts again.
    Start(usize),
    /// A process is told to stop.
    StopNow(usize),
    /// The next phase of the run.
    Phase(Phase),
    /// A grant whose answer was lost has to have been found by now.
    FoundAgain { owner: Owner, token: Token },
    /// The leader's next call goes wrong.
    ArmFault,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: Owner,
    pub(crate) call: CallId,
    pub(crate) request: Request,
    pub(crate) sent: u64,
    pub(crate) sent_local: u64,
    /// The sender's wall clock, for the planted bug that compares those.
    pub(crate) wall_us: u64,
    /// What goes wrong with it, if something does.
    pub(crate) fate: Fate,
    /// A copy: nobody waits for its answer.
    pub(crate) copy: bool,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Well,
    RequestLost,
    AnswerLost,
    Hangs,
    ErrorBefore,
    ErrorAfter,
}

/// An answer on its way, and what the store really did.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) to: Owner,
    pub(crate) call: CallId,
    pub(crate) answer: Answer,
    pub(crate) proof: Proof,
    /// Version, writer's wall clock and ttl of the record, for the planted bug that
    /// compares wall clocks.
    pub(crate) stamp: Option<(tenure::Version, u64, u64)>,
}

/// What a checker may take as confirmed: which tenure, by a request sent when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    pub(crate) confirms: Option<Token>,
    pub(crate) sent: u64,
    pub(crate) sent_local: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.count += 1;
        let number = self.count;
        self.heap.push(Entry { at, number, event });
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Drops what is on its way and would come after `at`: the network forgets it.
    pub(crate) fn forget_late(&mut self, at: u64) {
        self.heap.retain(|entry| {
            let on_its_way = matches!(
                entry.event,
                Event::Request(_) | Event::Reply(_) | Event::Notice(..)
            );
            !on_its_way || entry.at <= at
        });
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, and of two at one time the one that was put in first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
