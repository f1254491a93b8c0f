//! A tenure: one unbroken leadership, with its token, its deadline and its end.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::reason::EndReason;
use crate::store::Lease;
use crate::words::{Holder, Key, Token};

/// One unbroken leadership of one holder: key, holder and token.
///
/// It begins with an acquire, lives by renewals and ends once and for good, with a
/// reason. Whether it is valid is a question to this object alone: no I/O, no lock, and
/// right even if nothing else in the process has run for an hour.
///
/// Cheap to clone; all clones are the same tenure.
#[derive(Clone)]
pub struct Tenure {
    inner: Arc<Inner>,
}

struct Inner {
    lease: Lease,
    began_at: Moment,
    grace: Duration,
    clock: Arc<dyn Clock>,
    /// Nanoseconds of the clock; [`ENDED`] once it has ended. Whoever finds that the
    /// deadline has passed writes ENDED before saying so: thus no later extension can
    /// make it valid again after somebody was told that it is not.
    deadline: AtomicU64,
    deadlines: watch::Sender<Moment>,
    stopping: CancellationToken,
    ended: watch::Sender<Option<EndReason>>,
    progress_at: AtomicU64,
    work: Mutex<Work>,
    work_done: Notify,
}

const ENDED: u64 = 0;

/// What became of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    Moved,
    /// The deadline had passed.
    Overrun,
    /// Work had been told to stop.
    Told,
}

#[derive(Default)]
struct Work {
    running: usize,
    /// Work was told to stop: no more may begin.
    closed: bool,
}

/// Work that the tenure waits for before it is handed on. Drop it when the work has stopped.
#[derive(Debug)]
#[must_use = "the work counts as stopped when this is dropped"]
pub struct WorkGuard {
    tenure: Tenure,
}

impl Tenure {
    pub(crate) fn new(
        lease: Lease,
        deadline: Moment,
        grace: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now();
        let inner = Inner {
            lease,
            began_at: now,
            grace,
            clock,
            deadline: AtomicU64::new(deadline.as_nanos()),
            deadlines: watch::channel(deadline).0,
            stopping: CancellationToken::new(),
            ended: watch::channel(None).0,
            progress_at: AtomicU64::new(now.as_nanos()),
            work: Mutex::default(),
            work_done: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// What is led.
    pub fn key(&self) -> &Key {
        &self.inner.lease.key
    }

    /// Who leads.
    pub fn holder(&self) -> &Holder {
        &self.inner.lease.holder
    }

    /// The fencing token. Hand it to whatever you write to.
    pub fn token(&self) -> Token {
        self.inner.lease.token
    }

    /// How long a term is.
    pub fn ttl(&self) -> Duration {
        self.inner.lease.ttl
    }

    /// Whether this tenure is valid now. No I/O, no lock; once false, false for ever.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.valid_at().is_some()
    }

    /// How long this tenure is valid if no renewal comes: zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.valid_at()
            .map_or(Duration::ZERO, |(now, deadline)| deadline - now)
    }

    /// When this tenure ends if no renewal comes, on its elector's clock. On Linux that
    /// is the boot clock, which is one for all processes of a machine.
    pub fn deadline(&self) -> Moment {
        *self.inner.deadlines.borrow()
    }

    /// The deadline and each later one, for a watchdog beside this process.
    pub fn deadlines(&self) -> watch::Receiver<Moment> {
        self.inner.deadlines.subscribe()
    }

    /// Fires when work of this tenure has to stop: one grace before the deadline, or at
    /// once when the tenure is lost.
    ///
    /// To wait for it, [`told_to_stop`](Self::told_to_stop) is better: it also fires if
    /// the elector itself gets no chance to run.
    pub fn stopping(&self) -> CancellationToken {
        self.inner.stopping.clone()
    }

    /// Waits until work of this tenure has to stop.
    pub async fn told_to_stop(&self) {
        let mut deadlines = self.deadlines();
        loop {
            let told_at = deadlines
                .borrow_and_update()
                .saturating_sub(self.inner.grace);
            if !self.is_valid() || self.inner.clock.now() >= told_at {
                self.inner.stopping.cancel();
            }
            tokio::select! {
                () = self.inner.stopping.cancelled() => return,
                () = self.inner.clock.sleep_until(told_at) => {}
                _ = deadlines.changed() => {}
            }
        }
    }

    /// Waits for the end, and says why.
    pub async fn ended(&self) -> EndReason {
        let mut ended = self.inner.ended.subscribe();
        let mut deadlines = self.deadlines();
        loop {
            if let Some(reason) = ended.borrow_and_update().clone() {
                return reason;
            }
            if !self.is_valid() {
                return EndReason::Expired;
            }
            let deadline = *deadlines.borrow_and_update();
            tokio::select! {
                _ = ended.changed() => {}
                _ = deadlines.changed() => {}
                () = self.inner.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Why it ended, if it has.
    pub fn end_reason(&self) -> Option<EndReason> {
        let known = self.inner.ended.borrow().clone();
        known.or_else(|| (!self.is_valid()).then_some(EndReason::Expired))
    }

    /// Says that the work goes on, for settings with `stall_after`.
    pub fn report_progress(&self) {
        let now = self.inner.clock.now().as_nanos();
        self.inner.progress_at.fetch_max(now, Ordering::Release);
    }

    /// Registers work that this tenure waits for before it is handed on, unless it has
    /// ended or is about to.
    pub fn begin_work(&self) -> Option<WorkGuard> {
        let mut work = self.work();
        if work.closed || !self.is_valid() {
            return None;
        }
        work.running += 1;
        Some(WorkGuard {
            tenure: self.clone(),
        })
    }

    #[inline]
    fn valid_at(&self) -> Option<(Moment, Moment)> {
        let mut deadline = self.inner.deadline.load(Ordering::Acquire);
        loop {
            if deadline == ENDED {
                return None;
            }
            let now = self.inner.clock.now();
            if now.as_nanos() < deadline {
                return Some((now, Moment::from_nanos(deadline)));
            }
            match self.swap_deadline(deadline, ENDED) {
                Ok(()) => return None,
                Err(extended) => deadline = extended,
            }
        }
    }

    fn swap_deadline(&self, old: u64, new: u64) -> Result<(), u64> {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = self
            .inner
            .deadline
            .compare_exchange(old, new, order.0, order.1);
        swapped.map(drop)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // Two plain fields: a panic elsewhere cannot have left them half written.
        self.inner
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    // For the driver

    /// Moves the deadline, unless somebody was already told that it had passed or that
    /// work has to stop: what was said stays said.
    pub(crate) fn extend(&self, to: Moment) -> Extended {
        let mut deadline = self.inner.deadline.load(Ordering::Acquire);
        loop {
            let now = self.inner.clock.now().as_nanos();
            if deadline == ENDED || now >= deadline {
                return Extended::Overrun;
            }
            if self.inner.stopping.is_cancelled() {
                return Extended::Told;
            }
            match self.swap_deadline(deadline, to.as_nanos()) {
                Ok(()) => break,
                Err(changed) => deadline = changed,
            }
        }
        self.inner.deadlines.send_replace(to);
        Extended::Moved
    }

    /// Tells work to stop, lets no more begin, and says whether none is left.
    pub(crate) fn drain(&self) -> bool {
        self.inner.stopping.cancel();
        let mut work = self.work();
        work.closed = true;
        work.running == 0
    }

    pub(crate) fn end(&self, reason: EndReason) {
        self.inner.deadline.store(ENDED, Ordering::Release);
        self.inner.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
            }
            first
        });
        self.drain();
    }

    /// Waits until no work is left after [`drain`](Self::drain).
    pub(crate) async fn work_done(&self) {
        loop {
            let notified = self.inner.work_done.notified();
            {
                let work = self.work();
                if work.closed && work.running == 0 {
                    return;
                }
            }
            notified.await;
        }
    }

    pub(crate) fn progress_at(&self) -> Moment {
        Moment::from_nanos(self.inner.progress_at.load(Ordering::Acquire))
    }

    pub(crate) fn lasted(&self) -> Duration {
        self.inner.clock.now() - self.inner.began_at
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("key", self.key())
            .field("holder", self.holder())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl WorkGuard {
    /// The tenure that waits for this work.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut work = self.tenure.work();
        work.running -= 1;
        if work.running == 0 {
            self.tenure.inner.work_done.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::words::{Attempt, Version};

    fn tenure(clock: &ManualClock) -> Tenure {
        tenure_on(Arc::new(clock.clone()))
    }

    fn tenure_on(clock: Arc<dyn Clock>) -> Tenure {
        let lease = Lease {
            key: Key::new("k").unwrap(),
            holder: Holder::new("h").unwrap(),
            token: Token(1),
            attempt: Some(Attempt::first(1)),
            ttl: Duration::from_secs(10),
            rest: None,
            acquired_at: None,
            version: Version::new("1"),
        };
        let deadline = clock.now() + Duration::from_secs(10);
        Tenure::new(lease, deadline, Duration::from_secs(2), clock)
    }

    #[test]
    fn it_ends_by_itself_and_for_good() {
        let clock = ManualClock::new();
        let tenure = tenure(&clock);
        assert_eq!(tenure.remaining(), Duration::from_secs(10));
        clock.advance(Duration::from_secs(10));
        assert!(!tenure.is_valid());
        // Somebody was told: an extension that comes now is too late.
        let late = tenure.extend(clock.now() + Duration::from_secs(10));
        assert_eq!(late, Extended::Overrun);
        assert!(!tenure.is_valid());
        assert_eq!(tenure.end_reason(), Some(EndReason::Expired));
    }

    #[test]
    fn an_extension_after_the_deadline_is_refused_even_if_nobody_asked() {
        let clock = ManualClock::new();
        let tenure = tenure(&clock);
        clock.advance(Duration::from_secs(3600));
        let late = tenure.extend(clock.now() + Duration::from_secs(10));
        assert_eq!(late, Extended::Overrun);
        assert!(!tenure.is_valid());
    }

    /// A clock in which something happens just after it was read.
    #[derive(Clone, Debug)]
    struct RacingClock {
        clock: ManualClock,
        just_after: Arc<Mutex<Option<Tenure>>>,
    }

    impl Clock for RacingClock {
        fn now(&self) -> Moment {
            let now = self.clock.now();
            let asked = self.just_after.lock().unwrap().take();
            if let Some(tenure) = asked {
                self.clock.advance(Duration::from_secs(10));
                assert!(!tenure.is_valid());
            }
            now
        }
        fn wall(&self) -> std::time::SystemTime {
            self.clock.wall()
        }
        fn sleep_until(&self, moment: Moment) -> crate::clock::Sleep {
            self.clock.sleep_until(moment)
        }
    }

    #[test]
    fn who_was_told_that_it_has_ended_never_hears_otherwise() {
        let clock = RacingClock {
            clock: ManualClock::new(),
            just_after: Arc::default(),
        };
        let tenure = tenure_on(Arc::new(clock.clone()));
        let to = clock.now() + Duration::from_secs(20);
        // The driver reads the clock, is interrupted, and somebody asks meanwhile.
        *clock.just_after.lock().unwrap() = Some(tenure.clone());
        assert_eq!(tenure.extend(to), Extended::Overrun);
        assert!(!tenure.is_valid());
    }

    #[test]
    fn work_cannot_begin_once_it_was_told_to_stop() {
        let clock = ManualClock::new();
        let tenure = tenure(&clock);
        let guard = tenure.begin_work().unwrap();
        assert!(!tenure.drain());
        assert!(tenure.begin_work().is_none());
        drop(guard);
        assert!(tenure.drain());
    }

    #[tokio::test]
    async fn work_is_told_one_grace_before_the_deadline_without_any_elector() {
        let clock = ManualClock::new();
        let tenure = tenure(&clock);
        let told = tokio::spawn({
            let tenure = tenure.clone();
            async move { tenure.told_to_stop().await }
        });
        clock.advance(Duration::from_millis(7_999));
        tokio::task::yield_now().await;
        assert!(!told.is_finished());
        clock.advance(Duration::from_millis(1));
        told.await.unwrap();
        assert!(tenure.is_valid());
        clock.advance(Duration::from_secs(2));
        assert_eq!(tenure.ended().await, EndReason::Expired);
    }
}
