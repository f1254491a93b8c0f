//! A renewal never changes a lease of another tenure, however late it comes.

use super::{Checker, Fact};
use crate::store::Deed;
use crate::world::World;

pub(super) struct RenewKeepsOwn;

impl Checker for RenewKeepsOwn {
    fn name(&self) -> &'static str {
        "renew_keeps_own"
    }

    fn see(&mut self, _: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Done(Deed::Renewed { asked, was }) if asked != was => {
                Some(format!("a renewal of token {asked} wrote over token {was}"))
            }
            _ => None,
        }
    }
}
