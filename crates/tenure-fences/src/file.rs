//! A file: an append or a replace that refuses older tokens, under a lock.
//!
//! Beside the file `journal` stand `journal.lock`, which every writer locks, and
//! `journal.fence`, the greatest token as text. A greater token is on disk before its first
//! byte of data is, so a crash between the two can only leave the fence higher.
//!
//! All writers have to write through this (or through the shell form on the docs page), and
//! on a file system whose locks reach all of them: a local disk, or a network file system
//! with working `flock`. These calls wait for the disk: in async code use `spawn_blocking`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::{Tenure, Token};

use crate::durable;
use crate::error::{FenceError, Result};
use crate::token::{check, read_token, sendable};

/// How long a writer waits for the lock.
const WAIT: Duration = Duration::from_secs(10);
const TOKEN_BYTES_MAX: u64 = 64;

/// The fence of one file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::{Elector, MemoryStore, Settings};
/// use tenure_fences::file::FileFence;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("journal");
///
/// let elector = Elector::start(MemoryStore::new(), Settings::new("journal")?)?;
/// let tenure = elector.elected().await?;
/// let journal = FileFence::new(&path);
/// journal.append(&tenure, b"first line\n")?;
/// assert_eq!(std::fs::read(&path)?, b"first line\n");
/// assert_eq!(journal.seen()?, tenure.token());
/// # elector.stop().await; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FileFence {
    path: PathBuf,
    wait: Duration,
}

impl FileFence {
    /// The fence of this file, which need not be there yet; its folder must be.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            wait: WAIT,
        }
    }

    /// With another limit than ten seconds for waiting until others have written.
    #[must_use = "this returns the changed fence"]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Appends, and returns when it is on disk. What was written in part because of an
    /// error is taken back.
    pub fn append(&self, tenure: &Tenure, bytes: &[u8]) -> Result<()> {
        self.fenced(tenure, |path| {
            let mut open = OpenOptions::new();
            let mut file = open.append(true).create(true).open(path)?;
            let length = file.metadata()?.len();
            let written = file.write_all(bytes).and_then(|()| file.sync_data());
            if written.is_err() {
                file.set_len(length)?;
            }
            if length == 0 {
                durable::sync_folder(path)?;
            }
            written
        })
    }

    /// Replaces the whole content in one step: readers see the old or the new one.
    pub fn replace(&self, tenure: &Tenure, bytes: &[u8]) -> Result<()> {
        self.fenced(tenure, |path| durable::replace(path, bytes))
    }

    /// Raises the fence and nothing else: the first act of a new leader.
    pub fn raise(&self, tenure: &Tenure) -> Result<()> {
        self.fenced(tenure, |_| Ok(()))
    }

    /// The greatest token that has been here.
    pub fn seen(&self) -> Result<Token> {
        self.kept()?.ok_or_else(|| FenceError::NeverFenced {
            resource: self.name(),
        })
    }

    /// Check and write as one step: no other writer is between the two.
    fn fenced(&self, tenure: &Tenure, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
        // Before the lock, so that one that has ended makes no files; and after it, because
        // the wait may have been long.
        sendable(tenure)?;
        let Some(_lock) = durable::lock(&self.path, self.wait).map_err(FenceError::resource)?
        else {
            let resource = self.name();
            return Err(FenceError::Busy { resource });
        };
        let token = sendable(tenure)?;
        let kept = self.kept()?;
        if let Some(seen) = kept {
            check(token, seen)?;
        }
        if kept != Some(token) {
            let text = format!("{token}\n");
            durable::replace(&self.token_path(), text.as_bytes()).map_err(FenceError::resource)?;
        }
        write(&self.path).map_err(FenceError::resource)
    }

    fn kept(&self) -> Result<Option<Token>> {
        let read = durable::read(&self.token_path(), TOKEN_BYTES_MAX);
        let Some(bytes) = read.map_err(FenceError::resource)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        let token = read_token(text.trim_end_matches('\n'));
        let token = token.map_err(|_| FenceError::unreadable(&self.name(), text.trim_end()));
        token.map(Some)
    }

    fn token_path(&self) -> PathBuf {
        durable::beside(&self.path, "fence")
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
