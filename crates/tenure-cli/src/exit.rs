//! Exit codes, and the one line that a person gets when something does not work.

use std::fmt;
use std::process::ExitCode;

use tenure::ErrorKind;

/// Bad input: sysexits' EX_USAGE.
pub const USAGE: u8 = 64;
/// The store cannot be reached or used: EX_UNAVAILABLE.
pub const STORE: u8 = 69;
/// A bug in this program: EX_SOFTWARE.
pub const INTERNAL: u8 = 70;
/// Somebody else has the lease: EX_TEMPFAIL, "try again later".
pub const NOT_ACQUIRED: u8 = 75;
/// The lease was lost while the command ran.
pub const LEASE_LOST: u8 = 79;
/// The command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// The exit code of a process that a signal ended.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Why the command ends without having done its work: an exit code and one line.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

/// What a subcommand gives back: its exit code, or a failure to report.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// A failure with this code.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Bad input: say what is wrong and what to do.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Something that only a bug or a broken machine explains.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, message)
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Prints the line and gives the exit code.
    pub fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            eprintln!("tenure: {}", one_line(&self.message));
        }
        ExitCode::from(self.code)
    }
}

/// Text from elsewhere on one line: a person reads it in a log.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => USAGE,
            ErrorKind::Stopped => LEASE_LOST,
            _ => STORE,
        };
        Self::new(code, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// Only for what is written to stdout: a reader that went away (`| head`) is no failure.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(0, "");
        }
        Self::internal(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_codes() {
        let code = |error: tenure::Error| Failure::from(error).code();
        assert_eq!(code(tenure::Error::invalid("x")), 64);
        assert_eq!(code(tenure::Error::unavailable("x")), 69);
        assert_eq!(code(tenure::Error::misconfigured("x")), 69);
        assert_eq!(of_signal(15), 143);
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(one_line("a\n  b\n"), "a b");
    }
}
