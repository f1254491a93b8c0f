//! Every exit code of `tenure run`, and bad input: one line, 64, and nothing is made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Place, assert_one_line, code, files, stderr, stdout};

#[test]
fn the_childs_own_code() {
    let place = Place::new();
    for wanted in [0, 1, 7, 64, 75, 79, 255] {
        let text = format!("exit {wanted}");
        let output = place.output(&["run", "k", "--", "sh", "-c", &text]);
        assert_eq!(code(&output), wanted);
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    let place = Place::new();
    // Not INT: what is run in the background of a script ignores it.
    for (signal, wanted) in [("TERM", 143), ("KILL", 137), ("ALRM", 142)] {
        let text = format!("kill -{signal} $$; sleep 60");
        let output = place.output(&["run", "k", "--", "sh", "-c", &text]);
        assert_eq!(code(&output), wanted);
    }
}

#[test]
fn not_found_and_not_executable() {
    let place = Place::new();
    let output = place.output(&["run", "k", "--", "there-is-no-such-command"]);
    assert_eq!(code(&output), 127);
    assert_one_line(&stderr(&output));
    std::fs::write(place.path("plain"), "text").unwrap();
    let path = place.path("plain").to_str().unwrap().to_owned();
    for path in [path.as_str(), "/"] {
        let output = place.output(&["run", "k", "--", path]);
        assert_eq!(code(&output), 126, "{path}");
        assert_one_line(&stderr(&output));
    }
}

#[test]
fn not_acquired_is_75_or_what_was_chosen() {
    let place = Place::new();
    let taken = place.output(&["acquire", "k", "--ttl", "1h", "--holder", "somebody"]);
    assert_eq!(code(&taken), 0);
    let run = ["run", "k", "--no-wait", "--", "touch", "ran"];
    let output = place.output(&run);
    assert_eq!(code(&output), 75);
    assert_one_line(&stderr(&output));
    assert!(stderr(&output).contains("held by somebody"));
    let output = place.output(&["run", "k", "--wait", "50ms", "--", "touch", "ran"]);
    assert_eq!(code(&output), 75);
    let output = place.output(&["run", "k", "--no-wait", "-E", "3", "--", "touch", "ran"]);
    assert_eq!(code(&output), 3);
    assert!(!place.path("ran").exists());
}

#[test]
fn an_unusable_store_is_69() {
    let place = Place::new();
    std::fs::write(place.path("file"), "no folder").unwrap();
    let url = format!("sqlite:{}/leases.db", place.path("file").display());
    for args in [
        &["run", "k", "--store", &url, "--", "touch", "ran"][..],
        &["status", "k", "--store", &url],
        &["acquire", "k", "--store", &url],
    ] {
        let output = place.output(args);
        assert_eq!(code(&output), 69, "{}", stderr(&output));
        assert_one_line(&stderr(&output));
    }
    assert!(!place.path("ran").exists());
    // Something else than a database of ours is not touched.
    std::fs::write(place.path("other.db"), "this is somebody's letter").unwrap();
    let url = format!("sqlite:{}", place.path("other.db").display());
    let output = place.output(&["run", "k", "--store", &url, "--", "touch", "ran"]);
    assert_eq!(code(&output), 69, "{}", stderr(&output));
    assert_eq!(place.read("other.db"), "this is somebody's letter");
    assert!(!place.path("ran").exists());
}

#[test]
fn bad_input_is_one_line_and_64_and_makes_nothing() {
    let place = Place::new();
    let long = "x".repeat(513);
    let run = |key: &str, more: &[&str]| {
        let mut args = vec!["run", key];
        args.extend(more);
        args.extend(["--", "touch", "ran"]);
        place.output(&args)
    };
    let cases = [
        (run("", &[]), "key is empty"),
        (run(&long, &[]), "513 bytes"),
        (run("a\nb", &[]), "control character"),
        (run("k", &["--ttl", "0s"]), "ttl is zero"),
        (run("k", &["--ttl", "10"]), "--ttl"),
        (run("k", &["--ttl", "10s", "--grace", "9s"]), "needed"),
        (run("k", &["--store", "gopher://x"]), "gopher"),
        (run("k", &["--store", "sqlite:"]), "sqlite:"),
        (run("k", &["--holder", ""]), "holder is empty"),
        (run("k", &["-E", "300"]), "300"),
        (run("k", &["--wait", "3s", "--no-wait"]), "--no-wait"),
        (run("k", &["--nowait"]), "--no-wait"),
        (
            run("k", &["--config", "there-is-none.toml"]),
            "there-is-none.toml",
        ),
        (place.output(&["run", "k"]), "COMMAND"),
        (place.output(&["runn"]), "run"),
        (place.output(&[]), "--help"),
        (place.output(&["status", ""]), "key is empty"),
        (place.output(&["acquire", ""]), "key is empty"),
        (
            place.output(&["acquire", "k", "--ttl", "0s"]),
            "ttl is zero",
        ),
        (place.output(&["renew", "k"]), "--holder"),
        (
            place.output(&["release", "k", "--holder", "h", "--token", "x"]),
            "--token",
        ),
        (place.output(&["watch", "--every", "0s"]), "--every"),
        (place.output(&["list", "--format", "xml"]), "xml"),
        (
            place.output(&["explain", "--ttl", "10s", "--renew-every", "8s"]),
            "needed",
        ),
    ];
    for (output, names) in cases {
        let text = stderr(&output);
        assert_eq!(code(&output), 64, "{text}");
        assert_one_line(&text);
        assert!(text.contains(names), "{names}: {text}");
        assert_eq!(stdout(&output), "");
    }
    assert_eq!(files(&place.path("")), Vec::<std::path::PathBuf>::new());
}

#[test]
fn help_and_version_are_no_failure() {
    let place = Place::new();
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = place.output(args);
        assert_eq!(code(&output), 0);
        assert!(!stdout(&output).is_empty());
    }
    let help = stdout(&place.output(&["run", "--help"]));
    assert!(help.contains("tenure run nightly -- ./job.sh"));
}
