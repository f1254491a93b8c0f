//! An elector never dies quietly: whoever runs asks or renews, again and again.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

pub(super) struct ElectorGoesOn;

impl Checker for ElectorGoesOn {
    fn name(&self) -> &'static str {
        "elector_goes_on"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let (Fact::PhaseEnds, Phase::Quiet) = (fact, world.phase) else {
            return None;
        };
        let timing = &world.settings.timing;
        let most = timing.poll_every.max(timing.renew_every) + timing.call_timeout * 2;
        // Clocks run differently, and one that resigned rests for a ttl at most.
        let most = most.as_nanos() as u64 * 11 / 10 + world.ttl();
        for (n, node) in world.nodes.iter().enumerate() {
            let Some(process) = &node.process else {
                return Some(format!("the elector of node {n} has ended by itself"));
            };
            let silent = world.now - process.called_at;
            if silent > most {
                let seconds = silent as f64 / 1e9;
                return Some(format!(
                    "the elector of node {n} has asked nothing for {seconds:.3} s"
                ));
            }
        }
        None
    }
}
