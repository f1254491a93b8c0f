//! Errors, by what the caller has to do next.

use std::fmt;

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller has to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again: the store did not answer, or said that it cannot now. What was asked
    /// for may or may not have happened.
    Unavailable,
    /// Fix the set-up: a table, bucket or right is missing.
    Misconfigured,
    /// Fix the input: a key, a duration or an option is not acceptable.
    Invalid,
    /// Look: there is a record that cannot be read. It is never overwritten unasked.
    Corrupt,
    /// Do without: the store cannot do this.
    Unsupported,
    /// The elector or handle has been stopped.
    Stopped,
}

/// Something that did not work, with a sentence for people.
///
/// Programs match on [`kind`](Error::kind); the text is no API.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    may_have_worked: bool,
}

impl Error {
    /// What the caller has to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether what was asked for may have happened all the same.
    pub fn may_have_worked(&self) -> bool {
        self.may_have_worked
    }

    /// Try again; nothing was sent, so nothing has happened.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self {
            may_have_worked: false,
            ..Self::of(ErrorKind::Unavailable, message)
        }
    }

    /// Try again; what was asked for may or may not have happened.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Unavailable, message)
    }

    /// Fix the set-up. Name what is missing and the command that makes it.
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Misconfigured, message)
    }

    /// Fix the input.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Invalid, message)
    }

    /// Look at the record.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Corrupt, message)
    }

    /// This store cannot do it.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Unsupported, message)
    }

    /// The elector has been stopped.
    pub fn stopped(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Stopped, message)
    }

    fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            may_have_worked: kind == ErrorKind::Unavailable,
        }
    }
}

/// So that a checked name can stand wherever a name is expected.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl ErrorKind {
    /// The kind as one word, for logs, metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Misconfigured => "misconfigured",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
