//! The thread that owns the connection, and the cheapest safe way to hand it a call.
//!
//! SQLite blocks, and a disk can hang for minutes. So no statement runs on the caller's
//! async thread, where it would hold up every other elector and the cancellation of
//! guarded work. But waking a sleeping thread, and being woken by it, costs more than
//! the statement itself. So both sides first look for each other for a moment without
//! sleeping: the caller while its statement runs, the worker after one, for the next.
//! Both are bounded, and the caller looks only if nothing is under way before it: a hung
//! disk costs the async thread one such moment, once.
//!
//! [`Calls::Inline`] is for those who can do without this safety: the statement runs on
//! the caller's thread if the connection is free and the file is not locked; what would
//! wait or sync goes to the worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tenure::{BootClock, Clock, Error, Moment, Result};
use tokio::sync::oneshot;

use crate::leases::Leases;
use crate::options::Calls;
use crate::wait;

/// How long the caller looks for the answer before it sleeps.
const LOOK_CALLER: Duration = Duration::from_micros(100);
/// How long the worker looks for the next call before it sleeps.
const LOOK_WORKER: Duration = Duration::from_micros(50);
/// Looks between two glances at the clock.
const LOOKS_PER_GLANCE: u32 = 32;

/// On one core, looking only keeps the other side from running.
static HAS_CORES: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// After so many calls the log is folded into the file, as SQLite itself would do.
const INLINE_CALLS_PER_CHECKPOINT: u64 = 1000;

type Call = Box<dyn FnOnce(&mut Leases) + Send>;

/// The thread that owns the connection. It ends when this is dropped.
pub(crate) struct Worker {
    calls: mpsc::Sender<(Moment, Call)>,
    counts: Arc<Counts>,
    patience: Duration,
    /// The connection, for calls on the caller's thread.
    inline: Option<Arc<Mutex<Leases>>>,
    /// What the thread will need. With calls on the caller's thread it starts only when
    /// something has to wait: a short run never pays for it.
    not_started: Mutex<Option<Receiver<(Moment, Call)>>>,
}

/// What both sides look at: cheaper than to ask the channels again and again.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    done: AtomicU64,
    inline: AtomicU64,
}

impl Worker {
    pub(crate) fn start(leases: Leases, patience: Duration, calls_run: Calls) -> Result<Self> {
        let (calls, incoming) = mpsc::channel();
        let leases = Arc::new(Mutex::new(leases));
        let worker = Self {
            calls,
            counts: Arc::default(),
            patience,
            inline: (calls_run == Calls::Inline).then(|| leases.clone()),
            not_started: Mutex::new(Some(incoming)),
        };
        if worker.inline.is_none() {
            worker.start_thread(leases)?;
        }
        Ok(worker)
    }

    /// Starts the thread, if it was not started before.
    fn start_thread(&self, leases: Arc<Mutex<Leases>>) -> Result<()> {
        let mut not_started = self
            .not_started
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(incoming) = not_started.take() else {
            return Ok(());
        };
        let counts = self.counts.clone();
        std::thread::Builder::new()
            .name("tenure-sqlite".into())
            .spawn(move || work(&leases, &incoming, &counts))
            .map_err(|error| {
                Error::unavailable(format!(
                    "the store's thread cannot start ({error}): open the store again"
                ))
            })?;
        Ok(())
    }

    /// Runs `call`, a second time only if the first one found the file locked. A caller
    /// that goes away before its turn is skipped.
    pub(crate) async fn run<T, F>(&self, mut call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Leases) -> Result<T> + Send + 'static,
    {
        match self.run_inline(&mut call) {
            Some(done) => done,
            None => self.run_on_thread(call).await,
        }
    }

    /// Runs it here, if that is wanted and nothing has to be waited for.
    fn run_inline<T>(&self, call: &mut impl FnMut(&mut Leases) -> Result<T>) -> Option<Result<T>> {
        let leases = self.inline.as_deref()?;
        let counts = &self.counts;
        if counts.done.load(Ordering::Acquire) < counts.sent.load(Ordering::Acquire) {
            return None;
        }
        let mut leases = leases.try_lock().ok()?;
        let now = BootClock.now();
        wait::not();
        let done = leases.follow_file(now).and_then(|()| call(&mut leases));
        drop(leases);
        let calls = counts.inline.fetch_add(1, Ordering::Relaxed) + 1;
        if calls.is_multiple_of(INLINE_CALLS_PER_CHECKPOINT) {
            // Nobody waits for it, and nothing is lost without it.
            let _ = self.send(now, Box::new(Leases::checkpoint));
        }
        if done.is_err() && wait::was_wanted() {
            return None;
        }
        Some(done)
    }

    fn send(&self, now: Moment, call: Call) -> Result<u64> {
        if let Some(leases) = &self.inline {
            self.start_thread(leases.clone())?;
        }
        // What waits behind a call that waits for a lock does not begin a wait of its own.
        let until = now + self.patience;
        self.calls.send((until, call)).map_err(|_| gone())?;
        // Counted after it was sent: who sees the count finds the call.
        Ok(self.counts.sent.fetch_add(1, Ordering::Release))
    }

    async fn run_on_thread<T, F>(&self, mut call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Leases) -> Result<T> + Send + 'static,
    {
        let (reply, mut answer) = oneshot::channel();
        let now = BootClock.now();
        let call: Call = Box::new(move |leases| {
            if reply.is_closed() {
                return;
            }
            let done = leases.follow_file(now).and_then(|()| call(leases));
            let _ = reply.send(done);
        });
        let before = self.send(now, call)?;
        let counts = &self.counts;
        if counts.done.load(Ordering::Acquire) >= before && *HAS_CORES {
            look(LOOK_CALLER, now, || {
                counts.done.load(Ordering::Acquire) > before
            });
            match answer.try_recv() {
                Ok(done) => return done,
                Err(oneshot::error::TryRecvError::Empty) => {}
                Err(oneshot::error::TryRecvError::Closed) => return Err(gone()),
            }
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A thread that was started closes when its calls end; one that was not, cannot.
        let not_started = self.not_started.get_mut();
        let not_started = not_started.unwrap_or_else(PoisonError::into_inner);
        if let (Some(_), Some(leases)) = (not_started, &self.inline) {
            let mut leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
            leases.close();
        }
    }
}

fn gone() -> Error {
    Error::unavailable("the store's thread has ended: open the store again")
}

fn work(leases: &Mutex<Leases>, incoming: &Receiver<(Moment, Call)>, counts: &Counts) {
    let mut done = 0;
    loop {
        if *HAS_CORES {
            look(LOOK_WORKER, BootClock.now(), || {
                counts.sent.load(Ordering::Acquire) > done
            });
        }
        let Ok((until, call)) = incoming.recv() else {
            break;
        };
        wait::until(until);
        // A call that panicked has rolled back what it began.
        call(&mut leases.lock().unwrap_or_else(PoisonError::into_inner));
        done += 1;
        counts.done.store(done, Ordering::Release);
    }
    let mut leases = leases.lock().unwrap_or_else(PoisonError::into_inner);
    leases.close();
}

/// Looks again and again, at most for so long.
fn look(at_most: Duration, began: Moment, mut found: impl FnMut() -> bool) {
    let until = began + at_most;
    loop {
        for _ in 0..LOOKS_PER_GLANCE {
            if found() {
                return;
            }
            std::hint::spin_loop();
        }
        if BootClock.now() >= until {
            return;
        }
        // On a busy machine the other side may be waiting for this very core.
        std::thread::yield_now();
    }
}
