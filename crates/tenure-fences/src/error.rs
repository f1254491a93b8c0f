//! What a fence answers when it does not let a write pass.

use tenure::{EndReason, StaleToken, Token};

/// A result with [`FenceError`].
pub type Result<T, E = FenceError> = std::result::Result<T, E>;

/// Why a write was not taken. Each is one sentence for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The resource has seen a greater token. Stop: somebody else leads.
    #[error(transparent)]
    Stale(#[from] StaleToken),

    /// The tenure had ended by its own clock, so the resource was not even asked.
    #[error("the tenure with token {token} has ended ({reason}), so nothing was written")]
    Ended {
        /// Its token.
        token: Token,
        /// Why it ended.
        reason: EndReason,
    },

    /// A write came without a token.
    #[error("the write carries no token: send the one of the tenure ({how})")]
    Missing {
        /// Where it is expected.
        how: &'static str,
    },

    /// A write came with something that is no token.
    #[error("{found:?} is no token: a token is a whole number from 1 to {max}", max = crate::TOKEN_MAX)]
    NoNumber {
        /// What came instead, cut to a readable length.
        found: String,
    },

    /// No token has ever been here. Only asking what was seen is answered so: the first
    /// write is taken.
    #[error("{resource} has never been fenced: the first write with a token begins it")]
    NeverFenced {
        /// Which resource.
        resource: String,
    },

    /// What the resource keeps as its greatest token cannot be read. It is not overwritten.
    #[error(
        "the fence of {resource} holds {found:?}, which is no token: look who wrote it, and put the greatest token back"
    )]
    Unreadable {
        /// Which resource.
        resource: String,
        /// What stands there, cut to a readable length.
        found: String,
    },

    /// Others were writing for longer than this one may wait. Nothing was written.
    #[error("{resource} is still being written to by somebody else: try again")]
    Busy {
        /// Which resource.
        resource: String,
    },

    /// The caller's input cannot be used.
    #[error("{0}")]
    Invalid(String),

    /// The resource's own error. Whether the write took place is for that resource to say.
    #[error("the resource did not confirm the write: {0}")]
    Resource(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl FenceError {
    /// Whether this writer must stop, since it leads no more.
    pub fn is_over(&self) -> bool {
        matches!(self, FenceError::Stale(_) | FenceError::Ended { .. })
    }

    #[allow(dead_code, reason = "which resources use it depends on the features")]
    pub(crate) fn resource(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        FenceError::Resource(error.into())
    }

    #[allow(dead_code, reason = "which resources use it depends on the features")]
    pub(crate) fn unreadable(resource: &str, found: &str) -> Self {
        FenceError::Unreadable {
            resource: resource.to_owned(),
            found: crate::token::shown(found),
        }
    }
}
