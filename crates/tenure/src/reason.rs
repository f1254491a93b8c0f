//! Why a tenure ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words::{Holder, Token};

/// Why a tenure ended. Every ending has its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
#[non_exhaustive]
pub enum EndReason {
    /// The leader gave it up.
    Resigned,
    /// No renewal was confirmed in time: the store could not be reached, or this
    /// process did not run.
    Expired,
    /// Somebody else has the lease.
    Superseded {
        /// Who.
        holder: Holder,
        /// With which token.
        token: Token,
    },
    /// The record was deleted or freed by somebody.
    RecordDeleted,
    /// Somebody asked the leader to step down.
    AskedToStepDown,
    /// The work reported no progress for the time that it was given.
    StalledWork,
    /// The elector was stopped.
    Stopped,
    /// The elector broke down. This is a fault in tenure; please report it.
    Failed,
}

impl EndReason {
    /// The reason as one word, for logs, metrics and JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            EndReason::Resigned => "resigned",
            EndReason::Expired => "expired",
            EndReason::Superseded { .. } => "superseded",
            EndReason::RecordDeleted => "record-deleted",
            EndReason::AskedToStepDown => "asked-to-step-down",
            EndReason::StalledWork => "stalled-work",
            EndReason::Stopped => "stopped",
            EndReason::Failed => "failed",
        }
    }

    /// Whether the elector waits before it campaigns again, so that another can lead.
    pub(crate) fn rests(&self) -> bool {
        matches!(
            self,
            EndReason::Resigned | EndReason::AskedToStepDown | EndReason::StalledWork
        )
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Resigned => f.write_str("resigned"),
            EndReason::Expired => f.write_str("expired: no renewal was confirmed in time"),
            EndReason::Superseded { holder, token } => {
                write!(f, "superseded by {holder} with token {token}")
            }
            EndReason::RecordDeleted => f.write_str("the record was deleted or freed by somebody"),
            EndReason::AskedToStepDown => f.write_str("asked to step down"),
            EndReason::StalledWork => f.write_str("the work stalled: no progress was reported"),
            EndReason::Stopped => f.write_str("stopped"),
            EndReason::Failed => f.write_str("the elector broke down"),
        }
    }
}
