//! The config file: all flags, after flag and environment; a mistyped name is named.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Place, assert_one_line, code, files, stderr, stdout};

fn ttl_ms(output: &std::process::Output) -> u64 {
    assert_eq!(code(output), 0, "{}", stderr(output));
    stdout(output).trim().parse().unwrap()
}

const PRINT: [&str; 4] = ["--", "sh", "-c", "echo $TENURE_TTL_MS"];

#[test]
fn flag_then_environment_then_file() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("config/tenure")).unwrap();
    std::fs::write(place.path("config/tenure/config.toml"), "ttl = \"11s\"\n").unwrap();
    std::fs::write(place.path("other.toml"), "ttl = \"12s\"\n").unwrap();
    let run = |more: &[&str], env: &[(&str, &str)]| {
        let mut args = vec!["run", "k"];
        args.extend(more);
        args.extend(PRINT);
        let mut command = place.tenure(&args);
        command.envs(env.iter().copied());
        ttl_ms(&common::finished(&mut command))
    };
    assert_eq!(run(&[], &[]), 11_000);
    assert_eq!(run(&["--config", "other.toml"], &[]), 12_000);
    assert_eq!(run(&[], &[("TENURE_CONFIG", "other.toml")]), 12_000);
    assert_eq!(run(&[], &[("TENURE_TTL", "13s")]), 13_000);
    assert_eq!(run(&["--ttl", "14s"], &[("TENURE_TTL", "13s")]), 14_000);
    assert_eq!(run(&["--fast"], &[]), 10_000);
}

#[test]
fn the_store_comes_from_flag_environment_file_or_the_state_folder() {
    let place = Place::new();
    let url = |name: &str| format!("sqlite:{}", place.path(name).display());
    let file = format!("store = \"{}\"\n", url("by-file.db"));
    std::fs::write(place.path("c.toml"), file).unwrap();
    let run = |args: &[&str], store: Option<&str>| {
        let mut args = args.to_vec();
        args.extend(["--", "true"]);
        let mut command = place.bare(&args);
        command.envs(store.map(|url| ("TENURE_STORE", url)));
        assert_eq!(code(&common::finished(&mut command)), 0);
    };
    run(&["run", "k"], None);
    assert!(place.path("state-home/tenure/leases.db").exists());
    run(&["run", "k", "--config", "c.toml"], None);
    assert!(place.path("by-file.db").exists());
    run(&["run", "k", "--config", "c.toml"], Some(&url("by-env.db")));
    assert!(place.path("by-env.db").exists());
    let by_flag = url("by-flag.db");
    run(&["run", "k", "--store", &by_flag], Some(&url("unused.db")));
    assert!(place.path("by-flag.db").exists());
    assert!(!place.path("unused.db").exists());
}

#[test]
fn all_of_run_can_stand_in_the_file() {
    let place = Place::new();
    let text = "no-wait = true\nconflict-exit-code = 17\nholder = \"from-file\"\nfast = true\n\
        grace = \"1s\"\nverbose = 0\nlog-format = \"json\"\nformat = \"json\"\n";
    std::fs::write(place.path("c.toml"), text).unwrap();
    let args = [
        "run",
        "k",
        "--config",
        "c.toml",
        "--",
        "sh",
        "-c",
        "echo $TENURE_HOLDER $TENURE_TTL_MS",
    ];
    assert_eq!(stdout(&place.output(&args)).trim(), "from-file 10000");
    place.output(&["acquire", "k", "--ttl", "1h"]);
    assert_eq!(code(&place.output(&args)), 17);
    let status = stdout(&place.output(&["status", "k", "--config", "c.toml"]));
    assert!(serde_json::from_str::<serde_json::Value>(&status).is_ok());
}

#[test]
fn a_mistyped_name_is_named_with_the_nearest_right_one() {
    let place = Place::new();
    for (text, wrong, right) in [
        ("renew_evry = \"1s\"", "renew_evry", "renew-every"),
        ("tll = \"1s\"", "tll", "ttl"),
        ("stoer = \"memory:\"", "stoer", "store"),
    ] {
        std::fs::write(place.path("c.toml"), text).unwrap();
        let output = place.output(&["run", "k", "--config", "c.toml", "--", "touch", "ran"]);
        assert_eq!(code(&output), 64);
        let text = stderr(&output);
        assert_one_line(&text);
        assert!(text.contains(&format!("\"{wrong}\"")), "{text}");
        assert!(text.contains(&format!("\"{right}\"")), "{text}");
    }
    for text in [
        "ttl = 3",
        "ttl = \"soon\"",
        "fast = 1",
        "ttl = ",
        "ttl = \"0s\"",
    ] {
        std::fs::write(place.path("c.toml"), text).unwrap();
        let output = place.output(&["run", "k", "--config", "c.toml", "--", "touch", "ran"]);
        assert_eq!(code(&output), 64, "{text}");
        assert_one_line(&stderr(&output));
    }
    assert_eq!(files(&place.path("")), [place.path("c.toml")]);
}
