//! The phases of a run: first everything goes wrong, then the promises of a healthy
//! cluster are called in one by one.

/// What part of the run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults of the profile.
    Chaos,
    /// All faults have ended: a leader has to appear.
    Healing,
    /// Nothing goes wrong: the leader stays.
    Quiet,
    /// One call of the leader goes wrong at a time: the leader stays.
    OneFault,
    /// The leader has crashed: another has to appear.
    Failover,
    /// The leader has crashed again, and the answer to the next grant is lost.
    LostGrant,
    /// The leader has been told to resign or to stop: another has to appear.
    Handover,
    /// The end of the run.
    Done,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Chaos => "chaos: faults begin",
            Phase::Healing => "healing: all faults have ended",
            Phase::Quiet => "quiet: nothing goes wrong",
            Phase::OneFault => "one fault at a time",
            Phase::Failover => "failover: the leader crashes",
            Phase::LostGrant => "lost grant: the leader crashes, the next grant's answer is lost",
            Phase::Handover => "handover: the leader is told to resign or to stop",
            Phase::Done => "done",
        }
    }

    pub(crate) fn next(self) -> Phase {
        match self {
            Phase::Chaos => Phase::Healing,
            Phase::Healing => Phase::Quiet,
            Phase::Quiet => Phase::OneFault,
            Phase::OneFault => Phase::Failover,
            Phase::Failover => Phase::LostGrant,
            Phase::LostGrant => Phase::Handover,
            Phase::Handover | Phase::Done => Phase::Done,
        }
    }
}
