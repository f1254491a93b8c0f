//! Nobody leads, or leads longer, without an answer in hand by which the store confirms
//! just that tenure.

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct UnknownIsNoBelief;

impl Checker for UnknownIsNoBelief {
    fn name(&self) -> &'static str {
        "unknown_is_no_belief"
    }

    fn see(&mut self, _: &World, fact: &Fact) -> Option<String> {
        let (owner, token, proof) = match fact {
            Fact::Began {
                owner,
                token,
                proof,
                ..
            }
            | Fact::Extended {
                owner,
                token,
                proof,
                ..
            } => (owner, token, proof),
            _ => return None,
        };
        let confirmed = proof.and_then(|proof| proof.confirms);
        (confirmed != Some(*token)).then(|| {
            let node = owner.node;
            format!("node {node} leads with token {token}, and the store confirmed {confirmed:?}")
        })
    }
}
