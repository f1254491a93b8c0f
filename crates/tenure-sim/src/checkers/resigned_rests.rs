//! One that resigned leaves the lease to others for its rest, unless another led meanwhile.

use super::{Checker, Fact};
use crate::event::Owner;
use crate::store::Deed;
use crate::world::World;

#[derive(Default)]
pub(super) struct ResignedRests {
    last_granted: Option<(u64, Owner)>,
}

impl Checker for ResignedRests {
    fn name(&self) -> &'static str {
        "resigned_rests"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Done(Deed::Granted { to, .. }) => {
                let others = self.last_granted.filter(|(_, last)| last.node != to.node);
                if others.is_some() || self.last_granted.is_none() {
                    self.last_granted = Some((world.now, *to));
                }
                None
            }
            Fact::Began { owner, token, .. } => {
                let node = &world.nodes[owner.node];
                let rested_from = node.process.as_ref()?.rested_from?;
                let rested = world.now - rested_from;
                let unbroken = self
                    .last_granted
                    .is_some_and(|(at, to)| to.node == owner.node && at < rested_from);
                let early = rested < world.rest() / 10 * 9;
                (unbroken && early).then(|| {
                    let seconds = rested as f64 / 1e9;
                    format!(
                        "node {} leads again with {token}, {seconds:.3} s after it resigned",
                        owner.node
                    )
                })
            }
            _ => None,
        }
    }
}
