//! What people and programs read: status, list, watch, acquire, renew, release, explain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Node, Place, assert_one_line, code, stderr, stdout};
use serde_json::Value;

fn json(place: &Place, args: &[&str]) -> Value {
    let output = place.output(args);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn status_and_list_for_programs() {
    let place = Place::new();
    assert_eq!(
        json(&place, &["status", "a/1", "--format", "json"])["held"],
        false
    );
    assert_eq!(
        json(&place, &["list", "--format", "json"]),
        serde_json::json!([])
    );
    let lease = json(
        &place,
        &[
            "acquire", "a/1", "--ttl", "1m", "--holder", "h1", "--format", "json",
        ],
    );
    json(
        &place,
        &[
            "acquire", "b/1", "--ttl", "2m", "--holder", "h2", "--format", "json",
        ],
    );
    let status = json(&place, &["status", "a/1", "--format", "json"]);
    assert_eq!(status["held"], true);
    assert_eq!(status["holder"], "h1");
    assert_eq!(status["token"], lease["token"]);
    assert_eq!(status["ttl_ms"], 60_000);
    assert!(status["rest_ms"].as_u64().unwrap() <= 60_000);
    assert!(status["age_ms"].as_u64().unwrap() < 60_000);
    let all = json(&place, &["list", "--format", "json"]);
    assert_eq!(all.as_array().unwrap().len(), 2);
    let some = json(&place, &["list", "b/", "--format", "json"]);
    assert_eq!(some[0]["key"], "b/1");
    let one = place.output(&["list", "--limit", "1", "--format", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&stdout(&one))
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert!(stderr(&one).contains("more than 1"));
}

#[test]
fn status_and_list_for_people() {
    let place = Place::new();
    assert!(stdout(&place.output(&["status", "k"])).contains("nobody"));
    assert!(stdout(&place.output(&["list"])).contains("no key is held"));
    place.output(&["acquire", "k", "--ttl", "1m", "--holder", "h1"]);
    let text = stdout(&place.output(&["status", "k"]));
    assert!(
        text.contains("holder  h1") && text.contains("token"),
        "{text}"
    );
    let text = stdout(&place.output(&["list"]));
    assert!(text.starts_with("KEY") && text.contains("h1"), "{text}");
    assert!(!text.contains('\x1b'), "colour is for terminals");
    assert!(stdout(&place.output(&["status"])).contains("h1"));
}

#[test]
fn a_script_keeps_a_lease() {
    let place = Place::new();
    let lease = json(
        &place,
        &[
            "acquire", "k", "--ttl", "1m", "--holder", "me", "--format", "json",
        ],
    );
    let token = lease["token"].to_string();
    let held = place.output(&["acquire", "k", "--holder", "you"]);
    assert_eq!(code(&held), 75);
    assert_one_line(&stderr(&held));
    assert_eq!(code(&place.output(&["acquire", "k", "-E", "4"])), 4);
    let renewed = json(
        &place,
        &[
            "renew", "k", "--holder", "me", "--token", &token, "--ttl", "2m", "--format", "json",
        ],
    );
    assert_eq!(renewed["token"], lease["token"]);
    assert_eq!(renewed["ttl_ms"], 120_000);
    // Nobody frees or renews another's lease.
    for (holder, token) in [("you", token.as_str()), ("me", "1")] {
        let which = ["--holder", holder, "--token", token];
        let output = place.output(&[&["renew", "k"], &which[..]].concat());
        assert_eq!(code(&output), 79);
        assert_one_line(&stderr(&output));
        let output = place.output(&[&["release", "k"], &which[..]].concat());
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("nothing was done"));
        assert_eq!(place.status("k")["held"], true);
    }
    let released = json(
        &place,
        &[
            "release", "k", "--holder", "me", "--token", &token, "--format", "json",
        ],
    );
    assert_eq!(released["released"], true);
    assert_eq!(place.status("k")["held"], false);
    let late = place.output(&["renew", "k", "--holder", "me", "--token", &token]);
    assert_eq!(code(&late), 79);
}

#[test]
fn a_shell_takes_the_lease_over_its_environment() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let text = format!(
        "eval \"$({tenure} acquire \"it's mine\" --format env)\" && {tenure} renew \"$TENURE_KEY\" && {tenure} release \"$TENURE_KEY\""
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &text])
        .env("TENURE_STORE", place.store_url())
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("it's mine is free"));
}

#[test]
fn a_waiting_acquire_gets_it_when_it_is_free() {
    let place = Place::new();
    place.output(&["acquire", "k", "--ttl", "300ms"]);
    let output = place.output(&["acquire", "k", "--wait", "30s", "--holder", "me"]);
    assert_eq!(code(&output), 0);
    assert_eq!(place.status("k")["holder"], "me");
}

#[test]
fn watch_prints_each_change_on_a_line() {
    for key in [&["k"][..], &[]] {
        let place = Place::new();
        let lease = json(
            &place,
            &[
                "acquire", "k", "--ttl", "1h", "--holder", "h1", "--format", "json",
            ],
        );
        let args = [
            &[
                "watch",
                "--format",
                "json",
                "--every",
                "50ms",
                "--changes",
                "2",
            ],
            key,
        ]
        .concat();
        let process = place.tenure(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut node = Node { process };
        let mut lines = BufReader::new(node.process.stdout.take().unwrap()).lines();
        let mut next =
            || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        let now = next();
        assert_eq!(
            (now["event"].as_str(), now["holder"].as_str()),
            (Some("held"), Some("h1"))
        );
        let token = lease["token"].to_string();
        place.output(&["release", "k", "--holder", "h1", "--token", &token]);
        let freed = next();
        assert_eq!(freed["event"], "free");
        place.output(&["acquire", "k", "--ttl", "1h", "--holder", "h2"]);
        let taken = next();
        assert_eq!(
            (taken["event"].as_str(), taken["holder"].as_str()),
            (Some("held"), Some("h2"))
        );
        assert!(taken["token"].as_u64() > lease["token"].as_u64());
        assert_eq!(node.code(), 0);
    }
}

#[test]
fn step_down_of_nobody_is_no_failure() {
    let place = Place::new();
    let answer = json(&place, &["step-down", "k", "--format", "json"]);
    assert_eq!(answer["asked"], false);
}

#[test]
fn explain_prints_the_sum() {
    let place = Place::new();
    let text = stdout(&place.output(&["explain", "--ttl", "10s"]));
    assert!(
        text.contains("fits") && text.contains("after a crash"),
        "{text}"
    );
    let sum = json(&place, &["explain", "--fast", "--format", "json"]);
    assert_eq!(sum["timing"]["ttl"], "10s");
    assert!(sum["sum"]["failover_ms_max"].as_u64().unwrap() < 16_000);
}

#[test]
fn completions_and_the_man_page_are_there() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&place.output(&["completions", shell]));
        assert!(text.contains("step-down"), "{shell}");
        assert!(!text.contains("demo-work"), "{shell}");
    }
    let text = stdout(&place.output(&["man"]));
    assert!(
        text.contains(".TH") && text.contains("TENURE RUN"),
        "{text}"
    );
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let text = format!("{{ {tenure} man; echo $? >&2; }} | head -c 1 > /dev/null");
    let output = std::process::Command::new("sh")
        .args(["-c", &text])
        .output()
        .unwrap();
    assert_eq!(stderr(&output).trim(), "0");
    drop(place);
}
