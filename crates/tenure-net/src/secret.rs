//! A password or a key: used, but never shown.

use std::fmt;
use std::io::Read;
use std::path::Path;

use tenure::{Error, Result};

/// A text that must not be seen in logs, errors or on screen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// More than any password has: what is longer is the wrong file.
const BYTES_MAX: u64 = 64 * 1024;

impl Secret {
    /// Keeps this text from being shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The first line of this file, without its line end.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |why: String| {
            let shown = path.display();
            Error::misconfigured(format!("the password file {shown} {why}"))
        };
        let file = std::fs::File::open(path).map_err(|error| {
            failed(format!(
                "cannot be opened ({error}): check its path and its rights"
            ))
        })?;
        let mut text = String::new();
        file.take(BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| {
                failed(format!(
                    "cannot be read ({error}): put the password into its first line"
                ))
            })?;
        if text.len() as u64 > BYTES_MAX {
            return Err(failed("is longer than any password: check its path".into()));
        }
        let line = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            return Err(failed(
                "has an empty first line: put the password there".into(),
            ));
        }
        Ok(Self(line.to_owned()))
    }

    /// The text itself, for the one who has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {secret:#?}"), "*** *** ***");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn from_a_file_comes_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let read = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            Secret::from_file(&path)
        };
        assert_eq!(read(b"hunter2").unwrap().expose(), "hunter2");
        assert_eq!(read(b"hunter2\r\nmore\n").unwrap().expose(), "hunter2");
        assert_eq!(read(b" a b \n").unwrap().expose(), " a b ");
        for bad in [b"".as_slice(), b"\n", b"\xff\xfe", &[b'a'; 70_000]] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Misconfigured);
            assert!(error.to_string().contains("password file"), "{error}");
        }
        let error = Secret::from_file(folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
    }
}
