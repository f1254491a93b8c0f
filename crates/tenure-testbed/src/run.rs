//! The folders of this test process, the reaper that outlives it, and the sweeping of
//! what earlier runs left.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use nix::unistd::{Uid, geteuid};

use crate::processes;

/// What a folder in memory must have free to be used: etcd alone lays out 128 MB.
const MEMORY_FREE_MIN: u64 = 3 << 30;

/// Where the data of a server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Disk,
    /// In memory if this machine has a large enough `/dev/shm`, else on disk.
    Memory,
}

/// Everything of this process: gone with it.
struct Run {
    disk: PathBuf,
    memory: Option<PathBuf>,
    /// Free to lock = this process is gone.
    _alive: Vec<File>,
    /// Closed = this process is gone; the reaper reads the other end.
    _reaper: ChildStdin,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// The folder of this user's testbed on this machine, over all runs.
pub(crate) fn base() -> PathBuf {
    owned(&std::env::temp_dir())
}

/// A new folder for one server, named for the reader of `ls`.
pub(crate) fn folder(name: &str, place: Place) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let run = RUN.get_or_init(Run::begin);
    let root = match place {
        Place::Memory => run.memory.as_ref().unwrap_or(&run.disk),
        Place::Disk => &run.disk,
    };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = root.join(format!("{name}-{number}"));
    make(&folder);
    folder
}

/// Locks what only one process of this user may do at a time.
pub(crate) fn lock(name: &str) -> File {
    let path = base().join(name);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.lock()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file
}

impl Run {
    fn begin() -> Self {
        let _lock = lock("lock");
        let mut roots = vec![base()];
        let shared_memory = Path::new("/dev/shm");
        if statvfs(shared_memory)
            .is_ok_and(|fs| fs.blocks_available() * fs.fragment_size() > MEMORY_FREE_MIN)
        {
            roots.push(owned(shared_memory));
        }
        let mut folders = Vec::new();
        let mut alive = Vec::new();
        for root in roots {
            sweep(&root);
            let folder = new_run_folder(&root);
            let file = File::create(folder.join("alive")).and_then(|file| {
                file.try_lock().map_err(io::Error::other)?;
                Ok(file)
            });
            alive.push(file.unwrap_or_else(|e| panic!("{}: {e}", folder.display())));
            folders.push(folder);
        }
        let reaper = start_reaper(&folders);
        let mut folders = folders.into_iter();
        Self {
            disk: folders.next().unwrap_or_default(),
            memory: folders.next(),
            _alive: alive,
            _reaper: reaper,
        }
    }
}

/// Two processes have one id where two containers share a folder.
fn new_run_folder(root: &Path) -> PathBuf {
    let id = std::process::id();
    let mut names = (0..1000).map(|n| root.join(format!("run-{id}-{n}")));
    let free = names.find(|path| !path.exists());
    let free = free.unwrap_or_else(|| panic!("{} is full", root.display()));
    make(&free);
    free
}

/// In a process group of its own, so that Ctrl-C in a terminal does not reach it.
#[expect(
    clippy::zombie_processes,
    reason = "it outlives us, and is waited for by whoever inherits it"
)]
fn start_reaper(folders: &[PathBuf]) -> ChildStdin {
    let child = Command::new("sh")
        .arg("-c")
        .arg(include_str!("reaper.sh"))
        .arg("tenure-testbed-reaper")
        .args(folders)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = child.unwrap_or_else(|e| panic!("sh: {e}"));
    child.stdin.take().unwrap_or_else(|| panic!("sh: no pipe"))
}

/// Ends and removes what runs have left whose process and reaper are both gone.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_run = entry.file_name().to_string_lossy().starts_with("run-");
        if !is_run {
            continue;
        }
        let alive = File::open(path.join("alive"));
        if alive.is_ok_and(|file| file.try_lock().is_err()) {
            continue;
        }
        end(&path);
    }
}

/// Kills every process of the folder and removes it.
pub(crate) fn end(folder: &Path) {
    for _ in 0..500 {
        if processes::of_folder(folder).is_empty() {
            break;
        }
        processes::signal_folder(folder, Signal::SIGKILL);
        thread::sleep(Duration::from_millis(2));
    }
    // The reaper of that run may be at it too.
    let _ = fs::remove_dir_all(folder);
}

/// The folder in `parent` that is this user's own: made by us, or refused.
fn owned(parent: &Path) -> PathBuf {
    let uid = geteuid();
    let path = parent.join(format!("tenure-testbed-{uid}"));
    if !path.is_dir() {
        make(&path);
    }
    let owner = fs::symlink_metadata(&path).map(|meta| meta.uid());
    match owner {
        Ok(owner) if Uid::from_raw(owner) == uid => path,
        Ok(_) => panic!("{} belongs to another user", path.display()),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Others may pass through, since PostgreSQL runs as another user than root, but not look.
fn make(path: &Path) {
    let made = DirBuilder::new().recursive(true).create(path);
    let made = made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o711)));
    made.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
