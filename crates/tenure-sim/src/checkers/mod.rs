//! One checker per promise, each in the file of its name.
//!
//! A checker is shown every fact in the order of true time, together with the whole
//! world as it is at that instant, and says what does not hold.

mod asks_in_measure;
mod deadline_from_sending;
mod elector_goes_on;
mod ended_stays_ended;
mod ending_has_reason;
mod fence_holds;
mod handover_in_time;
mod healthy_leader_stays;
mod leader_appears;
mod one_leader;
mod outage_is_no_permission;
mod release_frees_own;
mod renew_keeps_own;
mod resigned_rests;
mod slow_answer_costs_nothing;
mod tokens_grow;
mod unknown_is_found_again;
mod unknown_is_no_belief;
mod work_is_told;
mod work_stops_first;

use tenure::{EndReason, Token};

use crate::event::{Owner, Proof};
use crate::phase::Phase;
use crate::profile::Profile;
use crate::resource::Written;
use crate::store::{Deed, Kind};
use crate::world::World;

/// Something that happened, seen from outside.
#[derive(Debug)]
pub(crate) enum Fact {
    /// The store did this.
    Done(Deed),
    /// A process says from now on that it leads.
    Began {
        owner: Owner,
        token: Token,
        deadline: u64,
        proof: Option<Proof>,
    },
    /// A tenure got a later deadline.
    Extended {
        owner: Owner,
        token: Token,
        deadline: u64,
        was_valid: bool,
        proof: Option<Proof>,
    },
    /// A tenure was ended, with its reason; the belief is still there to be looked at.
    Ended {
        owner: Owner,
        token: Token,
        reason: EndReason,
    },
    /// Work wrote to the fenced resource.
    Wrote {
        owner: Owner,
        token: Token,
        written: Written,
    },
    /// A node's clock changed its rate or what it shows, or ran on after a sleep.
    ClockChanged { node: usize, believed: bool },
    /// A process died.
    Crashed { owner: Owner },
    /// The store granted this and the answer was lost: it has to have been found by now.
    FoundAgain { owner: Owner, token: Token },
    /// A phase of the run ends.
    PhaseEnds,
    /// A phase of the run begins.
    PhaseBegins,
}

/// Watches over one promise.
pub(crate) trait Checker {
    fn name(&self) -> &'static str;

    /// Looks at a fact, and says what does not hold.
    fn see(&mut self, world: &World, fact: &Fact) -> Option<String>;
}

/// The checkers whose promises hold under this profile.
pub(crate) fn of(profile: &Profile) -> Vec<Box<dyn Checker>> {
    let mut all = all();
    all.retain(|checker| !profile.off.contains(&checker.name()));
    all
}

/// The name of every checker.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|checker| checker.name()).collect()
}

fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(one_leader::OneLeader),
        Box::new(tokens_grow::TokensGrow::default()),
        Box::new(fence_holds::FenceHolds),
        Box::new(release_frees_own::ReleaseFreesOwn),
        Box::new(renew_keeps_own::RenewKeepsOwn),
        Box::new(unknown_is_no_belief::UnknownIsNoBelief),
        Box::new(unknown_is_found_again::UnknownIsFoundAgain),
        Box::new(deadline_from_sending::DeadlineFromSending),
        Box::new(outage_is_no_permission::OutageIsNoPermission),
        Box::new(ended_stays_ended::EndedStaysEnded),
        Box::new(ending_has_reason::EndingHasReason::default()),
        Box::new(work_is_told::WorkIsTold),
        Box::new(work_stops_first::WorkStopsFirst),
        Box::new(leader_appears::LeaderAppears),
        Box::new(healthy_leader_stays::HealthyLeaderStays),
        Box::new(slow_answer_costs_nothing::SlowAnswerCostsNothing),
        Box::new(elector_goes_on::ElectorGoesOn),
        Box::new(asks_in_measure::AsksInMeasure::default()),
        Box::new(handover_in_time::HandoverInTime),
        Box::new(resigned_rests::ResignedRests::default()),
    ]
}

/// Whether the store did something that it may not do, and the time in which that can
/// still show has not passed: a ttl, by which all who believed it before have ended.
///
/// A store without a clock that loses writes and then gives the same versions to other
/// records is worse: it harms until every candidate has looked again.
fn breached(world: &World) -> bool {
    let repeats = world.store.kind == Kind::Watched && world.store.revision_rolls_back;
    if repeats && world.last_breach.is_some() && world.phase < Phase::Quiet {
        return true;
    }
    let until = |breach: u64| breach + world.ttl() + world.ttl() / 50;
    world
        .last_breach
        .is_some_and(|breach| world.now < until(breach))
}
