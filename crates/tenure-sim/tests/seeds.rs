//! Ten thousand seeds over all profiles, on all cores: every promise holds in each.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use tenure_sim::profile::{self, PROFILES};
use tenure_sim::soak::{Limits, Soak};
use tenure_sim::{Trace, found, run};

#[test]
fn ten_thousand_seeds_hold_every_promise() {
    let soak = Soak::new();
    soak.run(Limits {
        from_seed: 0,
        seeds: 10_000,
        time: Duration::MAX,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        profile: None,
    });
    let mut text = String::new();
    for failure in soak.failures() {
        for violation in &failure.violations {
            text += &format!(
                "{}: {}\n  again: {}\n",
                violation.checker,
                violation.text,
                failure.command()
            );
        }
    }
    // The first one with all that is needed to understand it.
    if let Some(first) = soak.failures().first() {
        let profile = profile::find(first.profile).unwrap();
        text += &run(first.seed, profile, None, Trace::Full).to_string();
    }
    assert!(text.is_empty(), "{text}");
    assert_eq!(soak.seeds(), 10_000);
    // The runs are about something: faults strike, leaders change, fences turn away.
    assert!(soak.faults() > 100_000, "{}", soak.faults());
    assert!(soak.tenures() > 50_000, "{}", soak.tenures());
    assert!(soak.turned_away() > 500, "{}", soak.turned_away());
}

#[test]
fn what_was_found_and_mended_does_not_come_back() {
    for finding in found::FOUND {
        let (name, seed) = finding.shown_by;
        let report = run(seed, profile::find(name).unwrap(), None, Trace::Off);
        let violations = &report.violations;
        assert!(violations.is_empty(), "{}: {violations:?}", finding.what);
    }
}

#[test]
fn without_a_fence_older_writes_go_through() {
    // The reason for fences: a pause between check and use. With the fence none does.
    let processes = profile::find("processes").unwrap();
    let runs = (0..200).map(|seed| run(seed, processes, None, Trace::Off).count);
    let older: u64 = runs.map(|count| count.unfenced_older).sum();
    assert!(older > 0);
}

#[test]
fn only_a_store_that_loses_records_and_time_can_repeat_a_token() {
    // What docs/proof.md says of the fence beyond all bounds: both faults together.
    let lost_time = profile::find("lost-time").unwrap();
    let shows = |seed| run(seed, lost_time, None, Trace::Off).caught_by("tokens_grow");
    assert!((0..500).any(shows), "the docs say that this can happen");
    // Each alone cannot.
    for name in ["rollbacks", "deletions", "store-jumps"] {
        let profile = profile::find(name).unwrap();
        for seed in 0..300 {
            let report = run(seed, profile, None, Trace::Off);
            assert!(
                !report.caught_by("tokens_grow") && !report.caught_by("fence_holds"),
                "{name} {seed}"
            );
        }
    }
}

#[test]
fn every_profile_has_its_own_name() {
    let names: Vec<_> = PROFILES
        .iter()
        .chain(profile::NARROW)
        .map(|p| p.name)
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(names.len(), sorted.len());
}
