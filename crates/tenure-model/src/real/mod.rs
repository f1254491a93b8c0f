//! The real state machine and the real in-memory store, driven through every
//! interleaving of a smaller world.
//!
//! [`Election`](tenure::election::Election) can be neither copied nor compared, so a
//! state here is the way that led to it: to take a step, the world is built anew and the
//! way is walked again. Whether two ways lead to the same state is told by the text of
//! everything in it, written relative to the node's clock (see the module `text`).

mod live;
mod text;

use std::fmt;
use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use self::live::Live;
use crate::promises::{BACKED, ENDS_FOR_GOOD, ONE_AT_A_TIME, TOKENS_GROW, TOUCHES_ITS_OWN};
use crate::world::Wrong;

/// Two real elections on one real store, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// Whether the store judges expiry by its clock, or candidates watch the record.
    pub own_clock: bool,
    /// Whether the first node's clock may lose one tick in any ttl, and the second's gain one.
    pub drift: bool,
    /// How many tenures the store may grant in all.
    pub tenures: usize,
    /// How many requests may be under way that nobody waits for any more.
    pub late: usize,
    /// How often a process may die and start again under the same holder.
    pub crashes: u8,
    /// Whether leaders resign.
    pub resigns: bool,
    /// What is wrong with the world around the elections, on purpose.
    pub broken: Option<RealBreak>,
}

impl Real {
    /// On a store with a clock.
    pub fn own_clock() -> Self {
        Self {
            own_clock: true,
            drift: true,
            tenures: 2,
            late: 1,
            crashes: 0,
            resigns: true,
            broken: None,
        }
    }

    /// On a store whose record is watched.
    pub fn watched() -> Self {
        Self {
            own_clock: false,
            resigns: false,
            ..Self::own_clock()
        }
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = if self.own_clock {
            "in-memory store with a clock"
        } else {
            "watched in-memory store"
        };
        let (tenures, late) = (self.tenures, self.late);
        let drift = if self.drift {
            ", clocks that drift"
        } else {
            ""
        };
        let resigns = if self.resigns {
            ", resigning leaders"
        } else {
            ""
        };
        let crashes = if self.crashes > 0 { ", crashes" } else { "" };
        write!(
            f,
            "{store}{drift}, tenures up to {tenures}, late requests up to {late}{resigns}{crashes}"
        )
    }
}

/// A fault around the real state machine that it must not be able to hide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealBreak {
    /// Clocks run slower than the drift bound allows.
    ClocksBeyondBound,
    /// The answer to a call that was given up is taken for the answer to the next one.
    AnswersMixedUp,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A tick of true time; each node's clock goes on by so much.
    Tick([u8; 2]),
    /// A node wakes and looks what is due.
    Wake(usize),
    /// A node's request reaches the store; a copy may come again.
    Reach {
        /// Whose.
        node: usize,
        /// Whether a copy stays under way.
        doubled: bool,
    },
    /// A request that nobody waits for reaches the store.
    ReachLate(usize),
    /// The answer reaches the node.
    Receive(usize),
    /// A leader is told to resign.
    Resign(usize),
    /// The work of a tenure that ends has stopped.
    WorkDone(usize),
    /// A process dies and starts again under the same holder.
    Crash(usize),
}

/// The way to a state, and what is to be seen there.
#[derive(Clone, Debug)]
pub struct Way {
    steps: Vec<Step>,
    next: Vec<Step>,
    print: u64,
    view: View,
}

/// What the promises look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) valid: usize,
    pub(crate) backed: bool,
    pub(crate) succeeded: bool,
    pub(crate) late_meets_successor: bool,
    pub(crate) wrong: Wrong,
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Hash for Way {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl Model for Real {
    type State = Way;
    type Action = Step;

    fn init_states(&self) -> Vec<Way> {
        vec![way(&Live::new(*self), Vec::new())]
    }

    fn actions(&self, way: &Way, steps: &mut Vec<Step>) {
        steps.extend_from_slice(&way.next);
    }

    fn next_state(&self, from: &Way, step: Step) -> Option<Way> {
        let mut live = Live::new(*self);
        for step in &from.steps {
            live.take(*step);
        }
        if !live.take(step) {
            return None;
        }
        let mut steps = Vec::with_capacity(from.steps.len() + 1);
        steps.extend_from_slice(&from.steps);
        steps.push(step);
        Some(way(&live, steps))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_AT_A_TIME, |_, way| way.view.valid <= 1),
            Property::<Self>::always(BACKED, |_, way| way.view.backed),
            Property::<Self>::always(TOKENS_GROW, |_, way| !way.view.wrong.token),
            Property::<Self>::always(TOUCHES_ITS_OWN, |_, way| !way.view.wrong.touched),
            Property::<Self>::always(ENDS_FOR_GOOD, |_, way| !way.view.wrong.revived),
            Property::<Self>::sometimes("a leader is elected", |_, way| way.view.valid == 1),
            Property::<Self>::sometimes("another leads after it", |_, way| way.view.succeeded),
        ];
        if self.late > 0 {
            properties.push(Property::<Self>::sometimes(
                "a late renewal or release meets a successor",
                |_, way| way.view.late_meets_successor,
            ));
        }
        properties
    }
}

fn way(live: &Live, steps: Vec<Step>) -> Way {
    Way {
        steps,
        next: live.next(),
        print: live.print(),
        view: live.view(),
    }
}
