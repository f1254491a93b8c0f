//! The operations on leases: each is one statement or one short transaction.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure::{
    AcquireRequest, Acquired, Asked, Error, HolderRequest, Key, Lease, Moment, Released, Renewed,
    Result, Token,
};

use crate::failure::of_sqlite;
use crate::file::DatabaseFile;
use crate::judge::Judge;
use crate::liveness::HolderLock;
use crate::options::Liveness;
use crate::row::{Row, TOKEN_END, request_text, signed};
use crate::{schema, table};

/// Who renews every few seconds looks each time; who renews all the time need not.
const LOOK_AT_FILE_EVERY: Duration = Duration::from_millis(100);
/// So that others need not wait long for the lock.
const RENEW_MANY_AT_ONCE: usize = 1000;

/// One connection, used by one thread.
pub(crate) struct Leases {
    // Declared before the file: it must be closed first.
    connection: Connection,
    file: DatabaseFile,
    pub(crate) judge: Judge,
    own: Own,
    patience: Duration,
    network_allowed: bool,
    look_at_file: Moment,
    /// Whether calls may fold the log into the file, which syncs.
    checkpoints: bool,
}

/// The lock file that this store's records name.
enum Own {
    None,
    /// Made with the first lease: a store that only reads needs none.
    Later,
    Lock(HolderLock),
}

impl Leases {
    pub(crate) fn open(
        file: DatabaseFile,
        judge: Judge,
        liveness: Liveness,
        patience: Duration,
        network_allowed: bool,
    ) -> Result<Self> {
        let own = match liveness {
            Liveness::None => Own::None,
            Liveness::Process => Own::Later,
            Liveness::Lock(lock) => Own::Lock(lock),
        };
        let mut connection = schema::connect(file.path(), &judge.clock)?;
        schema::prepare(&mut connection, file.path(), patience)?;
        Ok(Self {
            connection,
            file,
            judge,
            own,
            patience,
            network_allowed,
            look_at_file: Moment::ZERO,
            checkpoints: true,
        })
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    /// Opens the file anew if it was deleted or replaced: others use the new one, and
    /// a leader that renews in the old one would be a second leader for ever.
    pub(crate) fn follow_file(&mut self, now: Moment) -> Result<()> {
        if now < self.look_at_file {
            return Ok(());
        }
        if self.file.is_in_place() {
            self.look_at_file = now + LOOK_AT_FILE_EVERY;
            return Ok(());
        }
        tracing::warn!(file = %self.path().display(), "the database was deleted or replaced: opening it anew");
        let file = DatabaseFile::open(self.path(), self.network_allowed)?;
        let mut connection = schema::connect(file.path(), &self.judge.clock)?;
        schema::prepare(&mut connection, file.path(), self.patience)?;
        self.connection = connection;
        self.file = file;
        if !self.checkpoints {
            self.stop_checkpoints()?;
        }
        Ok(())
    }

    pub(crate) fn row(&self, key: &Key) -> Result<Option<Row>> {
        table::row(&self.connection, key).map_err(|error| of_sqlite(self.path(), &error))
    }

    /// Takes the lease if nobody has it.
    pub(crate) fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquired> {
        // Most candidates find it held: they need no write lock to see that.
        if let Some(found) = self.row(&request.key)?
            && self.judge.lives(&found)
            && !is_same_attempt(&found, request)
            && let Some(lease) = self.judge.lease(&request.key, &found)
        {
            return Ok(Acquired::Held(lease));
        }
        let liveness = self.own_lock()?;
        let judge = self.judge.clone();
        let path = self.path().to_owned();
        let of = |error| of_sqlite(&path, &error);
        let transaction = table::begin(&mut self.connection).map_err(of)?;
        let found = table::row(&transaction, &request.key).map_err(of)?;
        let mut dead = None;
        let mut again = None;
        if let Some(found) = found.as_ref().filter(|found| judge.runs(found)) {
            if is_same_attempt(found, request) {
                again = Some(found);
            } else if judge.died(found) {
                dead = found.liveness.clone();
            } else if let Some(lease) = judge.lease(&request.key, found) {
                return Ok(Acquired::Held(lease));
            }
        }
        let last = match &found {
            Some(found) => found.token,
            None => table::floor(&transaction).map_err(of)?,
        };
        let wall = judge.clock.wall();
        let next = Token::next(last, table::micros(wall));
        if next.0 >= TOKEN_END {
            return Err(no_more_tokens(&path, next));
        }
        let granted = Row {
            holder: Some(request.holder.clone()),
            token: again.map_or(next, |row| row.token),
            attempt: request.attempt,
            ttl: request.ttl,
            ends_at: signed((judge.clock.now() + request.ttl).as_nanos()),
            boot: judge.boot.to_string(),
            acquired_at: again.map_or(wall, |row| row.acquired_at),
            version: found.as_ref().map_or(0, |row| row.version) + 1,
            request: again.and_then(|row| row.request.clone()),
            liveness: liveness.map(|name| name.as_ref().to_owned()),
        };
        table::put(&transaction, &request.key, &granted).map_err(of)?;
        if let Some(name) = &dead {
            table::end_all_of(&transaction, &judge, name).map_err(of)?;
        }
        let swept = match found {
            Some(_) => Vec::new(),
            None => table::sweep(&transaction, &judge).map_err(of)?,
        };
        transaction.commit().map_err(of)?;
        // Only now: a record must not name a file that is gone.
        for name in dead.iter().chain(&swept) {
            judge.holders.remove(name);
        }
        let lease = judge.lease(&request.key, &granted);
        Ok(Acquired::Granted(lease.expect("it was made with a holder")))
    }

    /// Begins the term anew.
    pub(crate) fn renew(&mut self, lease: &Lease, ttl: Duration) -> Result<Renewed> {
        let liveness = self.own_lock()?;
        table::renew(
            &self.connection,
            &self.judge,
            lease,
            ttl,
            liveness.as_deref(),
        )
        .map_err(|error| of_sqlite(self.path(), &error))
    }

    /// Renews many in few transactions.
    pub(crate) fn renew_many(&mut self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let liveness = match self.own_lock() {
            Ok(liveness) => liveness,
            Err(error) => return leases.iter().map(|_| Err(error.clone())).collect(),
        };
        let path = self.path().to_owned();
        let mut answers = Vec::with_capacity(leases.len());
        for part in leases.chunks(RENEW_MANY_AT_ONCE) {
            let judge = &self.judge;
            let renewed = table::begin(&mut self.connection).and_then(|transaction| {
                let part = part.iter();
                let renewed = part
                    .map(|(lease, ttl)| {
                        table::renew(&transaction, judge, lease, *ttl, liveness.as_deref())
                    })
                    .collect::<rusqlite::Result<Vec<_>>>()?;
                transaction.commit()?;
                Ok(renewed)
            });
            match renewed {
                Ok(renewed) => answers.extend(renewed.into_iter().map(Ok)),
                Err(error) => {
                    let error = of_sqlite(&path, &error);
                    answers.extend(part.iter().map(|_| Err(error.clone())));
                }
            }
        }
        answers
    }

    /// Ends the lease, if it is the caller's.
    pub(crate) fn release(&mut self, lease: &Lease) -> Result<Released> {
        let freed = table::release(&self.connection, &self.judge, lease)
            .map_err(|error| of_sqlite(self.path(), &error))?;
        Ok(match freed {
            true => Released::Released,
            false => Released::NotHeld,
        })
    }

    /// The live lease of this key.
    pub(crate) fn read(&mut self, key: &Key) -> Result<Option<Lease>> {
        let found = self.row(key)?.filter(|row| self.judge.lives(row));
        Ok(found.and_then(|row| self.judge.lease(key, &row)))
    }

    /// The live leases whose keys begin with `prefix`.
    pub(crate) fn list(&mut self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        table::list(&self.connection, &self.judge, prefix, limit)
            .map_err(|error| of_sqlite(self.path(), &error))
    }

    /// Leaves a request for the present holder.
    pub(crate) fn ask(&mut self, key: &Key, request: &HolderRequest) -> Result<Asked> {
        let path = self.path().to_owned();
        let of = |error| of_sqlite(&path, &error);
        let text = request_text(request)?;
        let transaction = table::begin(&mut self.connection).map_err(of)?;
        let found = table::row(&transaction, key).map_err(of)?;
        let Some(found) = found.filter(|row| self.judge.lives(row)) else {
            return Ok(Asked::NotHeld);
        };
        let Some(holder) = found.holder else {
            return Ok(Asked::NotHeld);
        };
        table::ask(&transaction, key, text).map_err(of)?;
        transaction.commit().map_err(of)?;
        let token = found.token;
        Ok(Asked::Left { holder, token })
    }

    /// Folds the log into the file, without waiting for anybody.
    pub(crate) fn checkpoint(&mut self) {
        let folded = self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = folded {
            // The log only grows until the next time.
            tracing::debug!(%error, "the log could not be folded into the database");
        }
    }

    /// Folds a log that has become long: whoever opens the file first reads all of it. A
    /// command that takes one lease and exits would leave that to the next, for ever.
    pub(crate) fn fold_long_log(&mut self) {
        let mut log = self.path().as_os_str().to_owned();
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > schema::LOG_BYTES.into()) {
            self.checkpoint();
        }
    }

    /// No call syncs by itself from now on: somebody calls [`checkpoint`](Self::checkpoint).
    pub(crate) fn stop_checkpoints(&mut self) -> Result<()> {
        self.connection
            .pragma_update(None, "wal_autocheckpoint", 0)
            .map_err(|error| of_sqlite(self.path(), &error))?;
        self.checkpoints = false;
        Ok(())
    }

    /// Frees the lock file, unless a live record names it: that one then lives until
    /// its term or the process ends, for whoever took it may still rely on it.
    pub(crate) fn close(&mut self) {
        let Own::Lock(lock) = std::mem::replace(&mut self.own, Own::None) else {
            return;
        };
        let named = table::is_named(&self.connection, &self.judge, lock.name());
        if named.unwrap_or(true) {
            lock.leave();
        }
    }

    /// The name of this store's lock file, which is made now if it is not there.
    fn own_lock(&mut self) -> Result<Option<Arc<str>>> {
        if let Own::Later = self.own {
            self.own = Own::Lock(self.judge.holders.lock_new(self.file.path())?);
        }
        Ok(match &self.own {
            Own::Lock(lock) => Some(lock.shared_name()),
            _ => None,
        })
    }
}

/// Ours follow the clock and get there in the year 2255: somebody wrote one by hand.
fn no_more_tokens(path: &Path, next: Token) -> Error {
    Error::corrupt(format!(
        "the next token in {} would be {next}, and tokens stay below {TOKEN_END}: \
         look at the tables with `sqlite3`, and at the machine's clock",
        path.display()
    ))
}

fn is_same_attempt(row: &Row, request: &AcquireRequest) -> bool {
    row.holder.as_ref() == Some(&request.holder) && row.attempt == request.attempt
}
