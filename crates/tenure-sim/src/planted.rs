//! Planted bugs: each a small switch that breaks one rule, to prove that a checker sees it.
//!
//! All of them sit around the election (in the simulated driver, clock, network, store or
//! resource): the state machine itself runs unchanged, also here.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is described in PLANTED")]
pub enum Bug {
    DeadlineFromAnswer,
    WallClockTrusted,
    StoreTrustsWallClock,
    SuspendNotCounted,
    DriftNotSubtracted,
    WatchedWithoutDrift,
    WatchedSinceSending,
    WallClocksCompared,
    NoticeIsProof,
    ReleaseWithoutToken,
    ReleaseWithoutCompare,
    RenewWithoutCompare,
    TakeWithoutCompare,
    CheckThenAct,
    RetryAfterCommitIsConflict,
    RenewTimeoutIsLoss,
    RenewTimeoutIsSuccess,
    AcquireTimeoutIsSuccess,
    OutageIsPermission,
    UnknownAcquireForgotten,
    LateAnswerBelieved,
    TokenResetAfterDelete,
    RenewalAtTtl,
    ExtensionAfterDeadline,
    FenceWrongWay,
    FenceRefusesEqual,
    ReleaseWhileWorkRuns,
    WorkToldAtDeadline,
    FollowerNeverRetries,
    ElectorDiesAfterLoss,
    StaleNoticeEndsLeader,
    EndSwallowed,
    ReleaseForgotten,
    PollsTooOften,
    RestSkipped,
    EndNeverNamed,
}

/// A planted bug with all that is needed to catch it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The switch.
    pub bug: Bug,
    /// Its name on the command line.
    pub name: &'static str,
    /// The rule that it breaks.
    pub breaks: &'static str,
    /// The profile that brings it out.
    pub profile: &'static str,
    /// The checker that has to catch it.
    pub caught_by: &'static str,
}

macro_rules! planted {
    ($($bug:ident $name:literal, $profile:literal, $checker:literal, $breaks:literal;)*) => {
        /// Every planted bug.
        pub const PLANTED: &[Planted] = &[$(Planted {
            bug: Bug::$bug,
            name: $name,
            breaks: $breaks,
            profile: $profile,
            caught_by: $checker,
        }),*];
    };
}

planted! {
    DeadlineFromAnswer "deadline-from-answer", "slow-network", "one_leader",
        "the deadline is counted from when the answer came";
    WallClockTrusted "wall-clock-trusted", "clocks", "one_leader",
        "the holder's deadline is judged by the wall clock";
    StoreTrustsWallClock "store-trusts-wall-clock", "store-clocks", "one_leader",
        "the store judges expiry by its wall clock";
    SuspendNotCounted "suspend-not-counted", "processes", "one_leader",
        "the clock stands still while the machine sleeps";
    DriftNotSubtracted "drift-not-subtracted", "clocks-clocked", "one_leader",
        "the drift bound is not subtracted from the deadline";
    WatchedWithoutDrift "watched-without-drift", "clocks-watched", "one_leader",
        "a watched record is taken after its ttl, without the drift bound";
    WatchedSinceSending "watched-since-sending", "slow-watched", "one_leader",
        "a watched record counts as unchanged since the read was sent";
    WallClocksCompared "wall-clocks-compared", "clocks-watched", "one_leader",
        "a watched record is taken when its writer's wall time is past by one's own wall clock";
    NoticeIsProof "notice-is-proof", "notices-watched", "one_leader",
        "a pushed 'free' is taken as proof that the record has ended";
    ReleaseWithoutToken "release-without-token", "network", "release_frees_own",
        "a release names the holder but not the token";
    ReleaseWithoutCompare "release-without-compare", "network", "release_frees_own",
        "a release frees whatever is there";
    RenewWithoutCompare "renew-without-compare", "network", "renew_keeps_own",
        "a renewal writes over whatever is there";
    TakeWithoutCompare "take-without-compare", "network-watched", "one_leader",
        "an ended record is taken without comparing the version";
    CheckThenAct "check-then-act", "network-clocked", "one_leader",
        "the store decides on what it read before, not in one step";
    RetryAfterCommitIsConflict "retry-after-commit-is-conflict", "calm", "slow_answer_costs_nothing",
        "a renewal that is repeated after its first copy was written is read as lost";
    RenewTimeoutIsLoss "renew-timeout-is-loss", "calm", "slow_answer_costs_nothing",
        "a renewal without an answer is read as lost";
    RenewTimeoutIsSuccess "renew-timeout-is-success", "network", "one_leader",
        "a renewal without an answer is read as confirmed";
    AcquireTimeoutIsSuccess "acquire-timeout-is-success", "network", "unknown_is_no_belief",
        "an acquire without an answer is read as granted";
    OutageIsPermission "outage-is-permission", "network", "outage_is_no_permission",
        "a candidate that cannot reach the store for long enough leads";
    UnknownAcquireForgotten "unknown-acquire-forgotten", "calm", "unknown_is_found_again",
        "an acquire without an answer is asked anew, not again";
    LateAnswerBelieved "late-answer-believed", "slow-network", "deadline_from_sending",
        "the late answer to a call that was given up counts for the call after it";
    TokenResetAfterDelete "token-reset-after-delete", "deletions", "tokens_grow",
        "the token begins anew when the record was deleted";
    RenewalAtTtl "renewal-at-ttl", "calm", "healthy_leader_stays",
        "the leader renews once a ttl";
    ExtensionAfterDeadline "extension-after-deadline", "processes", "ended_stays_ended",
        "a renewal that was confirmed before the deadline and read after it revives the tenure";
    FenceWrongWay "fence-wrong-way", "processes", "fence_holds",
        "the fence turns away newer tokens and takes older ones";
    FenceRefusesEqual "fence-refuses-equal", "calm", "fence_holds",
        "the fence turns away the second write of a leader";
    ReleaseWhileWorkRuns "release-while-work-runs", "processes", "work_stops_first",
        "the lease is released while guarded work still runs";
    WorkToldAtDeadline "work-told-at-deadline", "network", "work_is_told",
        "guarded work is told to stop at the deadline, not one grace before";
    FollowerNeverRetries "follower-never-retries", "network", "elector_goes_on",
        "a follower whose call failed does not ask again";
    ElectorDiesAfterLoss "elector-dies-after-loss", "network", "elector_goes_on",
        "the elector ends with its first tenure";
    StaleNoticeEndsLeader "stale-notice-ends-leader", "notices-late", "ending_has_reason",
        "a leader that is pushed an old 'free' gives up";
    EndSwallowed "end-swallowed", "network", "ending_has_reason",
        "a tenure ends and nobody is told why";
    ReleaseForgotten "release-forgotten", "calm", "handover_in_time",
        "one that resigns or stops sends no release";
    PollsTooOften "polls-too-often", "calm", "asks_in_measure",
        "a follower asks five times as often as it is set to";
    RestSkipped "rest-skipped", "processes", "resigned_rests",
        "one that resigned campaigns again at once";
    EndNeverNamed "end-never-named", "network-watched", "leader_appears",
        "a candidate never says that a watched record has ended";
}

impl Bug {
    /// Whether it only shows where the store pushes changes.
    pub(crate) fn needs_notices(self) -> bool {
        matches!(self, Bug::NoticeIsProof | Bug::StaleNoticeEndsLeader)
    }
}

/// The planted bug of this name.
pub fn find(name: &str) -> Option<&'static Planted> {
    PLANTED.iter().find(|planted| planted.name == name)
}
