//! Many seeds on all cores, for a number of seeds or for a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::{BootClock, Clock};

use crate::profile::{PROFILES, Profile};
use crate::report::{Report, run};
use crate::timeline::Trace;

/// How far a soak goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first seed.
    pub from_seed: u64,
    /// How many seeds at most.
    pub seeds: u64,
    /// How long at most, in real time.
    pub time: Duration,
    /// How many threads.
    pub cores: usize,
    /// Only this profile; none: all of them in turn.
    pub profile: Option<&'static Profile>,
}

/// What a soak has come to.
#[derive(Debug, Default)]
pub struct Soak {
    simulated_ms: AtomicU64,
    faults: AtomicU64,
    tenures: AtomicU64,
    turned_away: AtomicU64,
    seeds: AtomicU64,
    violations: AtomicU64,
    failed: Mutex<Vec<Report>>,
    done: AtomicBool,
}

/// How many failed runs are kept to be shown.
const FAILED_MAX: usize = 20;

impl Soak {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs seeds until a limit is reached.
    pub fn run(&self, limits: Limits) {
        let next = AtomicU64::new(0);
        let began = BootClock.now();
        std::thread::scope(|scope| {
            for _ in 0..limits.cores {
                scope.spawn(|| {
                    while BootClock.now() - began < limits.time {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= limits.seeds {
                            break;
                        }
                        let seed = limits.from_seed + number;
                        let profile = limits.profile.unwrap_or_else(|| profile_of(seed));
                        self.add(run(seed, profile, None, Trace::Off));
                    }
                });
            }
        });
        self.done.store(true, Ordering::Release);
    }

    fn add(&self, report: Report) {
        let count = &report.count;
        let simulated_ms = count.simulated_ns / 1_000_000;
        self.simulated_ms.fetch_add(simulated_ms, Ordering::Relaxed);
        self.faults.fetch_add(count.faults, Ordering::Relaxed);
        self.tenures.fetch_add(count.tenures, Ordering::Relaxed);
        self.turned_away
            .fetch_add(count.turned_away, Ordering::Relaxed);
        self.seeds.fetch_add(1, Ordering::Relaxed);
        let violations = report.violations.len() as u64;
        self.violations.fetch_add(violations, Ordering::Relaxed);
        if violations > 0 {
            let mut failed = self.failed();
            if failed.len() < FAILED_MAX {
                failed.push(report);
            }
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Vec<Report>> {
        // Reports are pushed whole: a panic elsewhere leaves none half written.
        self.failed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether it has come to its end.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Years of true time in the simulated clusters.
    pub fn simulated_years(&self) -> f64 {
        self.simulated_ms.load(Ordering::Relaxed) as f64 / (365.25 * 86_400_000.0)
    }

    /// Faults that struck.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Tenures that began.
    pub fn tenures(&self) -> u64 {
        self.tenures.load(Ordering::Relaxed)
    }

    /// Writes of former leaders that the fence turned away.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Seeds that were run.
    pub fn seeds(&self) -> u64 {
        self.seeds.load(Ordering::Relaxed)
    }

    /// The runs in which a promise did not hold, the first few of them.
    pub fn failures(&self) -> Vec<Report> {
        self.failed().clone()
    }

    /// How often a promise did not hold.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }
}

/// The profile that a seed runs if none is asked for: all of them in turn.
pub fn profile_of(seed: u64) -> &'static Profile {
    &PROFILES[(seed % PROFILES.len() as u64) as usize]
}
