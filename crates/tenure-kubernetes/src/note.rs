//! What tenure writes into a Lease beside client-go's fields: one annotation.

use serde::{Deserialize, Serialize};
use tenure::{Attempt, HolderRequest, Token};

/// The annotation's name. client-go keeps annotations that it does not know.
pub(crate) const NAME: &str = "tenure/note";

/// Of the last tenure that tenure wrote. It counts for the present one only if holder,
/// transitions and acquire time are the record's: else somebody else has taken the Lease
/// since, and the note is only the last token that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) key: String,
    pub(crate) holder: String,
    pub(crate) token: u64,
    pub(crate) attempt: u64,
    pub(crate) transitions: i32,
    pub(crate) acquired: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<HolderRequest>,
}

impl Note {
    pub(crate) fn token(&self) -> Token {
        Token(self.token)
    }

    pub(crate) fn attempt(&self) -> Attempt {
        Attempt::from_u64(self.attempt)
    }
}
