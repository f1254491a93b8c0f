//! The file that keeps the greatest token of each resource, as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tenure::NAME_BYTES_MAX;

use crate::durable;
use crate::error::{FenceError, Result};
use crate::token::{TOKEN_MAX, shown};

/// The greatest token of each resource.
pub(crate) type Tokens = BTreeMap<String, u64>;

/// The file, and the lock that keeps it for this process alone.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    _lock: File,
}

impl Kept {
    /// Opens the file, or says that another process has it. What cannot be read is not
    /// overwritten.
    pub(crate) fn open(path: &Path, resources_max: usize) -> Result<(Self, Tokens)> {
        let lock = durable::lock(path, Duration::ZERO).map_err(FenceError::resource)?;
        let Some(lock) = lock else {
            return Err(FenceError::Invalid(format!(
                "{} is in use by another fence: one file is for one process",
                path.display()
            )));
        };
        // A name takes at most six bytes for each of its own, if all are escaped.
        let most = (resources_max as u64 + 1) * (NAME_BYTES_MAX as u64 * 6 + 32);
        let bytes = durable::read(path, most).map_err(FenceError::resource)?;
        let tokens = match bytes {
            Some(bytes) if bytes.len() as u64 <= most => read(path, &bytes)?,
            Some(_) => return Err(unreadable(path, b"more than it can hold")),
            None => Tokens::new(),
        };
        let path = path.to_owned();
        Ok((Self { path, _lock: lock }, tokens))
    }

    /// On disk when it returns, and whole at any time.
    pub(crate) fn write(&self, tokens: &Tokens) -> Result<()> {
        let mut text = serde_json::to_string_pretty(tokens).map_err(FenceError::resource)?;
        text.push('\n');
        durable::replace(&self.path, text.as_bytes()).map_err(FenceError::resource)
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<Tokens> {
    let unreadable = || unreadable(path, bytes);
    let value: Value = serde_json::from_slice(bytes).map_err(|_| unreadable())?;
    let Value::Object(object) = value else {
        return Err(unreadable());
    };
    let tokens = object.into_iter().map(|(resource, token)| {
        let token = token.as_u64();
        let token = token.filter(|token| (1..=TOKEN_MAX).contains(token));
        Some((resource, token?))
    });
    tokens.collect::<Option<_>>().ok_or_else(unreadable)
}

fn unreadable(path: &Path, bytes: &[u8]) -> FenceError {
    let found = shown(&String::from_utf8_lossy(bytes));
    FenceError::unreadable(&path.display().to_string(), &found)
}
