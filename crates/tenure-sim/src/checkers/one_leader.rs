//! At no true instant do two processes say that they lead.
//!
//! A belief is a span of true time without gaps: it begins with a grant and ends when the
//! node's own clock reaches the deadline, or before. So two overlap exactly if one is
//! valid at the instant at which the other begins, is moved, or its clock changes, and
//! these are the instants that are looked at: nothing is sampled.

use super::{Checker, Fact, breached};
use crate::world::World;

pub(super) struct OneLeader;

impl Checker for OneLeader {
    fn name(&self) -> &'static str {
        "one_leader"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let (Fact::Began { .. } | Fact::Extended { .. } | Fact::ClockChanged { .. }) = fact else {
            return None;
        };
        let nodes = world.nodes.iter().enumerate();
        let mut leaders = nodes.filter_map(|(n, node)| Some((n, node.leads(world.now)?)));
        let first = leaders.next()?;
        let second = leaders.next()?;
        if breached(world) {
            return None;
        }
        Some(format!(
            "node {} leads with token {} and node {} with token {}",
            first.0, first.1, second.0, second.1
        ))
    }
}
