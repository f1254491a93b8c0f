//! The runs: which bounds the tests walk through, and which the big check.

use crate::protocol::Protocol;
use crate::real::Real;
use crate::run::{Limits, Outcome, check};
use crate::setup::{Break, Setup};

/// One run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The model with two nodes.
    Two(Setup),
    /// The model with three nodes.
    Three(Setup),
    /// Two real elections on the real in-memory store; all ways of so many steps, or all.
    Real(Real, Option<usize>),
}

impl Run {
    /// The smallest run in which this break shows.
    pub fn broken(broken: Break) -> Self {
        Run::Two(broken.setup())
    }

    /// Walks through it; see [`check`].
    pub fn check(&self, threads: usize, progress: impl FnMut(&Outcome)) -> Outcome {
        let all = Limits::all(threads);
        let limits = |setup: Setup| Limits {
            to_break: setup.broken.map(Break::promise),
            ..all
        };
        match *self {
            Run::Two(setup) => check(Protocol::<2> { setup }, limits(setup), progress),
            Run::Three(setup) => check(Protocol::<3> { setup }, limits(setup), progress),
            Run::Real(real, depth) => check(real, depth.map_or(all, Limits::depth), progress),
        }
    }

    /// The bounds in words.
    pub fn describe(&self) -> String {
        match self {
            Run::Two(setup) => format!("2 nodes, {setup}"),
            Run::Three(setup) => format!("3 nodes, {setup}"),
            Run::Real(real, None) => format!("2 real elections, {real}"),
            Run::Real(real, Some(depth)) => {
                format!("2 real elections, {real}, every way of {depth} steps")
            }
        }
    }
}

/// What `cargo test` walks through, in some seconds.
pub fn bounded() -> Vec<Run> {
    let (own_clock, watched) = (Setup::own_clock(), Setup::watched());
    let faults = |setup: Setup| Setup {
        ttl: 2,
        drift: false,
        late: 0,
        crashes: 1,
        deletions: 1,
        writes: true,
        ..setup
    };
    vec![
        Run::Two(own_clock),
        Run::Two(Setup { late: 0, ..watched }),
        Run::Two(Setup { ttl: 2, ..watched }),
        Run::Two(faults(own_clock)),
        Run::Three(Setup {
            ttl: 2,
            late: 0,
            ..own_clock
        }),
    ]
}

/// The real elections of `cargo test`.
pub fn bounded_real() -> Vec<Run> {
    let few = |real: Real| Real {
        late: 0,
        resigns: false,
        ..real
    };
    vec![
        Run::Real(few(Real::own_clock()), Some(9)),
        Run::Real(
            Real {
                drift: false,
                ..Real::own_clock()
            },
            Some(9),
        ),
        Run::Real(few(Real::watched()), Some(12)),
    ]
}

/// What the big check walks through, in some minutes.
pub fn big() -> Vec<Run> {
    let (own_clock, watched) = (Setup::own_clock(), Setup::watched());
    let faults = |setup: Setup| Setup {
        ttl: 2,
        crashes: 1,
        deletions: 1,
        writes: true,
        ..setup
    };
    vec![
        Run::Two(Setup {
            tenures: 3,
            ..own_clock
        }),
        Run::Two(Setup {
            tenures: 3,
            ..watched
        }),
        Run::Two(faults(own_clock)),
        Run::Two(Setup {
            late: 0,
            ..faults(watched)
        }),
        Run::Three(Setup {
            ttl: 2,
            ..own_clock
        }),
        Run::Three(Setup {
            ttl: 2,
            late: 0,
            ..watched
        }),
    ]
}

/// The real elections of the big check.
pub fn big_real() -> Vec<Run> {
    vec![
        Run::Real(Real::own_clock(), Some(12)),
        Run::Real(Real::watched(), Some(13)),
    ]
}
