//! Kills: the next leads at once, and never before the last process of the last is dead.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::Duration;

use common::{Place, lives, signal, stderr, wait_for};
use nix::sys::signal::Signal;
use tenure::{BootClock, Clock};

/// A command with a child, and a grandchild that left group and session by a double
/// fork; the grandchild does not listen to TERM.
const FAMILY: &str = "sleep 600 & echo $! >> $D/pids
    (setsid sh -c 'trap \"\" TERM HUP; echo $$ >> $D/pids; echo deep >> $D/log; while :; do sleep 0.05; done' &)
    while ! grep -q deep $D/log; do sleep 0.01; done
    echo \"settled $1\" >> $D/log
    wait; sleep 600";

#[test]
fn two_nodes_one_leader() {
    let place = Place::new();
    let script = place.script("sleep 600");
    let mut nodes: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| place.start(name, &["run", "k", "--", "sh", &script, name]))
        .collect();
    place.wait_for_text("log", "start");
    let guardians: Vec<i32> = nodes.iter().map(common::Node::guardian).collect();
    assert!(guardians.iter().all(|pid| lives(*pid)));
    assert_eq!(place.read("log").lines().count(), 1);
    // Whoever leads is ended; the other one follows.
    let led_by_a = place.read("log").starts_with("start a");
    let (leader, follower) = if led_by_a { (0, 1) } else { (1, 0) };
    nodes[leader].signal(Signal::SIGTERM);
    assert_eq!(nodes[leader].code(), 143);
    wait_for("the second start", || {
        (place.log_without_overlap().matches("start").count() == 2).then_some(())
    });
    assert!(nodes[follower].is_running());
}

#[test]
fn after_kill_9_the_next_leads_at_once_and_not_before_the_last_child_is_dead() {
    let place = Place::new();
    let script = place.script(FAMILY);
    // A long ttl: if the next had to wait for it, the bound would be over.
    let run = |name| {
        [
            "run", "k", "--ttl", "10m", "--grace", "300ms", "--", "sh", &script, name,
        ]
        .map(str::to_owned)
    };
    let a = place.start("a", &run("a").each_ref().map(String::as_str));
    place.wait_for_text("log", "settled a");
    let b = place.start("b", &run("b").each_ref().map(String::as_str));
    b.guardian();
    let family = place.pids();
    assert_eq!(family.len(), 3);
    assert!(family.iter().all(|pid| lives(*pid)));

    let killed_at = BootClock.now();
    a.signal(Signal::SIGKILL);
    place.wait_for_text("log", "start b");
    let gap = BootClock.now() - killed_at;
    assert!(gap < Duration::from_secs(5), "{gap:?}");
    assert!(family.iter().all(|pid| !lives(*pid)));
    place.log_without_overlap();
}

#[test]
fn after_kill_9_of_the_guardian_all_die_and_it_is_said() {
    let place = Place::new();
    let script = place.script(FAMILY);
    let mut a = place.start("a", &["run", "k", "--", "sh", &script, "a"]);
    place.wait_for_text("log", "settled a");
    let family = place.pids();
    signal(a.guardian(), Signal::SIGKILL);
    assert_eq!(a.code(), 79);
    assert!(family.iter().all(|pid| !lives(*pid)));
    let text = place.read("a.err");
    assert!(text.contains("the guardian was killed"), "{text}");
    // The lease is free at once.
    assert_eq!(place.status("k")["held"], false);
}

#[test]
fn after_kill_9_of_the_guardian_while_waiting_nothing_runs() {
    let place = Place::new();
    place.output(&["acquire", "k", "--ttl", "1h"]);
    let mut a = place.start("a", &["run", "k", "--", "touch", "ran"]);
    signal(a.guardian(), Signal::SIGKILL);
    assert_eq!(a.code(), 70);
    assert!(!place.path("ran").exists());
}

#[test]
fn after_kill_9_while_waiting_nothing_is_left() {
    let place = Place::new();
    place.output(&["acquire", "k", "--ttl", "1h"]);
    let a = place.start("a", &["run", "k", "--", "touch", "ran"]);
    let guardian = a.guardian();
    let child = wait_for("the child", || common::children(guardian).pop());
    a.signal(Signal::SIGKILL);
    wait_for("their end", || {
        (!lives(guardian) && !lives(child)).then_some(())
    });
    assert!(!place.path("ran").exists());
}

#[test]
fn what_the_command_leaves_behind_is_ended_with_it() {
    let place = Place::new();
    let script = place.script(&FAMILY.replace("wait; sleep 600", "exit 3"));
    let output = place.output(&["run", "k", "--grace", "200ms", "--", "sh", &script, "a"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(place.pids().len(), 3);
    assert!(place.pids().iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_group_of_processes_that_keep_forking_is_ended_too() {
    let place = Place::new();
    // Each one starts the next and leaves, in sessions of their own.
    let chain = place.path("chain.sh");
    let text = "echo $$ > $D/last; setsid sh $D/chain.sh & exit 0";
    std::fs::write(chain, text).unwrap();
    let script = place.script("sh $D/chain.sh; echo \"settled a\" >> $D/log; sleep 600");
    let a = place.start(
        "a",
        &[
            "run", "k", "--ttl", "10m", "--grace", "100ms", "--", "sh", &script, "a",
        ],
    );
    place.wait_for_text("log", "settled a");
    let guardian = a.guardian();
    a.signal(Signal::SIGKILL);
    wait_for("the guardian's end", || (!lives(guardian)).then_some(()));
    // Nobody writes any more.
    let last = place.read("last");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(place.read("last"), last);
}

#[test]
fn a_command_that_ignores_term_is_killed_in_time() {
    let place = Place::new();
    let script = place.script("trap '' TERM INT HUP; while :; do sleep 0.02; done");
    let run = |name| ["run", "k", "--ttl", "2s", "--", "sh", &script, name].map(str::to_owned);
    let mut a = place.start("a", &run("a").each_ref().map(String::as_str));
    place.wait_for_text("log", "start a");
    let mut b = place.start("b", &run("b").each_ref().map(String::as_str));
    b.guardian();
    place.output(&["step-down", "k"]);
    assert_eq!(a.code(), 79);
    place.wait_for_text("log", "start b");
    place.log_without_overlap();
    assert!(b.is_running());
}
