//! Guarded work is told to stop one grace before the deadline, if its process runs.

use super::{Checker, Fact};
use crate::world::World;

/// Clocks count whole nanoseconds, so an instant may be one late.
const ROUNDING: u64 = 1_000;

pub(super) struct WorkIsTold;

impl Checker for WorkIsTold {
    fn name(&self) -> &'static str {
        "work_is_told"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let Fact::Ended { owner, token, .. } = fact else {
            return None;
        };
        let node = &world.nodes[owner.node];
        let belief = node.process.as_ref()?.belief.as_ref()?;
        let due = belief.cut_off_at.saturating_sub(world.grace());
        let ended_before = node.now(world.now) <= due + ROUNDING;
        let did_not_run = node.resumed_at >= due;
        let told = belief.told_at.is_some_and(|told| told <= due + ROUNDING);
        (!ended_before && !did_not_run && !told).then(|| {
            let node = owner.node;
            format!("the work of token {token} on node {node} was not told one grace before its deadline")
        })
    }
}
