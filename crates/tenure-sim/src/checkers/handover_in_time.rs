//! When a healthy leader resigns or is stopped, another leads within the time that
//! `Timing::check` states for a release.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

pub(super) struct HandoverInTime;

impl Checker for HandoverInTime {
    fn name(&self) -> &'static str {
        "handover_in_time"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let (Fact::PhaseEnds, Phase::Handover, Some(from)) = (fact, world.phase, world.resigned)
        else {
            return None;
        };
        // One that rests for a short time only may have taken it back, rightly.
        let rests = world.rest() > world.now - world.phase_began;
        let mut others = (0..world.nodes.len()).filter(|n| *n != from || !rests);
        let handed_over = others.any(|n| world.nodes[n].believes(world.now));
        (!handed_over).then(|| {
            let waited = (world.now - world.phase_began) as f64 / 1e9;
            format!("node {from} was told to go, and no other leads after {waited:.3} s")
        })
    }
}
