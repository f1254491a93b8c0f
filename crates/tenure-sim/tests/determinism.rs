//! The same seed gives the same run, to the byte, in this process and in another.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use tenure_sim::profile::PROFILES;
use tenure_sim::{Trace, run};

#[test]
fn the_same_seed_gives_the_same_run_to_the_byte() {
    for profile in PROFILES {
        for seed in 0..10 {
            let first = run(seed, profile, None, Trace::Full);
            let second = run(seed, profile, None, Trace::Full);
            assert!(
                first.lines.len() > 100,
                "{}: there is something to compare",
                profile.name
            );
            assert_eq!(first.lines, second.lines, "{} {seed}", profile.name);
            assert_eq!(first.hash, second.hash);
            assert_eq!(first.to_string(), second.to_string());
        }
    }
}

#[test]
fn another_seed_gives_another_run() {
    let first = run(1, &PROFILES[5], None, Trace::Hash);
    let second = run(2, &PROFILES[5], None, Trace::Hash);
    assert_ne!(first.hash, second.hash);
}

#[test]
fn being_watched_changes_nothing() {
    for profile in PROFILES {
        for seed in 0..20 {
            let watched = run(seed, profile, None, Trace::Full);
            let alone = run(seed, profile, None, Trace::Off);
            assert_eq!(watched.count, alone.count, "{} {seed}", profile.name);
        }
    }
}

#[test]
fn another_process_runs_the_same() {
    for profile in PROFILES {
        let here = run(7, profile, None, Trace::Hash);
        let there = Command::new(env!("CARGO_BIN_EXE_tenure-sim"))
            .args(["run", "--hash", "--seed", "7", "--profile", profile.name])
            .output()
            .unwrap();
        let there = String::from_utf8(there.stdout).unwrap();
        assert_eq!(
            there.trim(),
            format!("{:016x}", here.hash),
            "{}",
            profile.name
        );
    }
}
