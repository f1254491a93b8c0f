//! A grant whose answer was lost is found again and used, or freed: the lease is not
//! left with one who does not know of it.

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct UnknownIsFoundAgain;

impl Checker for UnknownIsFoundAgain {
    fn name(&self) -> &'static str {
        "unknown_is_found_again"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let Fact::FoundAgain { owner, token } = fact else {
            return None;
        };
        let record = world.store.record.as_ref()?;
        let still = record.token == *token && world.store.live(record, world.now).is_some();
        let node = &world.nodes[owner.node];
        let known = node.leads(world.now) == Some(*token);
        let could_know = node.runs(owner.life) || world.stopped_unaware == Some(*owner);
        (still && could_know && !known).then(|| {
            let node = owner.node;
            format!("node {node} was granted token {token} and does not know of it")
        })
    }
}
