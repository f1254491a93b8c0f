//! While nothing goes wrong the leader stays.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

pub(super) struct HealthyLeaderStays;

impl Checker for HealthyLeaderStays {
    fn name(&self) -> &'static str {
        "healthy_leader_stays"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Ended {
                owner,
                token,
                reason,
            } if world.phase == Phase::Quiet => {
                let node = owner.node;
                Some(format!(
                    "node {node} lost token {token} for nothing: {reason}"
                ))
            }
            _ => None,
        }
    }
}
