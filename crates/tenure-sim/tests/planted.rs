//! Every planted bug is caught, by the checker that is named for it, within a minute.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{BootClock, Clock};
use tenure_sim::planted::{PLANTED, Planted};
use tenure_sim::{Report, Trace, profile, run};

/// How long one bug may take to be caught, on one core.
const TIME_MAX: Duration = Duration::from_secs(60);

fn hunt(planted: &Planted) -> Result<Report, String> {
    let profile = profile::find(planted.profile).unwrap();
    let began = BootClock.now();
    for seed in 0.. {
        let report = run(seed, profile, Some(planted.bug), Trace::Off);
        if report.caught_by(planted.caught_by) {
            return Ok(report);
        }
        if BootClock.now() - began > TIME_MAX {
            break;
        }
    }
    let (name, checker) = (planted.name, planted.caught_by);
    Err(format!(
        "{name} was not caught by {checker}: a hole in the checkers"
    ))
}

#[test]
fn every_planted_bug_is_caught() {
    assert!(PLANTED.len() >= 20);
    let next = AtomicUsize::new(0);
    let holes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(planted) = PLANTED.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(hole) = hunt(planted) {
                        holes.lock().unwrap().push(hole);
                    }
                }
            });
        }
    });
    let holes = holes.into_inner().unwrap();
    assert!(holes.is_empty(), "{}", holes.join("\n"));
}

#[test]
fn the_seeds_that_catch_them_show_nothing_without_them() {
    for planted in PLANTED {
        let report = hunt(planted).unwrap();
        let profile = profile::find(planted.profile).unwrap();
        let healthy = run(report.seed, profile, None, Trace::Off);
        let news = &healthy.violations;
        assert!(news.is_empty(), "{}: {news:?}", planted.name);
    }
}

#[test]
fn every_checker_catches_something() {
    for checker in tenure_sim::checkers() {
        let named = PLANTED.iter().any(|planted| planted.caught_by == checker);
        assert!(named, "{checker} has never been seen to catch anything");
    }
    for planted in PLANTED {
        assert!(
            tenure_sim::checkers().contains(&planted.caught_by),
            "{}",
            planted.name
        );
    }
}
