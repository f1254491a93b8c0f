//! What tells a live record from one that has ended.

use std::sync::Arc;

use tenure::{Clock, Key, Lease, Moment};

use crate::liveness::{Holders, Life};
use crate::row::{Row, signed};

/// What tells a live record from one that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: Arc<str>,
    pub(crate) holders: Holders,
}

impl Judge {
    /// Whether the term runs, by this boot's clock.
    pub(crate) fn runs(&self, row: &Row) -> bool {
        row.holder.is_some()
            && *row.boot == *self.boot
            && row.ends_at > signed(self.clock.now().as_nanos())
    }

    /// Whether the term runs and no lock file says that the holder has died.
    pub(crate) fn lives(&self, row: &Row) -> bool {
        self.runs(row) && !self.died(row)
    }

    /// Whether its lock file says that the holder has died.
    pub(crate) fn died(&self, row: &Row) -> bool {
        let life = row.liveness.as_deref().map(|name| self.holders.ask(name));
        life == Some(Life::Died)
    }

    /// The lease of a record, if it has a holder.
    pub(crate) fn lease(&self, key: &Key, row: &Row) -> Option<Lease> {
        Some(Lease {
            key: key.clone(),
            holder: row.holder.clone()?,
            token: row.token,
            attempt: Some(row.attempt),
            ttl: row.ttl,
            rest: Some(Moment::from_nanos(row.ends_at.unsigned_abs()) - self.clock.now()),
            acquired_at: Some(row.acquired_at),
            version: row.version_text(),
        })
    }
}
