//! Every tenure ends with a reason, given as soon as its process runs, and it is true.

use std::collections::BTreeMap;

use tenure::{EndReason, Token};

use super::{Checker, Fact, breached};
use crate::event::Owner;
use crate::store::Deed;
use crate::world::World;

/// A tick may be planned for the very instant at which somebody looks.
const ROUNDING: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct EndingHasReason {
    granted: BTreeMap<Token, usize>,
}

impl Checker for EndingHasReason {
    fn name(&self) -> &'static str {
        "ending_has_reason"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Done(Deed::Granted { to, token, .. }) => {
                self.granted.insert(*token, to.node);
                None
            }
            Fact::Ended {
                owner,
                token,
                reason,
            } => {
                let true_reason = breached(world) || self.is_true(world, *owner, *token, reason);
                let node = owner.node;
                (!true_reason).then(|| format!("node {node}, token {token}: not true: {reason}"))
            }
            Fact::PhaseEnds => (0..world.nodes.len()).find_map(|n| silent(world, n)),
            _ => None,
        }
    }
}

impl EndingHasReason {
    fn is_true(&self, world: &World, owner: Owner, token: Token, reason: &EndReason) -> bool {
        let node = &world.nodes[owner.node];
        let Some(process) = &node.process else {
            return false;
        };
        let Some(belief) = &process.belief else {
            return false;
        };
        let ordered = process.ordered;
        match reason {
            EndReason::Resigned => ordered.resign,
            EndReason::Stopped => ordered.stop,
            EndReason::AskedToStepDown => world.step_down_asked,
            EndReason::StalledWork => world.settings.stall_after.is_some(),
            EndReason::Expired => {
                let told_at = belief.cut_off_at.saturating_sub(world.grace());
                node.now(world.now) >= told_at
            }
            EndReason::Superseded { holder, token: by } => {
                let granted = self.granted.get(by);
                *by > token && granted.is_some_and(|n| world.nodes[*n].holder == *holder)
            }
            // Only a breach frees a lease that is still led.
            _ => false,
        }
    }
}

/// A tenure that is past its deadline in a process that runs, without a reason given.
fn silent(world: &World, n: usize) -> Option<String> {
    let node = &world.nodes[n];
    let belief = node.process.as_ref()?.belief.as_ref()?;
    let over = node.now(world.now) > belief.cut_off_at + ROUNDING;
    (over && !node.paused).then(|| {
        format!(
            "token {} of node {n} is over, without a reason",
            belief.token
        )
    })
}
