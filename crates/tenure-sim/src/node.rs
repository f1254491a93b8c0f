//! A simulated node: a machine with its clock and its link, and the process that it runs.

use tenure::election::{Answer, CallId, Election, Operation};
use tenure::{Holder, Notice, Token, Version};

use crate::belief::Belief;
use crate::clock::SimClock;
use crate::event::{Owner, Proof};

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) holder: Holder,
    pub(crate) clock: SimClock,
    /// Whether requests reach the store, and answers come back.
    pub(crate) way_there: bool,
    pub(crate) way_back: bool,
    pub(crate) process: Option<Process>,
    /// The process does not run: stopped, starved, or its machine sleeps.
    pub(crate) paused: bool,
    /// When it last ran again, by its own clock.
    pub(crate) resumed_at: u64,
    pub(crate) lives: u64,
    /// The rate before a sleep that stopped the clock: only with a planted bug.
    pub(crate) rate_before: Option<u64>,
}

/// One life of a process: the real election and what the driver keeps beside it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) life: u64,
    pub(crate) election: Election,
    pub(crate) belief: Option<Belief>,
    /// A tenure that has ended while its work had not stopped yet.
    pub(crate) ended: Option<Belief>,
    pub(crate) calls: Vec<Call>,
    pub(crate) watching: bool,
    /// What came while the process did not run.
    pub(crate) inbox: Vec<Waiting>,
    pub(crate) wake_at: Option<u64>,
    pub(crate) wake_number: u64,
    pub(crate) timer_number: u64,
    /// When it last sent something to the store, in true time.
    pub(crate) called_at: u64,
    /// How often it has.
    pub(crate) called: u64,
    /// A tenure of its own ended for a reason after which it rests, in true time.
    pub(crate) rested_from: Option<u64>,
    /// It was told to resign or to stop.
    pub(crate) ordered: Ordered,
    pub(crate) slips: Slips,
}

/// What somebody told this process to do, so that the reason of an ending can be judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ordered {
    pub(crate) resign: bool,
    pub(crate) stop: bool,
}

/// What only planted bugs remember.
#[derive(Debug, Default)]
pub(crate) struct Slips {
    pub(crate) dead: bool,
    pub(crate) failures: u32,
    /// Version, writer's wall clock and ttl of the record as last seen.
    pub(crate) stamp: Option<(Version, u64, u64)>,
    pub(crate) version: Option<Version>,
    pub(crate) said_free: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) operation: Operation,
    pub(crate) sent_local: u64,
    pub(crate) given_up: bool,
}

/// An event that waits for a process that does not run.
#[derive(Debug)]
pub(crate) enum Waiting {
    Answer(CallId, Answer, Proof, u64),
    Notice(Notice),
    Use(Token),
}

impl Node {
    pub(crate) fn owner(&self, node: usize) -> Option<Owner> {
        let life = self.process.as_ref()?.life;
        Some(Owner { node, life })
    }

    /// Whether this life of its process is going on, paused or not.
    pub(crate) fn lives(&self, life: u64) -> bool {
        self.process.as_ref().is_some_and(|p| p.life == life)
    }

    pub(crate) fn runs(&self, life: u64) -> bool {
        !self.paused && self.lives(life)
    }

    pub(crate) fn now(&self, at: u64) -> u64 {
        self.clock.now(at)
    }

    /// Whether it would say at this true instant that it leads.
    pub(crate) fn believes(&self, at: u64) -> bool {
        self.leads(at).is_some()
    }

    /// The token by which it would say at this true instant that it leads.
    pub(crate) fn leads(&self, at: u64) -> Option<Token> {
        let belief = self.process.as_ref()?.belief.as_ref()?;
        belief.is_valid(self.now(at)).then_some(belief.token)
    }
}
