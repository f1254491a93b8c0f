//! A lease is handed on only when the work under it has stopped: by release when it
//! has, else after the deadline at which it is cut off.

use super::{Checker, Fact, breached};
use crate::store::Deed;
use crate::world::World;

pub(super) struct WorkStopsFirst;

impl Checker for WorkStopsFirst {
    fn name(&self) -> &'static str {
        "work_stops_first"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let (what, new) = match fact {
            Fact::Done(Deed::Freed { was, .. }) => ("was released", Some(*was)),
            Fact::Began { .. } => ("has a successor", None),
            _ => return None,
        };
        let began = match fact {
            Fact::Began { owner, .. } => Some(owner.node),
            _ => None,
        };
        for (n, node) in world.nodes.iter().enumerate() {
            // What does not run writes nothing; and within one process the old work may
            // end beside the new.
            let Some(process) = node.process.as_ref().filter(|_| !node.paused) else {
                continue;
            };
            if began == Some(n) {
                continue;
            }
            for belief in [&process.belief, &process.ended].into_iter().flatten() {
                let concerned = new.is_none_or(|token| token == belief.token);
                let cut_off = node.now(world.now) >= belief.cut_off_at;
                if concerned && belief.work.is_some() && !cut_off && !breached(world) {
                    let token = belief.token;
                    return Some(format!(
                        "token {token} of node {n} {what} while its work runs"
                    ));
                }
            }
        }
        None
    }
}
