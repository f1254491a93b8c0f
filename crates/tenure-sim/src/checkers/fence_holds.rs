//! A fenced resource never takes an older token, nor one token from two tenures, and
//! never turns away the newest.

use super::{Checker, Fact};
use crate::world::World;

pub(super) struct FenceHolds;

impl Checker for FenceHolds {
    fn name(&self) -> &'static str {
        "fence_holds"
    }

    fn see(&mut self, _: &World, fact: &Fact) -> Option<String> {
        let Fact::Wrote {
            owner,
            token,
            written,
        } = fact
        else {
            return None;
        };
        let greatest = written.greatest;
        if written.accepted && *token < greatest {
            return Some(format!("token {token} was taken after {greatest}"));
        }
        if !written.accepted && *token >= greatest {
            return Some(format!(
                "token {token} was turned away, greatest so far {greatest}"
            ));
        }
        let other = written.by.filter(|by| by != owner)?;
        (*token == greatest).then(|| {
            format!(
                "token {token} was taken from node {} and node {}",
                other.node, owner.node
            )
        })
    }
}
