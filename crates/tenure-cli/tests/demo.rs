//! The demo ends by itself, kills leaders, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Place, code, files, stdout};

#[test]
fn the_demo_shows_leaders_being_replaced() {
    let place = Place::new();
    std::fs::create_dir(place.path("tmp")).unwrap();
    let mut command = place.tenure(&["demo", "--for", "6s", "--kill-every", "1s"]);
    let output = common::finished(command.env("TMPDIR", place.path("tmp")));
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    assert!(text.matches(" leads, token ").count() >= 2, "{text}");
    assert!(text.contains("is killed (kill -9)"), "{text}");
    assert!(
        text.lines().last().unwrap().contains("one at a time"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no picture without a terminal");
    assert_eq!(files(&place.path("tmp")), Vec::<std::path::PathBuf>::new());
    assert!(!place.path("state").exists());
}
