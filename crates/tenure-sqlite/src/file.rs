//! The database file: its path, its rights, its header, and where it must not lie.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tenure::{Error, Result};

use crate::failure::of_system;
use crate::schema::{APPLICATION_ID, FORMAT};

/// A database file that a store of this process uses. Clones share it.
///
/// The file stays open here for as long as a store uses it, because POSIX drops all
/// locks that a process has on a file when the process closes *any* descriptor of it:
/// closing ours while SQLite has its own would free SQLite's locks behind its back.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseFile {
    /// None only while it is dropped.
    opened: Option<Arc<Opened>>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    /// Device and inode.
    id: (u64, u64),
}

type Open = Mutex<HashMap<(u64, u64), Arc<Opened>>>;
static OPEN: LazyLock<Open> = LazyLock::new(Open::default);

impl DatabaseFile {
    /// Opens the file, or makes an empty one with its folders, for this user only.
    /// Refuses what is no tenure database before anything could change it.
    pub(crate) fn open(path: &Path, network_allowed: bool) -> Result<Self> {
        make_folders(path)?;
        let path = resolve(path)?;
        if !network_allowed {
            refuse_network(&path)?;
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked by path first: it must not be opened a second time while a store of
        // this process uses it.
        if let Some(id) = id_of(&path)
            && let Some(known) = open.get(&id)
        {
            if known.path != path {
                return Err(Error::misconfigured(format!(
                    "{} and {} are one file with two names, which SQLite cannot use safely: use one of them",
                    path.display(),
                    known.path.display()
                )));
            }
            return Ok(Self::of(known));
        }
        let file = open_or_create(&path).map_err(|error| of_system("open", &path, &error))?;
        let found = file
            .metadata()
            .map_err(|error| of_system("read", &path, &error))?;
        if !found.is_file() {
            return Err(Error::misconfigured(format!(
                "{} is no plain file: choose another path",
                path.display()
            )));
        }
        let id = (found.dev(), found.ino());
        let opened = Arc::new(Opened { path, file, id });
        opened.check_header(found.len())?;
        let used = Self::of(&opened);
        open.insert(id, opened);
        Ok(used)
    }

    fn of(opened: &Arc<Opened>) -> Self {
        Self {
            opened: Some(opened.clone()),
        }
    }

    fn opened(&self) -> &Opened {
        self.opened
            .as_deref()
            .expect("it is taken only by drop, and nobody asks after that")
    }

    /// Where it lies, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.opened().path
    }

    /// Whether the path still leads to this file: it may have been deleted or replaced,
    /// and others then use another one.
    pub(crate) fn is_in_place(&self) -> bool {
        let opened = self.opened();
        id_of(&opened.path) == Some(opened.id)
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        // Closed under the lock, so that nobody opens the file between our last look
        // at the count and the closing.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = self.opened.take() else {
            return;
        };
        // One count is ours, one is the map's.
        if Arc::strong_count(&opened) == 2 {
            open.remove(&opened.id);
        }
        drop(opened);
        drop(open);
    }
}

impl Opened {
    fn check_header(&self, length: u64) -> Result<()> {
        let file = self.path.display();
        if length == 0 {
            return Ok(());
        }
        let mut header = [0_u8; 100];
        let read = self.file.read_exact_at(&mut header, 0);
        if read.is_err() || header[..16] != *b"SQLite format 3\0" {
            return Err(Error::corrupt(format!(
                "{file} is no SQLite database, or a damaged one; it was not changed: choose another path, or move it away"
            )));
        }
        let number = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if number(68) != APPLICATION_ID {
            return Err(Error::misconfigured(format!(
                "{file} is the SQLite database of another program; it was not changed: choose another path"
            )));
        }
        check_format(&self.path, number(60))
    }
}

/// Refuses a format that only a newer version knows.
pub(crate) fn check_format(path: &Path, found: u32) -> Result<()> {
    if found > FORMAT {
        return Err(Error::misconfigured(format!(
            "{} has the format {found}, this version knows {FORMAT}; it was not changed: use a newer tenure",
            path.display()
        )));
    }
    Ok(())
}

/// Device and inode of the file that the path leads to.
pub(crate) fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn open_or_create(path: &Path) -> io::Result<File> {
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut create = OpenOptions::new();
        create.read(true).write(true).create_new(true).mode(0o600);
        match create.open(path) {
            // Another process was faster: open what it made.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
}

/// Makes the folders that are missing on the way to `path`, for this user only.
pub(crate) fn make_folders(path: &Path) -> Result<()> {
    let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| of_system("make the folder", folder, &error))
}

/// The path without links, so that all who mean one file also mean one folder of locks.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {}
        Err(error) => return Err(of_system("open", path, &error)),
    }
    let Some(name) = path.file_name() else {
        return Err(Error::invalid(format!(
            "{:?} names no file: give the path of the database",
            path.as_os_str()
        )));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder
        .canonicalize()
        .map_err(|error| of_system("open the folder", folder, &error))?;
    Ok(folder.join(name))
}

/// Refuses a folder that other machines may see: their boot clocks and locks are not ours.
#[cfg(target_os = "linux")]
fn refuse_network(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let Ok(found) = rustix::fs::statfs(folder) else {
        // What cannot be asked cannot be refused; opening the file says why.
        return Ok(());
    };
    // The magic numbers are 32 bits wide; the field's own width differs by system.
    match network_name(found.f_type as u32) {
        Some(name) => Err(Error::misconfigured(format!(
            "{} lies on {name}, which other machines may share: a lease in a file is for one machine, \
             so choose a path on a local disk, or a store that is a server",
            path.display()
        ))),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_path: &Path) -> Result<()> {
    Ok(())
}

/// File systems that are shared between machines, by the number that statfs gives.
#[cfg(target_os = "linux")]
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => "SMB",
        0x0102_1997 => "9p",
        // Also sshfs, virtiofs and the shared folders of virtual machines.
        0x6573_5546 => "FUSE",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00C3_6400 => "Ceph",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0BD0_0BD0 => "Lustre",
        0x786F_4256 => "a VirtualBox shared folder",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_known() {
        for magic in [0x6969, 0xFF53_4D42, 0x0102_1997, 0x6573_5546] {
            assert!(network_name(magic).is_some(), "{magic:x}");
        }
        // ext4, tmpfs, overlayfs, btrfs, xfs.
        for magic in [0xEF53, 0x0102_1994, 0x794C_7630, 0x9123_683E, 0x5846_5342] {
            assert_eq!(network_name(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn one_file_is_opened_once_in_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let first = DatabaseFile::open(&path, false).unwrap();
        let second = DatabaseFile::open(&path, false).unwrap();
        assert!(std::ptr::eq(first.opened(), second.opened()));
        std::fs::remove_file(&path).unwrap();
        assert!(!first.is_in_place());
        let third = DatabaseFile::open(&path, false).unwrap();
        assert!(!std::ptr::eq(first.opened(), third.opened()));
        assert!(!first.is_in_place() && third.is_in_place());
    }
}
