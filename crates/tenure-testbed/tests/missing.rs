//! A server that is not there: said in one line, and a failure on a build server.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::process::{Command, Output};

use tenure_testbed::Redis;

const CHILD: &str = "TENURE_TESTBED_MISSING_CHILD";

/// Only as the child of the tests below: a test as others write it.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let Some(redis) = Redis::shared() else { return };
    panic!("there is one: {redis:?}");
}

/// That test in an environment of its own, without a PATH to find a server on, and with
/// its output held back as usual.
fn run(variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child"])
        .env_clear()
        .env(CHILD, "1")
        .envs(variables.iter().copied());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_missing_server_is_said_even_though_the_test_passes() {
    let (passed, text) = run(&[("PATH", "/nonexistent")]);
    assert!(passed, "{text}");
    assert!(
        text.contains("child: NOT RUN: no redis-server on this machine"),
        "{text}"
    );
    assert!(text.contains("apt-get install redis-server"), "{text}");
    assert!(text.contains("TENURE_TEST_REDIS_URL"), "{text}");
}

#[test]
fn a_missing_server_is_a_failure_on_a_build_server() {
    let (passed, text) = run(&[("PATH", "/nonexistent"), ("CI", "true")]);
    assert!(!passed, "{text}");
    assert!(text.contains("no redis-server on this machine"), "{text}");
}

#[test]
fn a_server_of_the_users_own_is_not_broken() {
    for ci in ["", "true"] {
        let url = ("TENURE_TEST_REDIS_URL", "redis://127.0.0.1:1");
        let (passed, text) = run(&[url, ("CI", ci)]);
        assert!(passed, "{text}");
        assert!(
            text.contains("NOT RUN: needs a Redis server of its own"),
            "{text}"
        );
    }
}
