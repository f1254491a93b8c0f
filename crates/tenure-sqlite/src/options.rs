//! How a store is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Clock, Result};

use crate::boot;
use crate::file::DatabaseFile;
use crate::judge::Judge;
use crate::leases::Leases;
use crate::liveness::{HolderLock, Holders};
use crate::store::SqliteStore;
use crate::worker::Worker;

/// How others notice that a holder has died before its term has ended.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Liveness {
    /// By this process and the children that it starts from now on: when all are gone,
    /// the next may lead at once.
    #[default]
    Process,
    /// Not at all: the lease lives until its term ends, whoever dies. For commands that
    /// take a lease and exit.
    None,
    /// By a lock that was made before, or inherited.
    Lock(HolderLock),
}

/// On which thread the calls of a store run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// On a thread of the store's own: a disk that hangs then holds up nobody's async
    /// thread, so that deadlines and cancellations are kept.
    #[default]
    OnOwnThread,
    /// On the caller's thread, unless the file is locked: as fast as the statement
    /// itself. Only where nothing else depends on that thread, because a disk that
    /// hangs stops it: for a command whose deadline is kept by another process.
    Inline,
}

/// How a store is opened; see [`SqliteStore::options`].
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct SqliteOptions {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    boot_id: Option<String>,
    liveness: Liveness,
    patience: Duration,
    network_allowed: bool,
    calls: Calls,
}

impl SqliteOptions {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            clock: Arc::new(BootClock),
            boot_id: None,
            liveness: Liveness::default(),
            patience: Duration::from_secs(1),
            network_allowed: false,
            calls: Calls::default(),
        }
    }

    /// The clock that judges expiry. All who share the file must have the same one.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The name of this boot, if it is not to be the kernel's.
    pub fn boot_id(mut self, boot_id: impl Into<String>) -> Self {
        self.boot_id = Some(boot_id.into());
        self
    }

    /// How others notice that this holder has died. Default [`Liveness::Process`].
    pub fn liveness(mut self, liveness: Liveness) -> Self {
        self.liveness = liveness;
        self
    }

    /// How long a call waits while another process has the file locked. Default 1 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// On which thread calls run. Default [`Calls::OnOwnThread`].
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Opens the file even if it lies on a file system that other machines may share.
    /// Only right if none does: each would take the leases of the others for ended.
    pub fn allow_network_file_system(mut self, allow: bool) -> Self {
        self.network_allowed = allow;
        self
    }

    /// Opens the database, or makes it, with its folders, if there is none. This blocks
    /// for as long as the disk takes.
    pub fn open(self) -> Result<SqliteStore> {
        let boot = match self.boot_id {
            Some(boot) => boot,
            None => boot::boot_id()?,
        };
        let file = DatabaseFile::open(&self.path, self.network_allowed)?;
        let judge = Judge {
            clock: self.clock,
            boot: boot.into(),
            holders: Holders::beside(file.path()),
        };
        let path = file.path().to_owned();
        crate::wait::at_most(self.patience);
        let mut leases = Leases::open(
            file,
            judge.clone(),
            self.liveness,
            self.patience,
            self.network_allowed,
        )?;
        if self.calls == Calls::Inline {
            leases.stop_checkpoints()?;
            leases.fold_long_log();
        }
        let worker = Worker::start(leases, self.patience, self.calls)?;
        Ok(SqliteStore::new(worker, path, judge))
    }
}
