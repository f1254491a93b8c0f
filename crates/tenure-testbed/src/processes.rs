//! The processes of a folder: who they are and how they are ended, children and all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The file in a server's folder that names its first process: pid and start time.
pub(crate) const PID_FILE: &str = "pid";

struct Process {
    parent: i32,
    started: String,
}

/// Every living process that this machine shows. Empty where there is no `/proc`.
fn all() -> BTreeMap<i32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, process(pid)?)))
        .collect()
}

fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything; the numbers come after it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if *fields.first()? == "Z" {
        return None;
    }
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        started: (*fields.get(19)?).to_owned(),
    })
}

/// What stands in a server's pid file. The start time tells a process from a later one
/// that was given the same number.
pub(crate) fn pid_line(pid: u32) -> String {
    let started = i32::try_from(pid).ok().and_then(process);
    let started = started.map(|process| process.started).unwrap_or_default();
    format!("{pid} {started}\n")
}

/// The pids of all processes that belong to `folder`: those that a pid file in it names,
/// those that work in it, and the children of both.
pub(crate) fn of_folder(folder: &Path) -> BTreeSet<i32> {
    let all = all();
    let mut found: BTreeSet<i32> = named_in(folder, &all);
    for pid in all.keys() {
        // Not readable for a process of another user: those are found by their pid file.
        if fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder)) {
            found.insert(*pid);
        }
    }
    loop {
        let before = found.len();
        for (pid, process) in &all {
            if found.contains(&process.parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn named_in(folder: &Path, all: &BTreeMap<i32, Process>) -> BTreeSet<i32> {
    let mut files = vec![folder.join(PID_FILE)];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        files.push(entry.path().join(PID_FILE));
    }
    let named = files.iter().filter_map(|file| {
        let line = fs::read_to_string(file).ok()?;
        let (pid, started) = line.trim().split_once(' ')?;
        let pid = pid.parse().ok()?;
        (all.get(&pid)?.started == started).then_some(pid)
    });
    named.collect()
}

/// Sends `signal` to every process of the folder, and again to those that appeared
/// meanwhile. The first process comes first: once it has stopped it starts no more.
pub(crate) fn signal_folder(folder: &Path, signal: Signal) {
    let mut reached = BTreeSet::new();
    loop {
        let new: Vec<i32> = of_folder(folder).difference(&reached).copied().collect();
        if new.is_empty() {
            return;
        }
        for pid in new {
            // Gone meanwhile is what we want, or no harm.
            let _ = kill(Pid::from_raw(pid), signal);
            reached.insert(pid);
        }
    }
}
