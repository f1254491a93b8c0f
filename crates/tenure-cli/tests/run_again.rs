//! `--restart`, `--at-least` and `step-down`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::Duration;

use common::{Place, code, lives, signal, stdout, wait_for};
use nix::sys::signal::Signal;
use tenure::{BootClock, Clock};

/// The one run of a supervisor.
fn run_of(node: &common::Node) -> i32 {
    let supervisor = node.pid();
    wait_for("a run", || common::children(supervisor).pop())
}

#[test]
fn restart_runs_again_in_a_later_tenure() {
    let place = Place::new();
    let script = place.script("[ $(grep -c start $D/log) -ge 3 ] && sleep 600; exit 1");
    let mut node = place.start("a", &["run", "k", "--restart", "--", "sh", &script, "a"]);
    wait_for("three runs", || {
        (place.log_without_overlap().matches("start").count() >= 3).then_some(())
    });
    let log = place.read("log");
    let tokens = log.lines().map(|line| line.split(' ').nth(2).unwrap());
    let tokens: Vec<u64> = tokens.map(|token| token.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{log}");
    node.signal(Signal::SIGTERM);
    assert_eq!(node.code(), 143);
}

#[test]
fn restart_ends_with_a_signal_and_the_commands_code() {
    let place = Place::new();
    let script = place.script(
        "trap 'exit 9' TERM; trap 'echo hup >> $D/log' HUP; echo ready >> $D/log
        while :; do sleep 0.02; done",
    );
    let mut node = place.start("a", &["run", "k", "--restart", "--", "sh", &script, "a"]);
    place.wait_for_text("log", "ready");
    node.signal(Signal::SIGHUP);
    place.wait_for_text("log", "hup");
    assert!(node.is_running());
    node.signal(Signal::SIGTERM);
    assert_eq!(node.code(), 9);
    assert_eq!(place.status("k")["held"], false);
    assert_eq!(place.read("log").matches("start").count(), 1);
}

#[test]
fn restart_does_not_repeat_what_cannot_work() {
    let place = Place::new();
    let output = place.output(&["run", "k", "--restart", "--", "there-is-no-such-command"]);
    assert_eq!(code(&output), 127);
    place.output(&["acquire", "k", "--ttl", "1h"]);
    let output = place.output(&["run", "k", "--restart", "--no-wait", "--", "true"]);
    assert_eq!(code(&output), 75);
}

#[test]
fn restart_goes_on_after_kill_9_of_a_run() {
    let place = Place::new();
    let script = place.script("sleep 600");
    let args = [
        "run",
        "k",
        "--restart",
        "--ttl",
        "10m",
        "--grace",
        "200ms",
        "--",
        "sh",
        &script,
        "a",
    ];
    let mut node = place.start("a", &args);
    place.wait_for_text("log", "start a");
    signal(run_of(&node), Signal::SIGKILL);
    wait_for("the second run", || {
        (place.log_without_overlap().matches("start a").count() == 2).then_some(())
    });
    node.signal(Signal::SIGTERM);
    assert_eq!(node.code(), 143);
}

#[test]
fn kill_9_of_the_supervisor_ends_all() {
    let place = Place::new();
    let script = place.script("sleep 600");
    let node = place.start(
        "a",
        &[
            "run",
            "k",
            "--restart",
            "--grace",
            "200ms",
            "--",
            "sh",
            &script,
            "a",
        ],
    );
    place.wait_for_text("log", "start a");
    let run = run_of(&node);
    node.signal(Signal::SIGKILL);
    let command = place.pids()[0];
    wait_for("their end", || {
        (!lives(run) && !lives(command)).then_some(())
    });
    wait_for("a free lease", || {
        (place.status("k")["held"] == false).then_some(())
    });
}

#[test]
fn at_least_keeps_the_lease_of_a_short_command() {
    let place = Place::new();
    let began = BootClock.now();
    let mut node = place.start(
        "a",
        &[
            "run",
            "k",
            "--at-least",
            "1500ms",
            "--",
            "sh",
            "-c",
            "echo done > $D/done; exit 6",
        ],
    );
    place.wait_for_text("done", "done");
    let second = place.output(&["run", "k", "--no-wait", "--", "touch", "ran"]);
    assert!(
        BootClock.now() - began < Duration::from_millis(1500),
        "too slow to tell"
    );
    assert_eq!(code(&second), 75);
    assert_eq!(node.code(), 6);
    assert!(BootClock.now() - began >= Duration::from_millis(1500));
    assert_eq!(place.status("k")["held"], false);
}

#[test]
fn at_least_does_not_hold_up_somebody_who_wants_to_leave() {
    let place = Place::new();
    let mut node = place.start(
        "a",
        &[
            "run",
            "k",
            "--at-least",
            "1h",
            "--",
            "sh",
            "-c",
            "echo $$ > $D/done; exit 6",
        ],
    );
    let command: i32 = place.wait_for_text("done", "\n").trim().parse().unwrap();
    wait_for("the command's end", || (!lives(command)).then_some(()));
    let guardian_gone = || common::children(node.pid()).iter().all(|pid| !lives(*pid));
    wait_for("the guardian's end", || guardian_gone().then_some(()));
    node.signal(Signal::SIGTERM);
    assert_eq!(node.code(), 6);
}

#[test]
fn asked_to_step_down_it_ends_its_command_and_says_so() {
    let place = Place::new();
    let script =
        place.script("trap 'echo told >> $D/log; exit 0' TERM; while :; do sleep 0.02; done");
    let mut node = place.start(
        "a",
        &[
            "run", "k", "--ttl", "3s", "--holder", "me", "--", "sh", &script, "a",
        ],
    );
    place.wait_for_text("log", "start a");
    let output = place.output(&["step-down", "k", "--wait", "20s", "--format", "json"]);
    assert_eq!(code(&output), 0);
    let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["holder"], "me");
    assert_eq!(answer["resigned"], true);
    assert_eq!(node.code(), 79);
    assert!(place.read("log").contains("told"));
    assert!(place.read("a.err").contains("asked to step down"));
    assert_eq!(place.status("k")["held"], false);
}

#[test]
fn asked_to_step_down_with_restart_it_leaves_the_lease_to_another() {
    let place = Place::new();
    let script = place.script("sleep 600");
    let run = |name| {
        [
            "run",
            "k",
            "--restart",
            "--ttl",
            "2s",
            "--",
            "sh",
            &script,
            name,
        ]
        .map(str::to_owned)
    };
    let mut a = place.start("a", &run("a").each_ref().map(String::as_str));
    place.wait_for_text("log", "start a");
    let mut b = place.start("b", &run("b").each_ref().map(String::as_str));
    common::wait_for("b", || common::children(b.pid()).pop());
    place.output(&["step-down", "k"]);
    place.wait_for_text("log", "start b");
    place.output(&["step-down", "k"]);
    wait_for("a again", || {
        (place.log_without_overlap().matches("start a").count() == 2).then_some(())
    });
    assert!(a.is_running() && b.is_running());
}

#[test]
fn asked_to_step_down_with_restart_it_rests_for_a_term() {
    let place = Place::new();
    let script = place.script("sleep 600");
    let args = [
        "run",
        "k",
        "--restart",
        "--ttl",
        "3s",
        "--",
        "sh",
        &script,
        "a",
    ];
    let _node = place.start("a", &args);
    place.wait_for_text("log", "start a");
    let output = place.output(&["step-down", "k", "--wait", "20s"]);
    assert_eq!(code(&output), 0);
    let resigned_at = BootClock.now();
    wait_for("the second run", || {
        (place.log_without_overlap().matches("start a").count() == 2).then_some(())
    });
    let rested = BootClock.now() - resigned_at;
    assert!(rested > Duration::from_millis(2500), "{rested:?}");
}

/// Each run leaves a few pages in the log of the database, and none lives long enough to
/// be the one that folds it by the count of its own writes.
#[test]
fn runs_do_not_let_the_log_grow() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path("log.db").display());
    let mut longest = 0;
    for _ in 0..200 {
        let output = place.output(&["run", "k", "--store", &url, "--", "true"]);
        assert_eq!(code(&output), 0);
        let log = std::fs::metadata(place.path("log.db-wal")).unwrap();
        longest = log.len().max(longest);
    }
    assert!(longest < 600 * 1024, "the log grew to {longest} bytes");
    assert!(
        longest > 500 * 1024,
        "{longest} bytes: too few runs to show anything"
    );
}
