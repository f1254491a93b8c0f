//! Files that are whole after a crash: locked by a file beside them, replaced in one step.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::{BootClock, Clock};

/// How long a waiting writer naps between two tries.
const NAP_MAX: Duration = Duration::from_millis(20);

/// `PATH.SUFFIX`, in the same folder.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// An exclusive lock on `PATH.lock`, freed when the file is closed, also by a crash. None
/// if others held it for longer than `wait`.
///
/// The lock file is never removed or replaced: a lock on a file that has lost its name
/// would keep nobody out.
pub(crate) fn lock(path: &Path, wait: Duration) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(beside(path, "lock"))?;
    let until = BootClock.now() + wait;
    let mut nap = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if BootClock.now() >= until => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(nap),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        nap = (nap * 2).min(NAP_MAX);
    }
}

/// Replaces the file as a whole: after a crash there is the old one or the new one. Only
/// for whoever holds the lock.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, "new");
    let mut file = File::create(&new)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// Makes a new or changed name in the folder of `path` durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    // Windows has no such thing, and needs none.
    if cfg!(unix) {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The file's content, at most `most` bytes and one more; None if there is no such file.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
