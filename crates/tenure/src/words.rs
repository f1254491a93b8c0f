//! The nouns of the design as types: key, holder, token, attempt, version.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The greatest length of a key or a holder, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 512;

/// What is being led: `billing/nightly`.
///
/// Non-empty, at most [`NAME_BYTES_MAX`] bytes of UTF-8, no control characters.
///
/// ```
/// use tenure::Key;
/// let key = Key::new("billing/nightly")?;
/// assert_eq!(key.as_str(), "billing/nightly");
/// assert!(Key::new("").is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

/// The instance that holds a lease.
///
/// By default `host_pid_random` ([`Holder::generate`]), so that two processes are
/// never one holder by accident. A holder that you give is used word for word and
/// must be unique among live processes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Holder(Arc<str>);

/// The fencing token: strictly greater for every later tenure of a key.
///
/// It stays below 2^53, so that every language can hold it. Hand it to the resource
/// that you protect, which turns away anything older: see [`Fence`](crate::Fence).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Token(pub u64);

/// Which campaign of which elector asked for a lease.
///
/// An acquire is repeated with the same attempt until it has an answer, and a store
/// answers a repeated attempt with the tenure that it granted to it before: so a lost
/// answer is found again, by proof and not by the holder's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(u64);

/// The store's own mark of one state of a record (a revision, an ETag, a counter).
///
/// A value that is handed out and handed back in, never remembered inside a store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(format!(
            "the {what} is empty: give it at least one character"
        )));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the {what} has {} bytes, the most is {NAME_BYTES_MAX}: choose a shorter one",
            name.len()
        )));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control()) {
        return Err(Error::invalid(format!(
            "the {what} contains the control character U+{:04X}: remove it",
            bad as u32
        )));
    }
    Ok(())
}

impl Key {
    /// Checks `name` and makes a key of it.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        check_name("key", name.as_ref())?;
        Ok(Self(name.as_ref().into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Holder {
    /// Checks `name` and makes a holder of it. It must be unique among live processes.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        check_name("holder", name.as_ref())?;
        Ok(Self(name.as_ref().into()))
    }

    /// A holder that no other process has: `host_pid_random`.
    ///
    /// In Kubernetes the host's name is the pod's name.
    pub fn generate() -> Self {
        let host: String = host_name()
            .chars()
            .filter(|c| !c.is_control() && !c.is_whitespace())
            .take(128)
            .collect();
        let random = fastrand::Rng::new().u64(..);
        let pid = std::process::id();
        Self(format!("{host}_{pid}_{random:016x}").into())
    }

    /// The holder as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(unix)]
fn host_name() -> String {
    // With the host's network a pod's host name is the node's; POD_NAME is the usual
    // downward-API variable for its own.
    let in_kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if let (true, Ok(pod)) = (in_kubernetes, std::env::var("POD_NAME")) {
        return pod;
    }
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    if name.is_empty() {
        "host".into()
    } else {
        name.into_owned()
    }
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into())
}

impl Token {
    /// The token of the next tenure: the greater of the last one + 1 and the store's
    /// clock in microseconds since 1970, so that it grows even if the record is deleted.
    ///
    /// ```
    /// use tenure::Token;
    /// assert_eq!(Token::next(Token(7), 1_000), Token(1_000));
    /// assert_eq!(Token::next(Token(1_000), 7), Token(1_001));
    /// ```
    pub fn next(last: Token, store_clock_us: u64) -> Token {
        Token(last.0.saturating_add(1).max(store_clock_us))
    }
}

impl Attempt {
    const COUNTER_BITS: u32 = 20;

    /// The first attempt of an elector, from its own random number.
    pub fn first(random: u64) -> Self {
        // 52 bits in all: fits a signed 64-bit column and a JSON number.
        Self((random << Self::COUNTER_BITS) & ((1 << 52) - 1))
    }

    /// The attempt after this one, of the same elector.
    pub fn next(self) -> Self {
        let mask = (1 << Self::COUNTER_BITS) - 1;
        Self((self.0 & !mask) | (self.0.wrapping_add(1) & mask))
    }

    /// Whether both attempts come from one elector.
    pub fn same_elector(self, other: Attempt) -> bool {
        self.0 >> Self::COUNTER_BITS == other.0 >> Self::COUNTER_BITS
    }

    /// The number that a store writes down.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The attempt that a store has written down.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

impl Version {
    /// Makes a version of the store's own text for it.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().into())
    }

    /// The store's own text for it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}
text_type!(Key);
text_type!(Holder);
text_type!(Version);

macro_rules! checked_from {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(name: String) -> Result<Self> {
                Self::new(name)
            }
        }
        impl TryFrom<&str> for $name {
            type Error = Error;
            fn try_from(name: &str) -> Result<Self> {
                Self::new(name)
            }
        }
        impl TryFrom<&String> for $name {
            type Error = Error;
            fn try_from(name: &String) -> Result<Self> {
                Self::new(name)
            }
        }
        impl TryFrom<&$name> for $name {
            type Error = Error;
            fn try_from(name: &$name) -> Result<Self> {
                Ok(name.clone())
            }
        }
        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(name: &str) -> Result<Self> {
                Self::new(name)
            }
        }
    };
}
checked_from!(Key);
checked_from!(Holder);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:013x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(Key::new("").is_err());
        assert!(Key::new("a\nb").is_err());
        assert!(Key::new("a\u{85}b").is_err());
        assert!(Key::new("x".repeat(512)).is_ok());
        assert!(Key::new("x".repeat(513)).is_err());
        assert!(Key::new("ключ/鍵 🔑").is_ok());
    }

    #[test]
    fn generated_holders_differ() {
        let a = Holder::generate();
        assert_ne!(a, Holder::generate());
        assert!(a.as_str().contains(&format!("_{}_", std::process::id())));
    }

    #[test]
    fn attempts_of_one_elector_differ_and_are_recognised() {
        let first = Attempt::first(u64::MAX);
        let second = first.next();
        assert_ne!(first, second);
        assert!(first.same_elector(second));
        assert!(!first.same_elector(Attempt::first(1)));
        assert!(second.as_u64() < 1 << 53);
    }

    #[test]
    fn bad_names_do_not_deserialize() {
        assert!(serde_json::from_str::<Key>("\"\"").is_err());
        assert_eq!(
            serde_json::from_str::<Key>("\"a\"").unwrap(),
            Key::new("a").unwrap()
        );
    }
}
