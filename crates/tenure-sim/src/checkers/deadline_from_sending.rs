//! The deadline is the moment before the confirmed request was sent, plus the ttl, less
//! the drift bound: never later.

use tenure::Moment;

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct DeadlineFromSending;

impl Checker for DeadlineFromSending {
    fn name(&self) -> &'static str {
        "deadline_from_sending"
    }

    fn see(&mut self, world: &World, fact: &Fact) -> Option<String> {
        let (owner, deadline, proof) = match fact {
            Fact::Began {
                owner,
                deadline,
                proof: Some(proof),
                ..
            }
            | Fact::Extended {
                owner,
                deadline,
                proof: Some(proof),
                ..
            } => (owner, *deadline, proof),
            _ => return None,
        };
        let sent = Moment::from_nanos(proof.sent_local);
        let latest = world.settings.timing.deadline(sent).as_nanos();
        (deadline > latest).then(|| {
            let late = (deadline - latest) as f64 / 1e9;
            let node = owner.node;
            format!(
                "node {node} has a deadline {late:.6} s after what the confirmed request allows"
            )
        })
    }
}
