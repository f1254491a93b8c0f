//! A release never frees a successor's lease, however late it comes.

use super::{Checker, Fact};
use crate::store::Deed;
use crate::world::World;

pub(super) struct ReleaseFreesOwn;

impl Checker for ReleaseFreesOwn {
    fn name(&self) -> &'static str {
        "release_frees_own"
    }

    fn see(&mut self, _: &World, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Done(Deed::Freed { by, asked, was }) if asked != was => Some(format!(
                "a release of token {asked} by node {} freed token {was}",
                by.node
            )),
            _ => None,
        }
    }
}
