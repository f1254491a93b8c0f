//! A throw-away store, real processes of the real command, and waiting for conditions.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::{BootClock, Clock};

/// How long a condition may take on a busy machine before the test says that it never comes.
pub const BOUND: Duration = Duration::from_secs(30);

/// A folder with a store of its own.
pub struct Place {
    folder: tempfile::TempDir,
    url: Option<String>,
}

/// A `tenure` process that is not left behind.
pub struct Node {
    pub process: Child,
}

/// Waits until `condition` gives something.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let give_up_at = BootClock.now() + BOUND;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(BootClock.now() < give_up_at, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the command to its end, within the bound. Its output goes to files and not to
/// pipes: so a process that it left behind cannot hold us up.
pub fn finished(command: &mut Command) -> Output {
    let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let process = command
        .stdout(stdout.try_clone().unwrap())
        .stderr(stderr.try_clone().unwrap())
        .spawn()
        .unwrap();
    let status = Node { process }.wait();
    let [stdout, stderr] = [stdout, stderr].map(|mut file| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    });
    Output {
        status,
        stdout,
        stderr,
    }
}

impl Place {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            url: None,
        }
    }

    /// A folder whose store is the server of this URL.
    pub fn on(url: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            ..Self::new()
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store_url(&self) -> String {
        let file = || format!("sqlite:{}", self.path("state/leases.db").display());
        self.url.clone().unwrap_or_else(file)
    }

    /// The command with nothing of the tester's own environment, on this place's store.
    pub fn tenure(&self, args: &[&str]) -> Command {
        let mut command = self.bare(args);
        command.env("TENURE_STORE", self.store_url());
        command
    }

    /// The command with no store given.
    pub fn bare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state-home"))
            .env("D", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end, within the bound.
    pub fn output(&self, args: &[&str]) -> Output {
        finished(&mut self.tenure(args))
    }

    /// Starts it; its stderr goes to a file of this name.
    pub fn start(&self, name: &str, args: &[&str]) -> Node {
        let stderr = fs::File::create(self.path(&format!("{name}.err"))).unwrap();
        let process = self
            .tenure(args)
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Node { process }
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until the file has this text, and gives the whole.
    pub fn wait_for_text(&self, name: &str, text: &str) -> String {
        let found = || Some(self.read(name)).filter(|read| read.contains(text));
        let give_up_at = BootClock.now() + BOUND;
        loop {
            if let Some(found) = found() {
                return found;
            }
            if BootClock.now() >= give_up_at {
                panic!(
                    "{name} never had {text:?}:\n{}\n{}",
                    self.read(name),
                    self.errors()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn errors(&self) -> String {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|end| end == "err"))
            .map(|path| format!("{}: {}", path.display(), fs::read_to_string(&path).unwrap()))
            .collect()
    }

    /// A script for `tenure run … -- sh SCRIPT NAME`. It writes into `log` that it began,
    /// and "overlap" if any process of an earlier one still lives; `rest` follows.
    pub fn script(&self, rest: &str) -> String {
        let text = format!(
            "for p in $(cat \"$D/pids\" 2>/dev/null); do \
               kill -0 $p 2>/dev/null && echo \"overlap $1 $p\" >> \"$D/log\"; done\n\
             echo $$ >> \"$D/pids\"\n\
             echo \"start $1 $TENURE_TOKEN $$\" >> \"$D/log\"\n{rest}\n"
        );
        let path = self.path("script.sh");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The log without what would be there if two had run at once.
    pub fn log_without_overlap(&self) -> String {
        let log = self.read("log");
        assert!(!log.contains("overlap"), "two at once:\n{log}");
        log
    }

    /// All processes that scripts have written down.
    pub fn pids(&self) -> Vec<i32> {
        let text = self.read("pids");
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The live lease of the key, from `tenure status`.
    pub fn status(&self, key: &str) -> serde_json::Value {
        let output = self.output(&["status", key, "--format", "json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Node {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for its end, within the bound.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the process", || {
            self.process.try_wait().unwrap()
        })
    }

    pub fn code(&mut self) -> i32 {
        self.wait().code().expect("an exit code")
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Its guardian: the one child that it has.
    pub fn guardian(&self) -> i32 {
        let pid = self.pid();
        wait_for("the guardian", || {
            children(pid)
                .into_iter()
                .find(|child| name(*child) == "tenure-guard")
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A stopped process dies of this too.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

pub fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

pub fn name(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim().to_owned()
}

/// Whether the process is there and no zombie.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some(Some(state)) if state != 'Z' && state != 'X')
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// One line that begins with the program's name.
pub fn assert_one_line(text: &str) {
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("tenure: "), "{text}");
}

/// The files and folders below a path.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .flatten()
        .flat_map(|entry| {
            let mut found = files(&entry.path());
            found.push(entry.path());
            found
        })
        .collect()
}
