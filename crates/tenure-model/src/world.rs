//! One moment of the world: nodes, store, requests under way, resource.
//!
//! Times are what is left or what has passed, in ticks, never points in time: so two
//! moments that differ only in when they happened are one state, and the checker walks
//! through an unlimited time. For the same reason a version is not a number here but
//! "the present one" or nothing: an earlier version never comes back.

use crate::setup::Setup;

/// The most requests that can be under way without anybody waiting for the answer.
pub const LATE_MAX: usize = 2;

/// One moment of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize> {
    /// The processes that want to lead.
    pub nodes: [Node; N],
    /// The store's record.
    pub record: Record,
    /// Requests that may still reach the store, any number of times, although nobody
    /// waits for the answer.
    pub late: [Option<(u8, Ask)>; LATE_MAX],
    /// What the leaders write to.
    pub resource: Resource,
    /// How many processes may still die.
    pub crashes: u8,
    /// How many times the record may still be deleted.
    pub deletions: u8,
    /// What has gone wrong so far.
    pub wrong: Wrong,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// What it does.
    pub phase: Phase,
    /// The one call that it waits for.
    pub pending: Option<Pending>,
    /// The attempt that its next acquire carries.
    pub attempt: Attempt,
    /// For how many of its ticks it has seen the present version of the record.
    pub seen: Option<u8>,
    /// A write of its work: checked, and not yet arrived at the resource.
    pub write: Option<Tenure>,
    /// True ticks until its clock may gain or lose another tick.
    pub steady: u8,
    /// For the checker: the latest of its tenures that has ended.
    pub ended: u8,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It wants to lead.
    Campaigning,
    /// It says that it leads, for `left` more ticks of its clock.
    Leading {
        /// What it believes to have.
        tenure: Tenure,
        /// Ticks until its deadline; never zero.
        left: u8,
    },
    /// It gives this tenure back.
    Releasing(Tenure),
}

/// One leadership as the store granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenure {
    /// Whose it is.
    pub holder: u8,
    /// Its fencing token.
    pub token: u8,
    /// For the checker: the how manieth tenure it is. No rule of the protocol looks here.
    pub order: u8,
}

/// Which request to lead it is, so that a repeated one gets the same tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// Which start of the process.
    pub life: u8,
    /// Which attempt of that start.
    pub number: u8,
}

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ask {
    /// Take the lease.
    Acquire {
        /// Which attempt.
        attempt: Attempt,
        /// Whether it names the present version of the record as ended.
        ended: bool,
    },
    /// Keep it.
    Renew(Tenure),
    /// Give it back.
    Release(Tenure),
}

/// A call that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// What was asked.
    pub ask: Ask,
    /// How many ticks of the node's clock ago.
    pub age: u8,
    /// How far it is.
    pub stage: Stage,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// On its way to the store.
    Asked,
    /// Done, and the answer is on its way back.
    Answered(Answer),
}

/// The store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The lease is the caller's.
    Granted(Tenure),
    /// Somebody has it.
    Held {
        /// Whether the version in the answer is still the present one.
        present: bool,
        /// The tenure, if it was granted to an attempt of this very process.
        ours: Option<Tenure>,
    },
    /// The term has begun anew.
    Renewed,
    /// The lease is no longer the caller's.
    Lost,
    /// The lease is free, or was not the caller's.
    Released,
}

/// The store's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who has it, by which attempt.
    pub lease: Option<(Tenure, Attempt)>,
    /// Ticks of the store's clock until it ends; zero where the store has no clock.
    pub left: u8,
    /// The last token, as far as the record knows.
    pub last: u8,
    /// For the checker: how many tenures were granted.
    pub granted: u8,
    /// For the checker: the greatest token that was granted.
    pub token_max: u8,
}

/// What the leaders write to, with its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The greatest token that was let through.
    pub token: u8,
    /// For the checker: the latest tenure that was let through.
    pub order: u8,
}

/// What has gone wrong so far; the promises look here for what a single moment cannot show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// A tenure got a token that is not greater than all before it.
    pub token: bool,
    /// A renewal or a release changed the lease of another tenure.
    pub touched: bool,
    /// The resource took a write of an earlier tenure after one of a later.
    pub fence: bool,
    /// A tenure that had ended was valid again.
    pub revived: bool,
}

impl<const N: usize> World<N> {
    pub(crate) fn new(setup: &Setup) -> Self {
        let node = Node {
            phase: Phase::Campaigning,
            pending: None,
            attempt: Attempt { life: 0, number: 0 },
            seen: None,
            write: None,
            steady: 0,
            ended: 0,
        };
        Self {
            nodes: [node; N],
            record: Record {
                lease: None,
                left: 0,
                last: 0,
                granted: 0,
                token_max: 0,
            },
            late: [None; LATE_MAX],
            resource: Resource { token: 0, order: 0 },
            crashes: setup.crashes,
            deletions: setup.deletions,
            wrong: Wrong::default(),
        }
    }

    /// Leaves a request under way that nobody waits for. Says no if there is no room.
    pub(crate) fn leave(&mut self, setup: &Setup, node: usize, ask: Ask) -> bool {
        let copy = Some((node as u8, ask));
        if self.late.contains(&copy) {
            return true;
        }
        let room = usize::from(setup.late).min(LATE_MAX);
        let Some(place) = self.late[..room].iter().position(Option::is_none) else {
            return false;
        };
        self.late[place] = copy;
        self.order_late();
        true
    }

    /// Which of two late requests was left first does not matter: one order for both.
    pub(crate) fn order_late(&mut self) {
        self.late.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The tenures that say at this moment that they are valid.
    pub fn valid(&self) -> impl Iterator<Item = Tenure> + '_ {
        self.nodes.iter().filter_map(Node::valid)
    }
}

impl Node {
    /// The tenure that this node says is valid, by its own deadline and clock alone.
    pub fn valid(&self) -> Option<Tenure> {
        match self.phase {
            Phase::Leading { tenure, .. } => Some(tenure),
            Phase::Campaigning | Phase::Releasing(_) => None,
        }
    }
}
