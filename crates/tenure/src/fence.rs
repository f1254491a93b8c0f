//! The fence: the check at the protected resource that turns away an older token.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::words::Token;

/// Remembers the greatest token that a resource has seen and turns away older ones.
///
/// This one lives in memory, for a resource that lives in memory too. A fence protects
/// only if the check and the write are one atomic step and the greatest token survives
/// with the data: for data in a database, keep the token in the same transaction.
///
/// ```
/// use tenure::{Fence, Token};
/// let fence = Fence::new();
/// assert!(fence.admit(Token(7)).is_ok());
/// assert!(fence.admit(Token(7)).is_ok());
/// assert!(fence.admit(Token(8)).is_ok());
/// assert_eq!(fence.admit(Token(7)).unwrap_err().seen, Token(8));
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    seen: AtomicU64,
}

/// A token that is older than one that the fence has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is out of date: {seen} has been here, so somebody else leads now")]
pub struct StaleToken {
    /// The token that was turned away.
    pub token: Token,
    /// The greatest that the fence has seen.
    pub seen: Token,
}

impl Fence {
    /// A fence that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fence that has seen `token`, such as one read back from disk.
    pub fn raised_to(token: Token) -> Self {
        Self {
            seen: AtomicU64::new(token.0),
        }
    }

    /// Lets `token` pass if none greater has passed, and remembers it.
    pub fn admit(&self, token: Token) -> Result<(), StaleToken> {
        let seen = self.seen.fetch_max(token.0, Ordering::AcqRel);
        if token.0 < seen {
            return Err(StaleToken {
                token,
                seen: Token(seen),
            });
        }
        Ok(())
    }

    /// The greatest token that has passed.
    pub fn seen(&self) -> Token {
        Token(self.seen.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_token_is_turned_away() {
        let fence = Fence::new();
        assert_eq!(fence.admit(Token(7)), Ok(()));
        assert_eq!(
            fence.admit(Token(7)),
            Ok(()),
            "the same tenure writes again"
        );
        assert_eq!(fence.admit(Token(9)), Ok(()));
        let (token, seen) = (Token(8), Token(9));
        assert_eq!(fence.admit(token), Err(StaleToken { token, seen }));
        assert_eq!(fence.seen(), seen, "what was turned away leaves no trace");
    }

    #[test]
    fn a_fence_goes_on_from_what_was_kept() {
        let fence = Fence::raised_to(Token(5));
        assert_eq!(fence.seen(), Token(5));
        assert!(fence.admit(Token(4)).is_err());
        assert!(fence.admit(Token(5)).is_ok());
    }
}
