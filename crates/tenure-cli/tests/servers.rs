//! The command on real servers: PostgreSQL, Redis, etcd. What it promises does not depend
//! on where leases live.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::Duration;

use common::{Place, code, lives, stderr, stdout, wait_for};
use nix::sys::signal::Signal;
use tenure::{BootClock, Clock};
use tenure_testbed::{Etcd, Postgres, PostgresOptions, Redis, RedisOptions, Server};

const TTL: &str = "3s";

const BEATS: &str = "sleep 600 & echo $! >> $D/pids
    while :; do echo \"beat $1 $TENURE_TOKEN\" >> $D/log; sleep 0.02; done";

/// A server of each kind, named, with the URL of a fresh store on it.
fn servers() -> Vec<(&'static str, String, Server)> {
    let postgres = Postgres::start().map(|s| ("postgres", s.url(), Server::clone(&s)));
    let redis = Redis::start().map(|s| ("redis", s.url(), Server::clone(&s)));
    let etcd = Etcd::start().map(|s| ("etcd", s.url(), s.server().clone()));
    [postgres, redis, etcd].into_iter().flatten().collect()
}

fn initialised(url: &str) -> Place {
    let place = Place::on(url);
    let output = place.output(&["init"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    place
}

#[test]
fn two_nodes_one_leader_and_kill_9_of_it() {
    for (name, url, _server) in servers() {
        let place = initialised(&url);
        let script = place.script(BEATS);
        let run = |node: &str| {
            let args = ["run", "k", "--ttl", TTL, "--", "sh", &script, node];
            place.start(node, &args)
        };
        let a = run("a");
        place.wait_for_text("log", "beat a");
        let b = run("b");
        b.guardian();
        let status = place.status("k");
        assert_eq!(status["held"], true, "{name}");
        let family = place.pids();
        let killed_at = BootClock.now();
        a.signal(Signal::SIGKILL);
        place.wait_for_text("log", "start b");
        // The last renewal may be as old as the renewal interval.
        let gap = BootClock.now() - killed_at;
        assert!(gap > Duration::from_millis(1500), "{name}: {gap:?}");
        assert!(family.iter().all(|pid| !lives(*pid)), "{name}");
        let log = place.log_without_overlap();
        let starts = log.lines().filter(|line| line.starts_with("start"));
        let tokens = starts.map(|line| line.split(' ').nth(2).unwrap().parse().unwrap());
        let tokens: Vec<u64> = tokens.collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{name}: {tokens:?}");
    }
}

#[test]
fn a_release_hands_over_at_once() {
    for (name, url, _server) in servers() {
        let place = initialised(&url);
        let script = place.script("sleep 600");
        // A ttl that would be too long to wait for.
        let run = |node: &str| {
            let args = ["run", "k", "--ttl", "10m", "--", "sh", &script, node];
            place.start(node, &args)
        };
        let mut a = run("a");
        place.wait_for_text("log", "start a");
        let _b = run("b");
        wait_for("a waiter", || {
            place.read("b.err").contains("waiting").then_some(())
        });
        a.signal(Signal::SIGTERM);
        assert_eq!(a.code(), 143, "{name}");
        let began = BootClock.now();
        place.wait_for_text("log", "start b");
        let gap = BootClock.now() - began;
        assert!(gap < Duration::from_secs(5), "{name}: {gap:?}");
        place.log_without_overlap();
    }
}

#[test]
fn a_store_that_does_not_answer_costs_the_lease_in_time() {
    for (name, url, server) in servers() {
        let place = initialised(&url);
        let script = place.script(BEATS);
        let args = ["run", "k", "--ttl", TTL, "--", "sh", &script, "a"];
        let mut a = place.start("a", &args);
        place.wait_for_text("log", "beat a");
        server.pause();
        assert_eq!(a.code(), 79, "{name}");
        assert!(place.pids().iter().all(|pid| !lives(*pid)), "{name}");
        let text = place.read("a.err");
        assert!(text.contains("lost the lease on k"), "{name}: {text}");
        server.resume();
    }
}

#[test]
fn scripts_and_people_see_the_same_on_every_store() {
    for (name, url, _server) in servers() {
        let place = initialised(&url);
        let take = [
            "acquire", "a/1", "--ttl", "1m", "--holder", "h1", "--format", "json",
        ];
        let output = place.output(&take);
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        let lease: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let token = lease["token"].to_string();
        let status = place.status("a/1");
        assert_eq!(status["holder"], "h1", "{name}");
        assert_eq!(status["token"], lease["token"], "{name}");
        let list = place.output(&["list", "a/", "--format", "json"]);
        let list: serde_json::Value = serde_json::from_str(&stdout(&list)).unwrap();
        assert_eq!(list[0]["key"], "a/1", "{name}");
        let held = place.output(&["run", "a/1", "--no-wait", "--", "true"]);
        assert_eq!(code(&held), 75, "{name}: {}", stderr(&held));
        let ours = ["--holder", "h1", "--token", &token];
        let renewed = place.output(&[&["renew", "a/1"], &ours[..]].concat());
        assert_eq!(code(&renewed), 0, "{name}: {}", stderr(&renewed));
        let freed = place.output(&[&["release", "a/1"], &ours[..]].concat());
        assert_eq!(code(&freed), 0, "{name}: {}", stderr(&freed));
        assert_eq!(place.status("a/1")["held"], false, "{name}");
        let ran = place.output(&["run", "a/1", "--", "true"]);
        assert_eq!(code(&ran), 0, "{name}: {}", stderr(&ran));
    }
}

#[test]
fn a_running_command_can_be_asked_to_step_down() {
    for (name, url, _server) in servers() {
        let place = initialised(&url);
        let script = place.script("trap 'exit 0' TERM; while :; do sleep 0.02; done");
        let args = ["run", "k", "--ttl", TTL, "--", "sh", &script, "a"];
        let mut a = place.start("a", &args);
        place.wait_for_text("log", "start a");
        let asked = place.output(&["step-down", "k", "--wait", "20s"]);
        assert_eq!(code(&asked), 0, "{name}: {}", stderr(&asked));
        assert_eq!(a.code(), 79, "{name}");
        let text = place.read("a.err");
        assert!(text.contains("asked to step down"), "{name}: {text}");
    }
}

#[test]
fn what_is_missing_is_named_with_the_command_that_makes_it() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let place = Place::on(postgres.url());
    let output = place.output(&["run", "k", "--no-wait", "--", "true"]);
    assert_eq!(code(&output), 69);
    let text = stderr(&output);
    assert!(text.contains("app_runtime_leases"), "{text}");
    assert!(text.contains("tenure init"), "{text}");
    // What schema prints is what init does: an administrator may run it by hand.
    let schema = stdout(&place.output(&["schema"]));
    postgres.sql(&schema);
    assert_eq!(code(&place.output(&["run", "k", "--", "true"])), 0);
    // And init leaves alone what is there.
    assert_eq!(code(&place.output(&["init"])), 0);
}

#[test]
fn no_password_is_ever_shown() {
    let secret = "hunter2-and-more";
    let postgres = PostgresOptions::new().password(secret).start();
    let redis = RedisOptions::new().password(secret).start();
    let urls = [
        postgres.as_ref().map(|server| server.url()),
        redis.as_ref().map(|server| server.url()),
    ];
    for url in urls.into_iter().flatten() {
        assert!(url.contains(secret), "{url}");
        let place = initialised(&url);
        let wrong = Place::on(url.replace(secret, "wrong-hunter2"));
        let output = wrong.output(&["-vv", "run", "k", "--no-wait", "--", "true"]);
        assert_eq!(code(&output), 69);
        assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
        let right = place.output(&["-vv", "run", "k", "--", "true"]);
        assert_eq!(code(&right), 0, "{}", stderr(&right));
        assert!(!stderr(&right).contains("hunter2"), "{}", stderr(&right));
        // In a file, as secrets are mounted.
        std::fs::write(place.path("secret"), format!("{secret}\n")).unwrap();
        let without = url.replace(&format!(":{secret}@"), "@");
        let mut command = place.bare(&["status", "k", "--store", &without]);
        command.env("TENURE_STORE_PASSWORD_FILE", place.path("secret"));
        let output = common::finished(&mut command);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
}

#[test]
fn a_server_that_is_not_there_is_69_and_one_line() {
    for url in [
        "postgres://me@127.0.0.1:1/db",
        "redis://127.0.0.1:1",
        "etcd://127.0.0.1:1",
    ] {
        let place = Place::on(url);
        for args in [
            &["status", "k"][..],
            &["run", "k", "--no-wait", "--", "true"],
            &["init"],
        ] {
            let output = place.output(args);
            // There is nothing to create in Redis and etcd.
            let fine = args == ["init"] && code(&output) == 0 && !url.starts_with("postgres");
            assert!(fine || code(&output) == 69, "{url} {args:?}: {output:?}");
            if !fine {
                let text = stderr(&output);
                let last = text.lines().last().unwrap_or_default();
                assert!(
                    last.starts_with("tenure: ") && last.contains("127.0.0.1:1"),
                    "{text}"
                );
            }
        }
    }
}
