//! The token as a resource gets it: from a tenure that is valid, or from text.

use tenure::{StaleToken, Tenure, Token};

use crate::error::{FenceError, Result};

/// The greatest token that there can be: every language and every database can hold it.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// How much of something unreadable is shown.
const SHOWN_CHARS_MAX: usize = 64;

/// The token of a tenure that is valid now, to be sent with a write.
///
/// This is the local half of every fence: a tenure that has ended is refused before the
/// resource is asked. It is no fence by itself, since the process can be paused right
/// after it.
pub fn sendable(tenure: &Tenure) -> Result<Token> {
    let token = tenure.token();
    if let Some(reason) = tenure.end_reason() {
        return Err(FenceError::Ended { token, reason });
    }
    if token.0 == 0 || token.0 > TOKEN_MAX {
        let found = token.0.to_string();
        return Err(FenceError::NoNumber { found });
    }
    Ok(token)
}

/// A token as text: digits only, without zeros before them, from 1 to [`TOKEN_MAX`].
///
/// ```
/// use tenure_fences::read_token;
/// assert_eq!(read_token("42")?.0, 42);
/// for no_token in ["", "0", "-1", "+1", " 1", "1e3", "0x2a", "09", "9007199254740992"] {
///     assert!(read_token(no_token).is_err());
/// }
/// # Ok::<(), tenure_fences::FenceError>(())
/// ```
pub fn read_token(text: &str) -> Result<Token> {
    let digits = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    match number.filter(|number| (1..=TOKEN_MAX).contains(number)) {
        Some(number) => Ok(Token(number)),
        None => Err(FenceError::NoNumber { found: shown(text) }),
    }
}

/// Lets `token` pass unless `seen` is greater.
#[allow(dead_code, reason = "which resources use it depends on the features")]
pub(crate) fn check(token: Token, seen: Token) -> Result<()> {
    if token < seen {
        return Err(StaleToken { token, seen }.into());
    }
    Ok(())
}

/// The token as databases take it.
#[allow(dead_code, reason = "which resources use it depends on the features")]
pub(crate) fn signed(token: Token) -> i64 {
    // At most TOKEN_MAX, which `sendable` has seen to.
    i64::try_from(token.0).unwrap_or(i64::MAX)
}

/// A token that a database kept.
#[allow(dead_code, reason = "which resources use it depends on the features")]
pub(crate) fn kept(resource: &str, number: i64) -> Result<Token> {
    let token = u64::try_from(number).ok();
    match token.filter(|token| (1..=TOKEN_MAX).contains(token)) {
        Some(token) => Ok(Token(token)),
        None => Err(FenceError::unreadable(resource, &number.to_string())),
    }
}

/// So much of a text as fits into a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
