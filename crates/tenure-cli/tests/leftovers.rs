//! Nothing of a run is left when it ends, not even a zombie for others to bury.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Place, code, name};

/// What became ours because its parent left it behind.
fn inherited() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .flat_map(|text| {
            let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
            pids.map(name).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn a_run_buries_its_guardian() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let place = Place::new();
    for _ in 0..10 {
        assert_eq!(code(&place.output(&["run", "k", "--", "true"])), 0);
    }
    place.output(&["acquire", "k", "--ttl", "1h"]);
    let output = place.output(&["run", "k", "--no-wait", "--", "true"]);
    assert_eq!(code(&output), 75);
    let url = format!("sqlite:{}/x", place.path("other.db").display());
    std::fs::write(place.path("other.db"), "no database").unwrap();
    let output = place.output(&["run", "k", "--store", &url, "--", "true"]);
    assert_eq!(code(&output), 69);
    assert_eq!(inherited(), Vec::<String>::new());
}
