//! Time: a clock that runs on while the machine sleeps, injected everywhere.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

/// A point on a [`Clock`], in nanoseconds since the clock's own zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

/// A future that ends when a clock has reached a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock of one machine.
///
/// Monotonic and wall time are different methods, and no decision takes the second.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now. It never goes back, and it counts the time that the machine slept.
    fn now(&self) -> Moment;

    /// Wall time, for people to read.
    fn wall(&self) -> SystemTime;

    /// Ends at `moment` or soon after it, also if the machine slept meanwhile.
    fn sleep_until(&self, moment: Moment) -> Sleep;
}

/// The machine's own clock: boot time on Linux, elsewhere the nearest that counts
/// through sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

/// A clock that stands still until it is told to go on: for tests and simulations.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Clock, ManualClock};
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now() - before, Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: Arc<watch::Sender<(u64, SystemTime)>>,
}

impl Moment {
    /// The clock's zero.
    pub const ZERO: Moment = Moment(0);

    /// From nanoseconds since the clock's zero.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this, or zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment less `duration`, or the clock's zero.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }
}

impl std::ops::Sub<Moment> for Moment {
    type Output = Duration;
    fn sub(self, earlier: Moment) -> Duration {
        self.saturating_since(earlier)
    }
}

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
    }

    // CLOCK_MONOTONIC counts through sleep on Apple systems, and is the nearest on BSDs.
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
    }

    // Instant is the performance counter on Windows, which counts through sleep.
    #[cfg(not(unix))]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        static ZERO: OnceLock<Instant> = OnceLock::new();
        Moment(nanos(ZERO.get_or_init(Instant::now).elapsed()) + 1)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        Box::pin(async move {
            // A short sleep needs nobody to look after it.
            tokio::time::sleep((moment - BootClock.now()).min(NAP)).await;
            if BootClock.now() >= moment {
                return;
            }
            let mut woken = resumes();
            loop {
                let left = moment - BootClock.now();
                if left.is_zero() {
                    return;
                }
                // The runtime's timers stand still while the machine sleeps, so a
                // resume ends the nap and the rest is computed anew.
                tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    _ = woken.changed() => {}
                }
            }
        })
    }
}

/// How long the thread that looks for a resume naps.
const NAP: Duration = Duration::from_millis(500);

/// A channel that is told each time the machine has slept. One thread per process
/// compares the clock with how long it meant to nap.
fn resumes() -> watch::Receiver<u64> {
    use std::sync::OnceLock;
    static CHANNEL: OnceLock<watch::Sender<u64>> = OnceLock::new();
    CHANNEL
        .get_or_init(|| {
            let (sender, _) = watch::channel(0);
            let told = sender.clone();
            // Without the thread timers fire late after a resume; deadlines hold all the same.
            let _ = std::thread::Builder::new()
                .name("tenure-resume".into())
                .stack_size(64 * 1024)
                .spawn(move || {
                    loop {
                        let before = BootClock.now();
                        std::thread::sleep(NAP);
                        if BootClock.now() - before > NAP * 2 {
                            told.send_modify(|times| *times += 1);
                        }
                    }
                });
            sender
        })
        .subscribe()
}

impl ManualClock {
    /// A clock that shows one hour since boot, and the wall time of 2001-09-09.
    pub fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let (time, _) = watch::channel((3_600_000_000_000, wall));
        Self {
            time: Arc::new(time),
        }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, by: Duration) {
        self.time.send_modify(|(now, wall)| {
            *now = now.saturating_add(nanos(by));
            *wall += by;
        });
    }

    /// Sets the wall clock to something else, as an operator or NTP might.
    pub fn set_wall(&self, to: SystemTime) {
        self.time.send_modify(|(_, wall)| *wall = to);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.time.borrow().0)
    }

    fn wall(&self) -> SystemTime {
        self.time.borrow().1
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let mut time = self.time.subscribe();
        Box::pin(async move {
            // An error means that the clock is gone and time with it: sleep for ever.
            if time.wait_for(|(now, _)| *now >= moment.0).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
