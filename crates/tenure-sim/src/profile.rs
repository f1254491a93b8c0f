//! Profiles: which faults a run has, and which promises hold under them.

use crate::faults::FaultKind::{self, *};
use crate::store::Kind;

/// How the clocks of a run may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    /// Any two run at rates that differ by less than the drift bound.
    Bounded,
    /// Each differs from true time by less than the bound, so that two may differ by
    /// twice as much: a watched store allows it, since both sides leave the margin.
    EachBounded,
    /// Anything from half as fast to twice as fast.
    Beyond,
}

/// A kind of run: its faults, and the checkers that do not apply to it.
#[derive(Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    pub(crate) faults: &'static [FaultKind],
    pub(crate) drift: Drift,
    pub(crate) kind: Option<Kind>,
    /// Calls take almost as long as they may, also when all is well.
    pub(crate) slow: bool,
    /// The store pushes that something has changed, also at a renewal, and not what.
    pub(crate) vague: bool,
    /// Checkers whose promise does not hold here, and why is said in `about`.
    pub(crate) off: &'static [&'static str],
}

const NETWORK: &[FaultKind] = &[
    PartitionBoth,
    PartitionThere,
    PartitionBack,
    Loss,
    Slow,
    Copies,
];
const PROCESSES: &[FaultKind] = &[Pause, Pause, Sleep, Crash, Resign, Stop, StepDown];
const CLOCKS: &[FaultKind] = &[Rate, WallJump, WallJump, Pause, Pause, PartitionBoth];
const STORES: &[FaultKind] = &[
    StoreDown,
    StoreErrors,
    StaleReads,
    LateExpiry,
    NoticesLost,
    NoticesTwice,
    NoticesForNothing,
    Pause,
    PartitionBoth,
];
const EVERYTHING: &[FaultKind] = &[
    PartitionBoth,
    PartitionThere,
    PartitionBack,
    Loss,
    Slow,
    Copies,
    Pause,
    Sleep,
    Crash,
    Resign,
    Stop,
    StepDown,
    Rate,
    WallJump,
    StoreDown,
    StoreErrors,
    StaleReads,
    LateExpiry,
    NoticesLost,
    NoticesTwice,
    NoticesForNothing,
];

const fn profile(name: &'static str, about: &'static str, faults: &'static [FaultKind]) -> Profile {
    Profile {
        name,
        about,
        faults,
        drift: Drift::Bounded,
        kind: None,
        slow: false,
        vague: false,
        off: &[],
    }
}

const fn on(kind: Kind, profile: Profile) -> Profile {
    Profile {
        kind: Some(kind),
        ..profile
    }
}

/// Every profile that the tests and the soak run, in turn.
pub const PROFILES: &[Profile] = &[
    profile("calm", "no faults but one slow call at a time", &[]),
    profile("network", "loss, copies, late and one-way traffic", NETWORK),
    profile(
        "processes",
        "pauses, sleep, crashes, resigning, stopping",
        PROCESSES,
    ),
    profile(
        "clocks",
        "rates within the bound, wall clocks that jump by an hour",
        CLOCKS,
    ),
    profile(
        "stores",
        "outages, errors, stale reads, late expiry, lost and doubled notices",
        STORES,
    ),
    profile("everything", "all faults within the bounds", EVERYTHING),
    profile(
        "orders",
        "resigning, stopping, stepping down on a bad network",
        &[
            Resign,
            Resign,
            Stop,
            Stop,
            StepDown,
            Loss,
            Loss,
            PartitionBack,
        ],
    ),
    profile(
        "slow-network",
        "calls that take longer than they may, and pauses",
        &[Slow, Slow, Pause, PartitionBack],
    ),
    Profile {
        drift: Drift::EachBounded,
        ..on(
            Kind::Watched,
            profile(
                "clocks-watched",
                "a watched store, each clock off by up to the bound",
                CLOCKS,
            ),
        )
    },
    Profile {
        drift: Drift::Beyond,
        off: &[
            "one_leader",
            "outage_is_no_permission",
            "work_stops_first",
            "ending_has_reason",
            "resigned_rests",
        ],
        ..profile(
            "drift-beyond",
            "clocks that run from half to twice as fast: tokens and fence hold, nothing else has to",
            EVERYTHING,
        )
    },
    profile(
        "rollbacks",
        "the store loses confirmed writes: one leader again two ttl after the last",
        &[Rollback, Rollback, Pause, Loss, Slow, Crash, StoreDown],
    ),
    profile(
        "deletions",
        "somebody deletes the record: one leader again two ttl after the last",
        &[Delete, Delete, Pause, Loss, Copies, Crash, Resign],
    ),
    Profile {
        slow: true,
        ..profile(
            "slow-store",
            "every call takes almost as long as it may, also when all is well",
            NETWORK,
        )
    },
    on(
        Kind::Clocked,
        profile(
            "store-jumps",
            "the store's clock jumps forward: one leader again two ttl after the last",
            &[
                StoreJump,
                StoreJump,
                StoreWallJump,
                Pause,
                Loss,
                Slow,
                Crash,
            ],
        ),
    ),
];

/// Profiles for one planted bug or finding each, narrower than those above.
pub const NARROW: &[Profile] = &[
    Profile {
        vague: true,
        ..profile(
            "vague-notices",
            "the store pushes 'look' at every change, also at a renewal",
            PROCESSES,
        )
    },
    on(
        Kind::Clocked,
        profile(
            "network-clocked",
            "network faults, a store with a clock",
            NETWORK,
        ),
    ),
    on(
        Kind::Watched,
        profile(
            "network-watched",
            "network faults, a watched store",
            NETWORK,
        ),
    ),
    on(
        Kind::Clocked,
        profile(
            "clocks-clocked",
            "clock faults, a store with a clock",
            CLOCKS,
        ),
    ),
    on(
        Kind::Clocked,
        profile(
            "store-clocks",
            "the store's wall clock jumps",
            &[StoreWallJump, StoreWallJump, Pause],
        ),
    ),
    on(
        Kind::Watched,
        profile(
            "slow-watched",
            "slow calls and pauses, a watched store",
            &[Slow, Slow, Pause],
        ),
    ),
    on(
        Kind::Watched,
        profile(
            "notices-watched",
            "notices twice and for nothing, a watched store",
            &[NoticesTwice, NoticesForNothing, NoticesForNothing, Pause],
        ),
    ),
    profile(
        "lost-time",
        "the store loses records and its wall clock goes back: tokens can repeat",
        &[Rollback, Delete, StoreWallJump, StoreWallJump, Crash, Pause],
    ),
    profile(
        "notices-late",
        "notices twice and for nothing",
        &[NoticesTwice, NoticesForNothing, Resign, StepDown],
    ),
];

/// The profile of this name.
pub fn find(name: &str) -> Option<&'static Profile> {
    let mut all = PROFILES.iter().chain(NARROW);
    all.find(|profile| profile.name == name)
}
