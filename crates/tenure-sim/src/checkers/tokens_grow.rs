//! Every new tenure has a greater token than all before it, also after a deletion, a
//! crash or a rollback of the store.

use tenure::Token;

use super::{Checker, Fact};
use crate::store::Deed;
use crate::world::World;

#[derive(Default)]
pub(super) struct TokensGrow {
    greatest: Token,
}

impl Checker for TokensGrow {
    fn name(&self) -> &'static str {
        "tokens_grow"
    }

    fn see(&mut self, _: &World, fact: &Fact) -> Option<String> {
        let Fact::Done(Deed::Granted { token, again, .. }) = fact else {
            return None;
        };
        let greatest = self.greatest;
        self.greatest = greatest.max(*token);
        if *again || *token > greatest {
            return None;
        }
        Some(format!("a new tenure got token {token} after {greatest}"))
    }
}
