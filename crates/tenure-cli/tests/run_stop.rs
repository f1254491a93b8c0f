//! Stops: whoever is stopped, the command is dead before another leads, and nobody
//! who wakes up late says that it leads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Node, Place, lives, signal, wait_for};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tenure::{BootClock, Clock};

const TTL: &str = "2s";

/// Two nodes; the first leads, and beats on.
fn two(place: &Place, rest: &str) -> (Node, Node) {
    let script = place.script(rest);
    let start = |name: &str| {
        let mut command = place.tenure(&["run", "k", "--ttl", TTL, "--", "sh", &script, name]);
        let stderr = std::fs::File::create(place.path(&format!("{name}.err"))).unwrap();
        // Groups of their own, so that a whole group can be stopped.
        let command = command
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(stderr);
        let process = command.spawn().unwrap();
        Node { process }
    };
    let a = start("a");
    place.wait_for_text("log", "start a");
    let b = start("b");
    b.guardian();
    (a, b)
}

fn other_leads_and_first_is_gone(place: &Place, a: &mut Node, family: &[i32]) {
    place.wait_for_text("log", "start b");
    assert!(family.iter().all(|pid| !lives(*pid)));
    place.log_without_overlap();
    a.signal(Signal::SIGCONT);
    assert_eq!(a.code(), 79);
    let text = place.read("a.err");
    assert!(text.contains("lost the lease on k"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    // It never came back to say that it leads.
    let log = place.log_without_overlap();
    assert_eq!(log.matches("start a").count(), 1);
    assert_eq!(
        log.lines().last().map(|line| line.contains(" b ")),
        Some(true),
        "{log}"
    );
}

const BEATS: &str = "sleep 600 & echo $! >> $D/pids
    while :; do echo \"beat $1 $TENURE_TOKEN\" >> $D/log; sleep 0.02; done";

#[test]
fn a_stopped_leader_loses_its_command_before_another_leads() {
    let place = Place::new();
    let (mut a, mut b) = two(&place, BEATS);
    let family = place.pids();
    a.signal(Signal::SIGSTOP);
    other_leads_and_first_is_gone(&place, &mut a, &family);
    assert!(b.is_running());
    beats_are_in_order(&place);
}

#[test]
fn a_stopped_group_of_the_leader_too() {
    let place = Place::new();
    let (mut a, _b) = two(&place, BEATS);
    let family = place.pids();
    let group = Pid::from_raw(a.pid());
    killpg(group, Signal::SIGSTOP).unwrap();
    other_leads_and_first_is_gone(&place, &mut a, &family);
    beats_are_in_order(&place);
}

#[test]
fn a_stopped_leader_whose_command_is_stopped_and_deaf_too() {
    let place = Place::new();
    let (mut a, _b) = two(&place, &format!("trap '' TERM\n{BEATS}"));
    let family = place.pids();
    killpg(Pid::from_raw(a.pid()), Signal::SIGSTOP).unwrap();
    killpg(Pid::from_raw(family[0]), Signal::SIGSTOP).unwrap();
    other_leads_and_first_is_gone(&place, &mut a, &family);
}

#[test]
fn a_stopped_command_keeps_its_lease_while_it_is_renewed() {
    let place = Place::new();
    let (mut a, mut b) = two(&place, BEATS);
    let token = place.status("k")["token"].as_u64();
    let group = Pid::from_raw(place.pids()[0]);
    killpg(group, Signal::SIGSTOP).unwrap();
    let stopped_at = BootClock.now();
    wait_for("two terms", || {
        ((BootClock.now() - stopped_at).as_millis() > 4_000).then_some(())
    });
    assert_eq!(place.status("k")["token"].as_u64(), token);
    let beats = place.read("log").lines().count();
    killpg(group, Signal::SIGCONT).unwrap();
    wait_for("the next beat", || {
        (place.read("log").lines().count() > beats).then_some(())
    });
    assert!(a.is_running() && b.is_running());
}

#[test]
fn a_stopped_guardian_does_not_cost_the_deadline() {
    let place = Place::new();
    let (mut a, _b) = two(&place, BEATS);
    let family = place.pids();
    let guardian = a.guardian();
    signal(guardian, Signal::SIGSTOP);
    // The store is gone for the leader: nothing is renewed, and the guardian sleeps.
    block_store(&place, || {
        assert_eq!(a.code(), 79);
        assert!(family.iter().all(|pid| !lives(*pid)));
        assert!(!lives(guardian));
    });
    place.wait_for_text("log", "start b");
    place.log_without_overlap();
}

#[test]
fn a_leader_without_answers_steps_down_in_time() {
    let place = Place::new();
    let (mut a, _b) = two(&place, BEATS);
    let family = place.pids();
    block_store(&place, || {
        // No renewal was sent after this.
        let term_ends_at = BootClock.now() + std::time::Duration::from_secs(2);
        wait_for("the end of the command", || {
            family.iter().all(|pid| !lives(*pid)).then_some(())
        });
        let late = BootClock.now().saturating_since(term_ends_at);
        assert!(late.is_zero(), "{late:?} after the term");
        assert_eq!(a.code(), 79);
    });
    let text = place.wait_for_text("a.err", "lost the lease on k");
    assert!(text.contains("expired"), "{text}");
    place.wait_for_text("log", "start b");
    place.log_without_overlap();
    beats_are_in_order(&place);
}

#[test]
fn stopped_while_waiting_it_goes_on_waiting() {
    let place = Place::new();
    let (a, mut b) = two(&place, BEATS);
    b.signal(Signal::SIGSTOP);
    let stopped_at = BootClock.now();
    wait_for("two terms", || {
        ((BootClock.now() - stopped_at).as_millis() > 4_000).then_some(())
    });
    b.signal(Signal::SIGCONT);
    a.signal(Signal::SIGTERM);
    place.wait_for_text("log", "start b");
    place.log_without_overlap();
    assert!(b.is_running());
}

#[test]
fn a_store_that_never_answers_is_69_but_an_outage_is_waited_through() {
    let place = Place::new();
    place.output(&["status", "k"]);
    block_store(&place, || {
        let output = place.output(&["run", "k", "--ttl", "600ms", "--", "touch", "ran"]);
        assert_eq!(
            output.status.code(),
            Some(69),
            "{}",
            common::stderr(&output)
        );
        let output = place.output(&[
            "run",
            "k",
            "--no-wait",
            "--ttl",
            "600ms",
            "--",
            "touch",
            "ran",
        ]);
        assert_eq!(
            output.status.code(),
            Some(69),
            "{}",
            common::stderr(&output)
        );
    });
    assert!(!place.path("ran").exists());
    let lease = place.output(&["acquire", "k", "--ttl", "3s"]);
    assert!(lease.status.success());
    let mut node = place.start(
        "a",
        &["run", "k", "--ttl", "600ms", "-v", "--", "touch", "ran"],
    );
    place.wait_for_text("a.err", "somebody else leads");
    block_store(&place, || {
        let blocked_at = BootClock.now();
        wait_for("more than three terms", || {
            ((BootClock.now() - blocked_at).as_millis() > 2_000).then_some(())
        });
        assert!(node.is_running());
    });
    assert_eq!(node.code(), 0);
    assert!(place.path("ran").exists());
}

/// Nobody can write to the store while `during` runs: each call hangs and fails.
fn block_store(place: &Place, during: impl FnOnce()) {
    let path = place.path("state/leases.db");
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let behavior = rusqlite::TransactionBehavior::Immediate;
    connection
        .busy_timeout(std::time::Duration::from_secs(5))
        .unwrap();
    let transaction = connection.transaction_with_behavior(behavior).unwrap();
    during();
    transaction.rollback().unwrap();
}

/// No beat of an earlier token comes after the first of a later one.
fn beats_are_in_order(place: &Place) {
    let log = place.read("log");
    let tokens = log.lines().filter_map(|line| {
        let mut words = line.split(' ');
        matches!(words.next(), Some("beat" | "start")).then(|| words.nth(1))?
    });
    let tokens: Vec<u64> = tokens.map(|token| token.parse().unwrap()).collect();
    assert!(tokens.is_sorted(), "{log}");
    assert!(tokens.first() < tokens.last(), "two tenures: {log}");
}

/// Somebody who does not keep the rules takes the lease of a living holder: whatever the
/// old token did after that moment would be the split brain.
#[test]
fn superseded_it_ends_its_command_and_names_the_successor() {
    let place = Place::new();
    let script = place.script(BEATS);
    // The next renewal is minutes away.
    let args = ["run", "k", "--ttl", "10m", "--", "sh", &script, "a"];
    let mut node = place.start("a", &args);
    place.wait_for_text("log", "start a");
    place.wait_for_text("log", "beat a");
    let family = place.pids();
    let connection = rusqlite::Connection::open(place.path("state/leases.db")).unwrap();
    connection
        .busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    let taken = "UPDATE leases SET holder = 'usurper', token = token + 1, version = version + 1,
        liveness = NULL";
    assert_eq!(connection.execute(taken, []).unwrap(), 1);
    assert_eq!(node.code(), 79);
    assert!(family.iter().all(|pid| !lives(*pid)));
    let text = place.read("a.err");
    assert!(text.contains("superseded by usurper"), "{text}");
    // What was taken is not freed by the one that lost it.
    assert_eq!(place.status("k")["holder"], "usurper");
}
