//! The descendants of a process, and signals to all of them.
//!
//! The guardian is a subreaper: whoever loses its parent among its descendants becomes
//! its own child, also after setsid and a double fork. So "no child left to wait for"
//! is the exact proof that no descendant lives, and the walk here only has to be good
//! enough to get there: it is repeated until that proof is in.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getsid};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// A process as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// Its parent.
    pub parent: Pid,
    /// Its group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// When it started; number and start together are never used twice.
    start: u64,
}

impl Process {
    /// Reads it; None if there is no such process.
    pub fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &stat)
    }

    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        // The name stands in brackets and may contain anything, brackets too.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| Some(Pid::from_raw(fields.get(index)?.parse().ok()?));
        Some(Self {
            pid,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Sends the signal to just this process, never to a later one with its number.
    fn signal(&self, signal: Signal) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid.as_raw()) else {
            return;
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            // Gone, or a kernel before 5.3, where the number has to do.
            if Self::read(self.pid).is_some_and(|now| now.start == self.start) {
                let _ = kill(self.pid, signal);
            }
            return;
        };
        if Self::read(self.pid).is_some_and(|now| now.start == self.start)
            && let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32)
        {
            // Gone meanwhile, or not ours to signal (another user's): the wait will tell.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// All living descendants of `root`.
pub fn descendants(root: Pid) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for pid in children(parent) {
            if found.iter().all(|process| process.pid != pid)
                && let Some(process) = Process::read(pid)
            {
                found.push(process);
                next.push(pid);
            }
        }
    }
    found
}

/// The children of all threads of `parent`.
fn children(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => {
                let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
                found.extend(pids.map(Pid::from_raw));
            }
            // A kernel without these lists: look at everybody.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return children_by_scan(parent);
            }
            Err(_) => {}
        }
    }
    found
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Process::read(Pid::from_raw(pid)))
        .filter(|process| process.parent == parent)
        .map(|process| process.pid)
        .collect()
}

/// Sends the signals, in this order, to the command's group and to every other
/// descendant of this process; to each of them once.
pub fn signal_all(group: Pid, signals: &[Signal]) {
    let others = descendants(getpid());
    for signal in signals {
        let _ = killpg(group, *signal);
        for process in others.iter().filter(|process| process.group != group) {
            process.signal(*signal);
        }
    }
}

/// KILL to every descendant of this process, once; to be repeated until none is left.
///
/// Whole groups go first: that is one step for the kernel, so that a chain of processes
/// that fork and leave cannot outrun it.
pub fn kill_once(home: Pid) {
    let all = descendants(getpid());
    let mut groups: Vec<Pid> = all
        .iter()
        .filter(|process| is_our_group(process, &all, home))
        .map(|process| process.group)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let _ = killpg(group, Signal::SIGKILL);
    }
    for process in &all {
        process.signal(Signal::SIGKILL);
    }
}

/// Whether only descendants can be in the group: it is in a session that a descendant
/// made, or its leader is one. (A descendant in our own session may have joined a group
/// of somebody else, such as the pipeline that we are part of.)
fn is_our_group(process: &Process, all: &[Process], home: Pid) -> bool {
    process.session != home || all.iter().any(|leader| leader.pid == process.group)
}

/// The session in which the command starts.
pub fn home_session() -> Pid {
    // Asking for one's own session cannot fail.
    getsid(None).unwrap_or_else(|_| Pid::from_raw(0))
}

/// A child that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It ended, with this exit code or 128 + n.
    Ended(Pid, u8),
    /// It was stopped by this signal.
    Stopped(Pid, i32),
    /// None has anything new to tell.
    Nothing,
    /// There is no child, and so no descendant: each would have become a child here.
    NoneLeft,
}

/// Asks for one child that ended or stopped, without blocking.
pub fn wait_one() -> Waited {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    match waitpid(None, Some(flags)) {
        Ok(WaitStatus::Exited(pid, code)) => Waited::Ended(pid, u8::try_from(code).unwrap_or(1)),
        Ok(WaitStatus::Signaled(pid, signal, _)) => {
            Waited::Ended(pid, crate::exit::of_signal(signal as i32))
        }
        Ok(WaitStatus::Stopped(pid, signal)) => Waited::Stopped(pid, signal as i32),
        Err(Errno::ECHILD) => Waited::NoneLeft,
        _ => Waited::Nothing,
    }
}

/// Kills every descendant of this process and waits for them. False if some are left
/// after `tries` rounds of 2 ms: they cannot be killed.
pub fn kill_all(home: Pid, tries: u32) -> bool {
    for _ in 0..tries {
        kill_once(home);
        loop {
            match wait_one() {
                Waited::NoneLeft => return true,
                Waited::Nothing => break,
                Waited::Ended(..) | Waited::Stopped(..) => {}
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Waits for this child, which is about to end, and for whoever became a child beside it.
pub fn bury(child: Pid, patience: Duration) {
    // Not by polling: a sleep is longer than what the child still has to do.
    let Some(pid) = rustix::process::Pid::from_raw(child.as_raw()) else {
        return;
    };
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
        let mut fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut fds, timeout);
    }
    while let Waited::Ended(..) | Waited::Stopped(..) = wait_one() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_awkward_name_does_not_confuse_the_reader() {
        let stat = "42 (a) b (c) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 6";
        let process = Process::parse(Pid::from_raw(42), stat).unwrap();
        assert_eq!(process.parent.as_raw(), 7);
        assert_eq!(process.group.as_raw(), 8);
        assert_eq!(process.session.as_raw(), 9);
        assert_eq!(process.start, 12345);
    }

    #[test]
    fn children_are_found_and_both_ways_agree() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let found = descendants(getpid());
        assert!(found.iter().any(|process| process.pid == pid), "{found:?}");
        assert!(children_by_scan(getpid()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_group_of_somebody_else_is_left_alone() {
        let process = |pid, group, session| Process {
            pid: Pid::from_raw(pid),
            parent: Pid::from_raw(1),
            group: Pid::from_raw(group),
            session: Pid::from_raw(session),
            start: 0,
        };
        let home = Pid::from_raw(10);
        let all = [
            process(20, 20, 10),
            process(21, 20, 10),
            process(22, 11, 10),
            process(30, 29, 29),
        ];
        assert!(is_our_group(&all[0], &all, home));
        assert!(is_our_group(&all[1], &all, home));
        assert!(
            !is_our_group(&all[2], &all, home),
            "it joined another's group"
        );
        assert!(
            is_our_group(&all[3], &all, home),
            "a session made by a descendant"
        );
    }
}
