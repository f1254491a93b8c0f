//! A tenure that has ended never becomes valid again.

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct EndedStaysEnded;

impl Checker for EndedStaysEnded {
    fn name(&self) -> &'static str {
        "ended_stays_ended"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Extended {
                owner,
                token,
                was_valid: false,
                ..
            } => Some(format!("token {token} of node {} was revived", owner.node)),
            Fact::ClockChanged {
                node,
                believed: false,
            } => {
                let token = world.nodes[*node].leads(world.now)?;
                Some(format!(
                    "token {token} of node {node} was revived by its clock"
                ))
            }
            _ => None,
        }
    }
}
