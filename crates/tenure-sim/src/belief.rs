//! What a process believes about its tenure: the same rules as `tenure::Tenure`, on a
//! clock that the simulator turns.

use tenure::Token;

/// The deadline of a tenure that has ended for good.
const ENDED: u64 = 0;

#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) token: Token,
    /// By the node's own clock; ENDED once it has ended.
    pub(crate) deadline: u64,
    /// The last deadline that it had: work is cut off there at the latest.
    pub(crate) cut_off_at: u64,
    pub(crate) grace: u64,
    /// When work was told to stop, by the node's own clock.
    pub(crate) told_at: Option<u64>,
    pub(crate) work: Option<Work>,
    pub(crate) progress_at: u64,
    /// When the last confirmed request was sent, in true time.
    pub(crate) confirmed_sent: u64,
}

/// Guarded work of a tenure that is still running.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// How long it takes to stop once it is told; none: it has to be cut off.
    pub(crate) stops_after: Option<u64>,
    /// It reports no progress.
    pub(crate) stalls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    Moved,
    Overrun,
    Told,
}

impl Belief {
    /// What `Tenure::is_valid` would answer now.
    pub(crate) fn is_valid(&self, now: u64) -> bool {
        self.deadline != ENDED && now < self.deadline
    }

    /// `even_late` is a planted bug: the extension comes after the deadline and counts.
    pub(crate) fn extend(&mut self, now: u64, to: u64, even_late: bool) -> Extended {
        if !self.is_valid(now) && !even_late {
            return Extended::Overrun;
        }
        if self.told_at.is_some() && !even_late {
            return Extended::Told;
        }
        self.deadline = to;
        self.cut_off_at = to;
        Extended::Moved
    }

    pub(crate) fn tell(&mut self, now: u64) -> bool {
        let first = self.told_at.is_none();
        self.told_at.get_or_insert(now);
        first
    }

    pub(crate) fn end(&mut self) {
        self.deadline = ENDED;
    }

    /// When its own timer has something to do next.
    pub(crate) fn timer_at(&self) -> Option<u64> {
        if self.deadline != ENDED && self.told_at.is_none() {
            return Some(self.deadline.saturating_sub(self.grace));
        }
        self.work.as_ref().map(|_| self.cut_off_at)
    }
}
