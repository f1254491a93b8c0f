//! Signals are handed on, also while waiting; the child gets its environment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Place, assert_one_line, code, stdout, wait_for};
use nix::sys::signal::Signal;

#[test]
fn signals_reach_the_command() {
    let place = Place::new();
    let script = "for s in HUP USR1 USR2 WINCH ALRM; do trap \"echo $s >> $D/got\" $s; done
        trap 'echo TERM >> $D/got; exit 5' TERM
        echo ready > $D/ready
        while :; do sleep 0.02; done";
    let mut node = place.start("a", &["run", "k", "--", "sh", "-c", script]);
    place.wait_for_text("ready", "ready");
    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
        (Signal::SIGALRM, "ALRM"),
        (Signal::SIGTERM, "TERM"),
    ] {
        node.signal(signal);
        place.wait_for_text("got", name);
    }
    assert_eq!(node.code(), 5);
}

#[test]
fn a_signal_that_ends_the_command_is_its_exit_code() {
    let place = Place::new();
    for (signal, wanted) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut node = place.start("a", &["run", "k", "--", "sleep", "600"]);
        wait_for("the lease", || {
            place.status("k")["held"].as_bool().filter(|held| *held)
        });
        node.signal(signal);
        assert_eq!(node.code(), wanted);
        assert_eq!(place.status("k")["held"], false, "the lease is freed");
    }
}

#[test]
fn a_signal_ends_the_wait() {
    let place = Place::new();
    place.output(&["acquire", "k", "--ttl", "1h"]);
    for (signal, wanted) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ] {
        let mut node = place.start("a", &["run", "k", "--", "touch", "ran"]);
        node.guardian();
        node.signal(signal);
        assert_eq!(node.code(), wanted);
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let text = format!("trap '' HUP; exec {tenure} run k -- sh -c 'kill -HUP $$; exit 4'");
    let status = std::process::Command::new("sh")
        .args(["-c", &text])
        .env("TENURE_STORE", place.store_url())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(4));
}

#[test]
fn the_command_gets_its_environment() {
    let place = Place::new();
    let mut command = place.tenure(&[
        "run",
        "billing/nightly",
        "--ttl",
        "12s",
        "--holder",
        "me 1",
        "--",
        "sh",
        "-c",
        "echo \"$TENURE_KEY|$TENURE_HOLDER|$TENURE_TOKEN|$TENURE_TTL_MS|$OTHER\"",
    ]);
    command
        .env("OTHER", "kept")
        .env("TENURE_TOKEN", "1")
        .env("TENURE_KEY", "outer");
    let output = common::finished(&mut command);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    let parts: Vec<&str> = text.trim().split('|').collect();
    assert_eq!(parts[0], "billing/nightly");
    assert_eq!(parts[1], "me 1");
    assert!(parts[2].parse::<u64>().unwrap() > 1);
    assert_eq!(parts[3..], ["12000", "kept"]);
}

#[test]
fn tokens_grow_from_run_to_run() {
    let place = Place::new();
    let mut last = 0;
    for _ in 0..5 {
        let output = place.output(&["run", "k", "--", "sh", "-c", "echo $TENURE_TOKEN"]);
        let token: u64 = stdout(&output).trim().parse().unwrap();
        assert!(token > last);
        last = token;
    }
}

#[test]
fn a_pipe_behaves_as_without_tenure() {
    let place = Place::new();
    // The command must not inherit the ignored PIPE of this program's runtime.
    let output = place.output(&["run", "k", "--", "sh", "-c", "kill -PIPE $$; exit 0"]);
    assert_eq!(code(&output), 141);
}

#[test]
fn whoever_waits_is_told_for_whom() {
    let place = Place::new();
    place.output(&["acquire", "k", "--ttl", "1h", "--holder", "somebody"]);
    let mut node = place.start("a", &["run", "k", "--", "true"]);
    let text = place.wait_for_text("a.err", "somebody");
    assert_one_line(&text);
    node.signal(Signal::SIGTERM);
    assert_eq!(node.code(), 143);
}
