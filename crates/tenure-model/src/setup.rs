//! What a run of the model is made of: its bounds, and the rule that is left out, if any.

use std::fmt;

use crate::promises;

/// The bounds of one run. Within them the checker walks through everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Whether the store judges expiry by a clock of its own, or candidates watch the record.
    pub own_clock: bool,
    /// The ttl in ticks.
    pub ttl: u8,
    /// Whether each node's clock may gain or lose one tick in any ttl of true time.
    pub drift: bool,
    /// How many tenures the store may grant in all.
    pub tenures: u8,
    /// How many requests may be under way that nobody waits for any more (given up,
    /// doubled, or their sender died); at most [`LATE_MAX`](crate::LATE_MAX).
    pub late: u8,
    /// How often a process may die and start again under the same holder.
    pub crashes: u8,
    /// How often somebody may delete the record of an ended lease.
    pub deletions: u8,
    /// Whether leaders write to a fenced resource, with writes that may arrive late.
    pub writes: bool,
    /// The rule that is left out.
    pub broken: Option<Break>,
}

impl Setup {
    /// A store with a clock of its own; small bounds.
    pub fn own_clock() -> Self {
        Self {
            own_clock: true,
            ttl: 3,
            drift: true,
            tenures: 2,
            late: 1,
            crashes: 0,
            deletions: 0,
            writes: false,
            broken: None,
        }
    }

    /// A store without a clock, whose record is watched; small bounds.
    pub fn watched() -> Self {
        Self {
            own_clock: false,
            ..Self::own_clock()
        }
    }

    /// Whether this rule is left out.
    pub(crate) fn is(&self, broken: Break) -> bool {
        self.broken == Some(broken)
    }

    fn drift_ticks(&self) -> u8 {
        u8::from(self.drift)
    }

    /// How long after sending a confirmed request a tenure is valid, in the node's ticks.
    pub(crate) fn deadline_after(&self) -> u8 {
        if self.is(Break::DriftNotSubtracted) {
            self.ttl
        } else {
            self.ttl - self.drift_ticks()
        }
    }

    /// How long a record has to be seen unchanged before it has ended, in the node's ticks.
    pub(crate) fn watched_term(&self) -> u8 {
        if self.is(Break::DriftNotAdded) {
            self.ttl
        } else {
            self.ttl + self.drift_ticks()
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = if self.own_clock {
            "store with a clock"
        } else {
            "watched store"
        };
        let (ttl, tenures, late) = (self.ttl, self.tenures, self.late);
        write!(f, "{store}, ttl {ttl} ticks")?;
        if self.drift {
            f.write_str(", clocks that drift")?;
        }
        write!(f, ", tenures up to {tenures}, late requests up to {late}")?;
        for (what, many) in [("crashes", self.crashes), ("deletions", self.deletions)] {
            if many > 0 {
                write!(f, ", {what} up to {many}")?;
            }
        }
        if self.writes {
            f.write_str(", writes to a fenced resource")?;
        }
        Ok(())
    }
}

/// One rule of the protocol, left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Break {
    /// The deadline counts from the moment that the answer came.
    DeadlineFromAnswer,
    /// The deadline is the whole ttl.
    DriftNotSubtracted,
    /// A watched record counts as ended after its bare ttl.
    DriftNotAdded,
    /// A record counts as watched since the question was sent, not since the answer came.
    WatchedFromSendTime,
    /// A record goes on being watched although it has changed meanwhile.
    WatchIgnoresVersion,
    /// The store takes the record of another without comparing its version.
    NoCompare,
    /// A release names the holder only.
    ReleaseWithoutToken,
    /// A renewal names the holder only.
    RenewWithoutToken,
    /// A leader that resigns goes on believing until the release is confirmed.
    ReleaseBeforeEnd,
    /// After a deletion of the record the tokens begin at one again.
    TokenResetOnDelete,
    /// An acquire without an answer is read as granted.
    UnknownAcquireIsYes,
    /// A renewal without an answer is read as confirmed.
    UnknownRenewIsYes,
    /// A confirmation that comes after the deadline makes the tenure valid again.
    LateAnswerRevives,
    /// The resource takes every write.
    FenceLeftOut,
    /// Somebody deletes the record of a lease that has not ended. No rule of a protocol
    /// helps against that; the fence still does.
    LiveRecordDeleted,
}

impl Break {
    /// All of them.
    pub const ALL: [Break; 15] = [
        Break::DeadlineFromAnswer,
        Break::DriftNotSubtracted,
        Break::DriftNotAdded,
        Break::WatchedFromSendTime,
        Break::WatchIgnoresVersion,
        Break::NoCompare,
        Break::ReleaseWithoutToken,
        Break::RenewWithoutToken,
        Break::ReleaseBeforeEnd,
        Break::TokenResetOnDelete,
        Break::UnknownAcquireIsYes,
        Break::UnknownRenewIsYes,
        Break::LateAnswerRevives,
        Break::FenceLeftOut,
        Break::LiveRecordDeleted,
    ];

    /// The promise that this break breaks.
    pub fn promise(self) -> &'static str {
        match self {
            Break::TokenResetOnDelete => promises::TOKENS_GROW,
            Break::ReleaseWithoutToken | Break::RenewWithoutToken => promises::TOUCHES_ITS_OWN,
            Break::LateAnswerRevives => promises::ENDS_FOR_GOOD,
            Break::FenceLeftOut => promises::FENCED,
            Break::UnknownAcquireIsYes => promises::BACKED,
            _ => promises::ONE_AT_A_TIME,
        }
    }

    /// The smallest run that shows what this break does.
    pub fn setup(self) -> Setup {
        let broken = Some(self);
        match self {
            Break::DriftNotAdded | Break::WatchedFromSendTime => Setup {
                broken,
                ..Setup::watched()
            },
            Break::WatchIgnoresVersion | Break::NoCompare => Setup {
                drift: false,
                broken,
                ..Setup::watched()
            },
            Break::TokenResetOnDelete => Setup {
                deletions: 1,
                writes: true,
                broken,
                ..Setup::own_clock()
            },
            Break::FenceLeftOut | Break::LiveRecordDeleted => Setup {
                ttl: 2,
                drift: false,
                late: u8::from(self == Break::FenceLeftOut),
                deletions: u8::from(self == Break::LiveRecordDeleted),
                writes: true,
                broken,
                ..Setup::own_clock()
            },
            _ => Setup {
                tenures: 3,
                broken,
                ..Setup::own_clock()
            },
        }
    }
}
