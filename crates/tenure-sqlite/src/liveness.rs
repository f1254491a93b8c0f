//! Lock files that the kernel frees when the last process of a holder has died.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use tenure::{Error, Result};

use crate::failure::of_system;
use crate::file::{make_folders, resolve};

/// A locked file that says "this holder's processes live".
///
/// The lock belongs to the open file, and its descriptor is inherited by every child
/// that the process starts. So it is free when the last process that has it is gone,
/// however it went, and not earlier. A stopped process keeps it.
///
/// A command that starts children makes it before the first one and hands it to the
/// store with [`Liveness::Lock`](crate::Liveness::Lock). Dropping it removes the file.
#[derive(Debug)]
pub struct HolderLock {
    fd: OwnedFd,
    path: PathBuf,
    name: Arc<str>,
    remove: bool,
}

/// What a lock file says about its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Some process of the holder is there.
    Lives,
    /// None is.
    Died,
    /// The file is missing or cannot be asked: the lease lives until its term ends.
    Unknown,
}

/// The folder of lock files beside a database.
#[derive(Clone, Debug)]
pub(crate) struct Holders {
    folder: PathBuf,
}

impl HolderLock {
    /// Makes and locks a new lock file beside the database at `database`, which need
    /// not be there yet.
    pub fn create(database: impl AsRef<Path>) -> Result<Self> {
        make_folders(database.as_ref())?;
        let database = resolve(database.as_ref())?;
        Holders::beside(&database).lock_new(&database)
    }

    /// A lock that this process has inherited: the descriptor, and the file's
    /// [`name`](Self::name). Dropping it leaves the file to the process that made it.
    pub fn inherited(database: impl AsRef<Path>, fd: OwnedFd, name: &str) -> Result<Self> {
        let database = resolve(database.as_ref())?;
        let path = Holders::beside(&database).path_of(name).ok_or_else(|| {
            Error::invalid(format!(
                "{name:?} is no name of a lock file: hand on what `name` gave"
            ))
        })?;
        let is_it = same_file(fd.as_fd(), &path).unwrap_or(false);
        if !is_it || test(&path) != Life::Lives {
            return Err(Error::invalid(format!(
                "the inherited descriptor is not the lock on {}: hand on the one that was locked",
                path.display()
            )));
        }
        Ok(Self {
            fd,
            path,
            name: name.into(),
            remove: false,
        })
    }

    /// The file's name in the folder, as the records name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves file and lock as they are until the process ends.
    pub(crate) fn leave(mut self) {
        self.remove = false;
        // The descriptor stays open on purpose: a live lease still names the lock.
        std::mem::forget(self);
    }
}

impl AsFd for HolderLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        if self.remove {
            // If it fails, somebody sweeps it later: nobody has the lock any more.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Holders {
    /// The folder of the database at this path, which has no links in it.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".holders");
        Self {
            folder: folder.into(),
        }
    }

    /// Whether a process of the holder with this lock file lives.
    pub(crate) fn ask(&self, name: &str) -> Life {
        self.path_of(name).map_or(Life::Unknown, |path| test(&path))
    }

    /// The lock files whose holders have died, at most `limit`.
    pub(crate) fn dead(&self, limit: usize) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| self.ask(name) == Life::Died)
            .take(limit)
            .collect()
    }

    /// Removes the lock file of a holder that has died.
    pub(crate) fn remove(&self, name: &str) {
        let Some(path) = self.path_of(name) else {
            return;
        };
        // The lock is held until the file is gone: whoever is just making a file of
        // this name waits for it, and then sees that it has to make another.
        if let Ok(fd) = open_to_test(&path)
            && rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared).is_ok()
        {
            let _ = std::fs::remove_file(&path);
        }
    }

    pub(crate) fn lock_new(&self, database: &Path) -> Result<HolderLock> {
        let mode = self.make_folder(database)?;
        loop {
            let name = format!(
                "{}-{:016x}",
                std::process::id(),
                fastrand::Rng::new().u64(..)
            );
            let path = self.folder.join(&name);
            match lock_new_file(&path, mode) {
                Ok(Some(fd)) => {
                    return Ok(HolderLock {
                        fd,
                        path,
                        name: name.into(),
                        remove: true,
                    });
                }
                // Somebody swept it between its making and its locking.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(of_system("make the lock file", &path, &error)),
            }
        }
    }

    /// Makes the folder with the rights that the database has; gives those of its files.
    fn make_folder(&self, database: &Path) -> Result<u32> {
        let mode = std::fs::metadata(database).map_or(0o600, |found| found.mode() & 0o666);
        let of = |error| of_system("make the folder", &self.folder, &error);
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => {
                // Whoever may write the database may enter the folder.
                let folder_mode = mode | ((mode & 0o444) >> 2);
                let permissions = Permissions::from_mode(folder_mode);
                std::fs::set_permissions(&self.folder, permissions).map_err(of)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(of(error)),
        }
        Ok(mode)
    }

    fn path_of(&self, name: &str) -> Option<PathBuf> {
        let plain = !name.is_empty()
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        plain.then(|| self.folder.join(name))
    }
}

fn lock_new_file(path: &Path, mode: u32) -> io::Result<Option<OwnedFd>> {
    // No CLOEXEC: children are to inherit it.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
    while let Err(error) = rustix::fs::flock(&fd, FlockOperation::LockExclusive) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    if !same_file(fd.as_fd(), path)? {
        return Ok(None);
    }
    // For people who look into the folder.
    let mut file = File::from(fd);
    let _ = writeln!(file, "{}", std::process::id());
    Ok(Some(file.into()))
}

fn same_file(fd: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let ours = rustix::fs::fstat(fd)?;
    match rustix::fs::stat(path) {
        Ok(there) => Ok((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open_to_test(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Tests with a shared lock, so that those who test do not take each other for the holder.
fn test(path: &Path) -> Life {
    let Ok(fd) = open_to_test(path) else {
        return Life::Unknown;
    };
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Life::Died,
        Err(rustix::io::Errno::WOULDBLOCK) => Life::Lives,
        Err(_) => Life::Unknown,
    }
}
