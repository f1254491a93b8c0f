//! When faults have ended, and when a leader has died, the next leads within the worst
//! case that `Timing::check` states.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

pub(super) struct LeaderAppears;

impl Checker for LeaderAppears {
    fn name(&self) -> &'static str {
        "leader_appears"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let Fact::PhaseEnds = fact else {
            return None;
        };
        let (Phase::Healing | Phase::Failover | Phase::LostGrant) = world.phase else {
            return None;
        };
        let led = world.nodes.iter().any(|node| node.believes(world.now));
        (!led).then(|| {
            let waited = (world.now - world.phase_began) as f64 / 1e9;
            format!("nobody leads after {waited:.3} s ({})", world.phase.name())
        })
    }
}
