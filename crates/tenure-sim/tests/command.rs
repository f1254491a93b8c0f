//! The command: one object of JSON, a timeline that can be repeated, and exit codes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure-sim"))
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn soak_prints_one_object() {
    let output = simulate(&[
        "soak",
        "--seeds",
        "60",
        "--from-seed",
        "0",
        "--format",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(object["seeds"], 60);
    assert_eq!(object["violations"], 0);
    assert!(object["simulated_years"].as_f64().unwrap() > 0.0);
    assert!(object["faults"].as_u64().unwrap() > 100);
    assert_eq!(object.as_object().unwrap().len(), 4);
}

#[test]
fn a_violation_is_shown_with_its_command_and_exit_code_1() {
    let bug = "fence-refuses-equal";
    let output = simulate(&["hunt", bug]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    let again = text
        .lines()
        .last()
        .unwrap()
        .strip_prefix("again: ")
        .unwrap();
    let arguments = again.split_once(" -- ").unwrap().1;
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = simulate(&arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let text = stdout(&output);
    assert!(text.contains("VIOLATION of fence_holds"), "{text}");
    assert!(text.contains("LEADS with token"), "{text}");
    assert!(text.contains("who said that it leads"), "{text}");
}

#[test]
fn bad_input_is_refused_with_64() {
    for arguments in [
        &["run"][..],
        &["run", "--seed", "1", "--profile", "nonsense"],
        &["hunt", "nonsense"],
        &["hunt"],
    ] {
        let output = simulate(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}
