//! While nothing goes wrong nobody asks the store more often than its timing says.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

#[derive(Default)]
pub(super) struct AsksInMeasure {
    /// Life and calls of each node's process as the quiet phase began.
    before: Vec<Option<(u64, u64)>>,
}

impl Checker for AsksInMeasure {
    fn name(&self) -> &'static str {
        "asks_in_measure"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let calls = || {
            let processes = world.nodes.iter().map(|node| node.process.as_ref());
            processes.map(|process| process.map(|p| (p.life, p.called)))
        };
        match fact {
            Fact::PhaseBegins if world.phase == Phase::Quiet => {
                self.before = calls().collect();
                None
            }
            Fact::PhaseEnds if world.phase == Phase::Quiet => {
                let timing = &world.settings.timing;
                let every = timing.poll_every.min(timing.renew_every).as_nanos() as f64;
                let passed = (world.now - world.phase_began) as f64;
                // A store that says 'look' for everything may bring some looks between two
                // renewals, each after twice the wait of the one before.
                let looks = if world.store.only_says_look { 6.0 } else { 1.0 };
                // One more at each end, and one for a notice that was on its way.
                let most = 3 + (looks * passed * 1.1 / (every * (1.0 - timing.jitter))) as u64;
                let pairs = self.before.iter().zip(calls()).enumerate();
                pairs.into_iter().find_map(|(n, (before, after))| {
                    let ((life, first), (same, last)) = ((*before)?, after?);
                    let asked = last - first.min(last);
                    (life == same && asked > most)
                        .then(|| format!("node {n} asked {asked} times where {most} are enough"))
                })
            }
            _ => None,
        }
    }
}
