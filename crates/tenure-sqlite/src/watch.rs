//! Pushed changes: one thread per store, while somebody watches, looks for all of them.
//!
//! Every 20 ms it asks SQLite whether anybody has written (which costs a few
//! microseconds), the kernel whether the watched holders' locks are still held, and the
//! clock whether a term has ended. Changes by this store itself wake it at once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rusqlite::Connection;
use tenure::{BootClock, Clock, Error, Key, Notice, Result, Token};
use tokio::sync::mpsc;

use crate::file::DatabaseFile;
use crate::judge::Judge;
use crate::row::Row;
use crate::{schema, table, wait};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of a core, at most: with very many watched keys it looks less often instead.
const LOOK_SHARE_MAX: u32 = 5;
/// But not so seldom that one slow look on a busy machine delays the next for long.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(200);
/// A reader that is this far behind has enough to look at.
const NOTICES_MAX: usize = 64;

/// Everybody who watches a key of this store.
#[derive(Debug)]
pub(crate) struct Hub {
    path: PathBuf,
    judge: Judge,
    watched: Mutex<Watched>,
    signal: Mutex<Signal>,
    wake: Condvar,
    /// So that a store that nobody watches pays nothing.
    running: AtomicBool,
}

#[derive(Debug, Default)]
struct Watched {
    by_key: HashMap<Key, Watch>,
}

#[derive(Debug)]
struct Watch {
    row: Option<Row>,
    /// Whether it was live when it was last looked at.
    live: bool,
    readers: Vec<mpsc::Sender<Notice>>,
}

#[derive(Debug, Default)]
struct Signal {
    poked: bool,
    closed: bool,
}

impl Hub {
    pub(crate) fn new(path: PathBuf, judge: Judge) -> Arc<Self> {
        Arc::new(Self {
            path,
            judge,
            watched: Mutex::default(),
            signal: Mutex::default(),
            wake: Condvar::new(),
            running: AtomicBool::new(false),
        })
    }

    /// Watches `key`, whose record was `seen` just now.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &Key,
        seen: Option<Row>,
    ) -> Result<BoxStream<'static, Notice>> {
        let (sender, reader) = mpsc::channel(NOTICES_MAX);
        let mut watched = self.watched();
        let live = seen.as_ref().is_some_and(|row| self.judge.lives(row));
        let watch = watched.by_key.entry(key.clone()).or_insert(Watch {
            row: seen,
            live,
            readers: Vec::new(),
        });
        watch.readers.push(sender);
        // Under the lock, so that a thread that is about to end has said so before.
        if !self.running.swap(true, Ordering::SeqCst) {
            self.start().inspect_err(|_| {
                self.running.store(false, Ordering::SeqCst);
                watched.by_key.clear();
            })?;
        }
        drop(watched);
        // Something may have happened since it was seen.
        self.poke();
        let notices = stream::unfold(reader, |mut reader| async {
            let notice = reader.recv().await?;
            Some((notice, reader))
        });
        Ok(notices.boxed())
    }

    /// Says that this store has changed something.
    pub(crate) fn poke(&self) {
        if self.running.load(Ordering::SeqCst) {
            self.signal().poked = true;
            self.wake.notify_one();
        }
    }

    /// Ends the thread and all streams.
    pub(crate) fn close(&self) {
        self.signal().closed = true;
        self.wake.notify_one();
    }

    fn start(self: &Arc<Self>) -> Result<()> {
        // Whether the place is a good one was asked when the store was opened.
        let file = DatabaseFile::open(&self.path, true)?;
        let connection = schema::connect(file.path(), &self.judge.clock)?;
        let hub = self.clone();
        std::thread::Builder::new()
            .name("tenure-sqlite-watch".into())
            .spawn(move || hub.run(file, connection))
            .map_err(|error| {
                Error::unavailable(format!(
                    "the watching thread cannot start ({error}): try again"
                ))
            })?;
        Ok(())
    }

    // Parameters are dropped from the last to the first, and the file must outlive the connection.
    fn run(&self, file: DatabaseFile, connection: Connection) {
        let mut data_version = None;
        let mut pause = LOOK_EVERY;
        while let Some(poked) = self.pause(pause) {
            let began = BootClock.now();
            let mut watched = self.watched();
            watched.by_key.retain(|_, watch| {
                watch.readers.retain(|reader| !reader.is_closed());
                !watch.readers.is_empty()
            });
            if watched.by_key.is_empty() {
                // Under the lock: who joins from now on starts a new thread.
                self.running.store(false, Ordering::SeqCst);
                return;
            }
            // The file was replaced: nothing that others do is seen here any more.
            if !file.is_in_place() {
                break;
            }
            wait::at_most(Duration::ZERO);
            let looked = self.look(&connection, &mut watched, poked, &mut data_version);
            match looked {
                Err(error) if !is_busy(&error) => {
                    tracing::warn!(%error, file = %self.path.display(), "cannot watch the database");
                    break;
                }
                _ => {}
            }
            drop(watched);
            let took = BootClock.now() - began;
            pause = (took * LOOK_SHARE_MAX).clamp(LOOK_EVERY, LOOK_EVERY_MAX);
        }
        // The streams end with their senders; who still wants to watch asks anew.
        let mut watched = self.watched();
        watched.by_key.clear();
        self.running.store(false, Ordering::SeqCst);
    }

    /// Waits for the next look; gives whether it was poked, or nothing if it is over.
    fn pause(&self, pause: Duration) -> Option<bool> {
        let waiting = |signal: &mut Signal| !signal.poked && !signal.closed;
        let waited = self.wake.wait_timeout_while(self.signal(), pause, waiting);
        let (mut signal, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let poked = std::mem::take(&mut signal.poked);
        (!signal.closed).then_some(poked)
    }

    fn look(
        &self,
        connection: &Connection,
        watched: &mut Watched,
        poked: bool,
        data_version: &mut Option<i64>,
    ) -> rusqlite::Result<()> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        let written = data_version.replace(version) != Some(version) || poked;
        // A process with a thousand leases is asked once.
        let mut lives = HashMap::<String, bool>::new();
        for (key, watch) in &mut watched.by_key {
            let before = watch.row.clone();
            if written {
                // Not remembered as seen if a record cannot be read now.
                watch.row = table::row(connection, key).inspect_err(|_| *data_version = None)?;
            }
            let live = watch.row.as_ref().is_some_and(|row| match &row.liveness {
                Some(name) if self.judge.runs(row) => *lives
                    .entry(name.clone())
                    .or_insert_with(|| self.judge.lives(row)),
                _ => self.judge.runs(row),
            });
            let was_live = std::mem::replace(&mut watch.live, live);
            if let Some(notice) = self.notice(key, before.as_ref(), was_live, watch) {
                for reader in &watch.readers {
                    // Full or gone: it has enough to look at, or nobody does.
                    let _ = reader.try_send(notice.clone());
                }
            }
        }
        Ok(())
    }

    fn notice(
        &self,
        key: &Key,
        before: Option<&Row>,
        was_live: bool,
        watch: &Watch,
    ) -> Option<Notice> {
        let token = |row: Option<&Row>| row.map_or(Token(0), |row| row.token);
        let after = watch.row.as_ref();
        let changed_hands = token(before) != token(after);
        match (watch.live, after) {
            (true, Some(row)) if changed_hands || !was_live => {
                self.judge.lease(key, row).map(Notice::Held)
            }
            (true, Some(row))
                if row.request.is_some() && before.map(|b| &b.request) != Some(&row.request) =>
            {
                Some(Notice::Look)
            }
            (true, _) => None,
            // Also if it was taken and freed again between two looks.
            (false, _) => (was_live || changed_hands).then_some(Notice::Free),
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // A panic while it was locked leaves at worst a notice unsent: each is a hint.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked)
    )
}
