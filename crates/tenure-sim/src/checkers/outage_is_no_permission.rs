//! No answer from the store never makes a leader, and keeps none: nobody leads longer
//! than a ttl after sending the last request that the store confirmed.

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct OutageIsNoPermission;

impl Checker for OutageIsNoPermission {
    fn name(&self) -> &'static str {
        "outage_is_no_permission"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Began { owner, proof, .. } => {
                let confirmed = proof.is_some_and(|proof| proof.confirms.is_some());
                (!confirmed).then(|| format!("node {} leads, and nobody said so", owner.node))
            }
            Fact::Ended { owner, .. } => stays(world, owner.node),
            Fact::PhaseEnds | Fact::Extended { .. } | Fact::ClockChanged { .. } => {
                (0..world.nodes.len()).find_map(|n| stays(world, n))
            }
            _ => None,
        }
    }
}

fn stays(world: &World, n: usize) -> Option<String> {
    let node = &world.nodes[n];
    node.leads(world.now)?;
    let belief = node.process.as_ref()?.belief.as_ref()?;
    let since = world.now.saturating_sub(belief.confirmed_sent);
    let most = world.ttl() + world.ttl() / 1_000;
    (since > most).then(|| {
        let seconds = since as f64 / 1e9;
        format!("node {n} leads {seconds:.6} s after it sent the last confirmed request")
    })
}
