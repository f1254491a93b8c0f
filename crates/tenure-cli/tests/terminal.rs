//! On a terminal: the command is in the foreground, Ctrl-C and Ctrl-Z are its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Node, Place, children, wait_for};
use nix::pty::openpty;

/// A program in a session of its own on a terminal of its own, and the keyboard.
fn on_terminal(place: &Place, program: &[&str]) -> (Node, File) {
    let pty = openpty(None, None).unwrap();
    let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
    let process = Command::new("setsid")
        .args(["--ctty", "--wait"])
        .args(program)
        .env("TENURE_STORE", place.store_url())
        .env("D", place.path(""))
        .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
        .stdin(terminal())
        .stdout(terminal())
        .stderr(terminal())
        .spawn()
        .unwrap();
    drop(pty.slave);
    let keyboard = File::from(pty.master);
    // Somebody has to read what is shown, or it would fill up.
    let mut screen = keyboard.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        while matches!(screen.read(&mut bytes), Ok(1..)) {}
    });
    (Node { process }, keyboard)
}

/// The state of a process as one letter; T is stopped.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[test]
fn the_command_has_the_terminal() {
    let place = Place::new();
    // Asked before it reads, which alone would bring it to the foreground.
    let script = "trap 'exit 33' INT; echo $$ > $D/pid
        cut -d' ' -f8 /proc/$$/stat > $D/foreground
        read line; echo \"got $line\" > $D/got; while :; do sleep 0.02; done";
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let run = [tenure, "run", "k", "--", "sh", "-c", script];
    let (mut node, mut keyboard) = on_terminal(&place, &run);
    keyboard.write_all(b"hello\n").unwrap();
    place.wait_for_text("got", "got hello");
    let foreground = place.wait_for_text("foreground", "\n");
    let pid = place.read("pid");
    assert_eq!(foreground, pid, "the command's group is in the foreground");
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(node.code(), 33);
}

#[test]
fn ctrl_z_stops_it_and_fg_goes_on() {
    let place = Place::new();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let (mut node, mut keyboard) = on_terminal(&place, &shell);
    let script = "echo $$ > $D/pid; while read l; do echo \"got $l\" >> $D/log; done";
    fs::write(place.path("reader.sh"), script).unwrap();
    let mut press = |keys: &str| keyboard.write_all(keys.as_bytes()).unwrap();
    press("$TENURE run k -- sh $D/reader.sh\n");
    let command: i32 = place.wait_for_text("pid", "\n").trim().parse().unwrap();
    press("one\n");
    place.wait_for_text("log", "got one");
    press("\x1a");
    wait_for("the stop", || (state(command) == Some('T')).then_some(()));
    // The shell has the terminal, so it is the one who reads this.
    press("echo here > $D/shell\n");
    place.wait_for_text("shell", "here");
    press("fg\n");
    wait_for("the continuation", || {
        (state(command).is_some_and(|state| state != 'T')).then_some(())
    });
    press("two\n");
    place.wait_for_text("log", "got two");
    press("\x03");
    // What is typed too early may be meant for the command.
    wait_for("a free lease", || {
        (place.status("k")["held"] == false).then_some(())
    });
    press("echo \"code $?\" > $D/code\n");
    assert_eq!(place.wait_for_text("code", "code"), "code 130\n");
    press("exit\n");
    assert_eq!(node.code(), 0);
    assert!(children(node.pid()).is_empty());
}

#[test]
fn a_command_in_a_pipeline_gets_the_terminal_when_it_reads() {
    let place = Place::new();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let (mut node, mut keyboard) = on_terminal(&place, &shell);
    let mut press = |keys: &str| keyboard.write_all(keys.as_bytes()).unwrap();
    press("$TENURE run k -- sh -c 'echo $$ > $D/pid; read l; echo got $l' | cat > $D/log\n");
    place.wait_for_text("pid", "\n");
    press("one\n");
    place.wait_for_text("log", "got one");
    press("exit\n");
    assert_eq!(node.code(), 0);
}
