//! Files, with real locks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::time::Duration;

use support::{Leader, two_leaders};
use support::{assert_busy, assert_ended, assert_never_fenced, assert_stale, assert_unreadable};
use tenure::Token;
use tenure_fences::FenceError;
use tenure_fences::file::FileFence;

#[tokio::test]
async fn an_old_leader_is_turned_away_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (old, new) = two_leaders().await;
    let fence = FileFence::new(&path);
    assert_never_fenced(fence.seen());
    fence.append(&old.tenure, b"old\n").unwrap();
    fence.append(&old.tenure, b"old\n").unwrap();
    // The first act of the new leader is enough: no real work has come yet.
    fence.raise(&new.tenure).unwrap();
    assert_stale(fence.append(&old.tenure, b"late\n"), 7, 9);
    assert_stale(fence.replace(&old.tenure, b"late\n"), 7, 9);
    // Nothing is remembered in the value: a new process would see the same.
    let again = FileFence::new(&path);
    assert_stale(again.raise(&old.tenure), 7, 9);
    again.append(&new.tenure, b"new\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old\nold\nnew\n");
    again.replace(&new.tenure, b"all new\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "all new\n");
    assert_eq!(again.seen().unwrap(), Token(9));
}

#[tokio::test]
async fn a_tenure_that_has_ended_does_not_even_ask() {
    let folder = tempfile::tempdir().unwrap();
    let old = Leader::with_token(7).await;
    old.expire();
    let fence = FileFence::new(folder.path().join("journal"));
    assert_ended(fence.append(&old.tenure, b"late"));
    assert_ended(fence.raise(&old.tenure));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_writer_waits_for_the_lock_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let new = Leader::with_token(9).await;
    let lock = fs::File::create(folder.path().join("journal.lock")).unwrap();
    lock.lock().unwrap();
    let fence = FileFence::new(&path).wait(Duration::from_millis(30));
    assert_busy(fence.append(&new.tenure, b"new"));
    assert!(!path.exists());
    lock.unlock().unwrap();
    fence.append(&new.tenure, b"new").unwrap();
}

/// A tenure that ends while its writer waits for the lock writes nothing.
#[tokio::test]
async fn the_tenure_is_asked_again_behind_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let old = Leader::with_token(7).await;
    let lock = fs::File::create(folder.path().join("journal.lock")).unwrap();
    lock.lock().unwrap();
    let fence = FileFence::new(&path);
    let (begin, begun) = std::sync::mpsc::channel();
    let tenure = old.tenure.clone();
    let writer = std::thread::spawn(move || {
        begin.send(()).unwrap();
        fence.append(&tenure, b"late")
    });
    begun.recv().unwrap();
    old.expire();
    lock.unlock().unwrap();
    assert_ended(writer.join().unwrap());
    assert!(!path.exists());
}

/// A crash between the raised token and the data leaves the fence higher, never lower.
#[tokio::test]
async fn the_token_is_on_disk_before_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (old, new) = two_leaders().await;
    let fence = FileFence::new(&path);
    fence.append(&old.tenure, b"old\n").unwrap();
    // The write of the data fails: the file has become a folder.
    fs::rename(&path, folder.path().join("aside")).unwrap();
    fs::create_dir(&path).unwrap();
    let failed = fence.append(&new.tenure, b"new\n");
    assert!(matches!(failed, Err(FenceError::Resource(_))), "{failed:?}");
    fs::remove_dir(&path).unwrap();
    fs::rename(folder.path().join("aside"), &path).unwrap();
    assert_eq!(fence.seen().unwrap(), Token(9));
    assert_stale(fence.append(&old.tenure, b"late\n"), 7, 9);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
}

#[tokio::test]
async fn a_fence_that_cannot_be_read_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let new = Leader::with_token(9).await;
    let fence = FileFence::new(&path);
    let kept = folder.path().join("journal.fence");
    for garbage in [
        "",
        "nine\n",
        "-9\n",
        "9 9\n",
        "9007199254740992\n",
        &"9".repeat(100),
    ] {
        fs::write(&kept, garbage).unwrap();
        assert_unreadable(fence.append(&new.tenure, b"new\n"));
        assert_unreadable(fence.seen());
        assert_eq!(fs::read_to_string(&kept).unwrap(), garbage);
    }
    assert!(!path.exists());
}

/// What a shell writes by the text on the docs page and what Rust writes are one fence.
#[tokio::test]
async fn the_shell_form_and_this_one_are_one_fence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (old, new) = two_leaders().await;
    let fence = FileFence::new(&path);
    let script = support::from_docs("sh", "fenced-append");
    let shell = |token: &str, line: &str| {
        let output = std::process::Command::new("bash")
            .args(["-c", &script, "fenced-append"])
            .args([path.to_str().unwrap(), line])
            .env("TENURE_TOKEN", token)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(shell("7", "from the shell"), (Some(0), String::new()));
    assert_eq!(fence.seen().unwrap(), Token(7));
    fence.append(&old.tenure, b"from Rust\n").unwrap();
    fence.raise(&new.tenure).unwrap();
    let (code, said) = shell("7", "late");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("out of date"), "{said}");
    assert_eq!(shell("9", "new"), (Some(0), String::new()));
    for no_token in ["", "nine", "-1", "08"] {
        assert_eq!(shell(no_token, "bad").0, Some(1));
    }
    assert_eq!(shell("10", "newer"), (Some(0), String::new()));
    assert_stale(fence.append(&new.tenure, b"late\n"), 9, 10);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "from the shell\nfrom Rust\nnew\nnewer\n");
}
