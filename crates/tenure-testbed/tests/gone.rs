//! Nothing is left of a test process, however it ends.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_testbed::{Etcd, Postgres, Redis, wait_until};

const LIMIT: Duration = Duration::from_secs(20);
const CHILD: &str = "TENURE_TESTBED_CHILD";

/// Only as the child of the tests below: starts servers, tells where, waits to be killed.
#[test]
fn child() {
    let Ok(how) = std::env::var(CHILD) else {
        return;
    };
    let (Some(pg), Some(redis), Some(etcd)) = (Postgres::start(), Redis::start(), Etcd::start())
    else {
        return;
    };
    if how == "paused" {
        // A stopped process hears only SIGKILL.
        pg.pause();
        redis.pause();
        etcd.server().pause();
    }
    let mut out = std::io::stderr();
    for server in [&*pg, &*redis, etcd.server()] {
        let pid = server.pid().unwrap();
        writeln!(out, "SERVER {pid} {}", server.folder().display()).unwrap();
    }
    writeln!(out, "READY").unwrap();
    if how == "passes" {
        // As the shared ones do: they are never dropped.
        std::mem::forget((pg, redis, etcd));
        return;
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// One server of the child: its folder, and its processes with when they were started.
struct Started {
    folder: PathBuf,
    processes: Vec<(String, String)>,
}

/// A test process with servers. None on a machine without servers.
fn start(how: &str) -> Option<(Child, Vec<Started>)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, how)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut servers = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("SERVER ") {
            Some(server) => servers.push(Started::from_line(server)),
            None if line == "READY" => return Some((child, servers)),
            None => {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }
    child.wait().unwrap();
    None
}

impl Started {
    fn from_line(line: &str) -> Self {
        let (pid, folder) = line.split_once(' ').unwrap();
        let mut pids = vec![pid.to_owned()];
        pids.extend(children(pid));
        let processes = pids.into_iter();
        Self {
            folder: PathBuf::from(folder),
            processes: processes
                .filter_map(|pid| started(&pid).map(|at| (pid, at)))
                .collect(),
        }
    }

    fn is_running(&self) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|(pid, at)| started(pid).as_ref() == Some(at))
    }
}

/// When a living process was started: what tells it from a later one of that number.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then(|| fields[19].to_owned())
}

fn children(pid: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.map(str::to_owned).collect()
}

fn kill_and_wait(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn expect_gone(servers: &[Started]) {
    assert_eq!(servers.len(), 3);
    for server in servers {
        let run = server.folder.parent().unwrap();
        wait_until(&format!("{} to be gone", run.display()), LIMIT, || {
            (!server.is_running() && !run.exists()).then_some(())
        });
    }
}

#[test]
fn servers_are_gone_after_kill_9_of_the_test_process() {
    let Some((mut child, servers)) = start("waits") else {
        return;
    };
    assert!(servers.iter().all(Started::is_running));
    // PostgreSQL is many processes.
    assert!(servers[0].processes.len() > 3);
    kill_and_wait(&mut child);
    expect_gone(&servers);
}

#[test]
fn paused_servers_are_gone_after_kill_9_of_the_test_process() {
    let Some((mut child, servers)) = start("paused") else {
        return;
    };
    assert!(servers.iter().all(Started::is_running));
    kill_and_wait(&mut child);
    expect_gone(&servers);
}

#[test]
fn servers_are_gone_when_the_tests_pass_without_dropping_them() {
    let Some((mut child, servers)) = start("passes") else {
        return;
    };
    assert!(child.wait().unwrap().success());
    expect_gone(&servers);
}

/// The worst case: whoever kills the test kills the reaper too.
#[test]
fn the_next_run_sweeps_what_an_earlier_one_left() {
    let Some((mut child, servers)) = start("waits") else {
        return;
    };
    let mut children = children(&child.id().to_string()).into_iter();
    let reaper = children.find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("tenure-testbed-reaper")
    });
    let reaper = reaper.unwrap().parse().unwrap();
    kill(Pid::from_raw(reaper), Signal::SIGKILL).unwrap();
    kill_and_wait(&mut child);
    assert!(servers.iter().any(Started::is_running));
    let (mut next, its) = start("waits").unwrap();
    // Not waited for: the sweep comes before the first server of a run.
    assert!(!servers.iter().any(Started::is_running));
    assert!(servers.iter().all(|server| !server.folder.exists()));
    kill_and_wait(&mut next);
    expect_gone(&its);
}
