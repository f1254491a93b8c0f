//! One call that hangs, fails or loses its answer does not cost the leadership.

use super::{Checker, Fact};
use crate::phase::Phase;
use crate::world::World;

pub(super) struct SlowAnswerCostsNothing;

impl Checker for SlowAnswerCostsNothing {
    fn name(&self) -> &'static str {
        "slow_answer_costs_nothing"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Ended {
                owner,
                token,
                reason,
            } if world.phase == Phase::OneFault => {
                let node = owner.node;
                Some(format!(
                    "one bad call cost node {node} its token {token}: {reason}"
                ))
            }
            _ => None,
        }
    }
}
