//! One server process (and its children): started, stopped, frozen, killed, started again.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::ClockFault;
use crate::ports::Port;
use crate::wait::{self, SERVER_LIMIT};
use crate::wire::Wire;
use crate::{Proxy, processes, run};

/// How a server is started and how one sees that it is ready.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// The user and group to run as, if not ours.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) clock: Option<ClockFault>,
    /// The server's own, removed with it. Its processes work in it.
    pub(crate) folder: PathBuf,
    /// The first is the one for clients.
    pub(crate) ports: Vec<Port>,
    pub(crate) stop_signal: Signal,
    /// What a proxy before it has to understand.
    pub(crate) wire: Wire,
    pub(crate) ready: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why a server did not come up.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Somebody else got the port first: try another.
    pub(crate) port_taken: bool,
    pub(crate) text: String,
}

/// A private server on loopback. It is gone when the last handle is dropped, and when
/// the test process ends, in whatever way.
///
/// All methods block until what they name has happened. In an async test in which other
/// tasks have to go on meanwhile, call the slow ones (stop, start, restart) by
/// `tokio::task::spawn_blocking`: a handle is cheap to clone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    spec: Spec,
    child: Mutex<Option<Child>>,
}

impl Server {
    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.inner.spec.ports[0].address()
    }

    /// The port for clients, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.inner.spec.ports[0].number()
    }

    /// One of its ports that are not for clients.
    pub(crate) fn extra_port(&self, index: usize) -> u16 {
        self.inner.spec.ports[index].number()
    }

    /// The id of the server's first process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// The server's own folder: its data and its log.
    pub fn folder(&self) -> &Path {
        &self.inner.spec.folder
    }

    /// What the server has written to its log since it was first started.
    pub fn log(&self) -> String {
        let log = fs::read(self.inner.spec.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Whether it runs (also while paused).
    pub fn is_running(&self) -> bool {
        match self.child().as_mut() {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// SIGSTOP to all its processes: connections stay open and nothing is answered; its
    /// clock runs on.
    pub fn pause(&self) {
        processes::signal_folder(self.folder(), Signal::SIGSTOP);
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub fn resume(&self) {
        processes::signal_folder(self.folder(), Signal::SIGCONT);
    }

    /// SIGKILL to all its processes, and waits until they are gone.
    pub fn kill(&self) {
        let mut child = self.child();
        self.inner.kill_all();
        if let Some(mut child) = child.take() {
            let _ = child.wait();
        }
    }

    /// Asks it to stop as an operator does, and waits until it has.
    pub fn stop(&self) {
        let mut guard = self.child();
        let Some(mut child) = guard.take() else {
            return;
        };
        let pid = i32::try_from(child.id()).unwrap_or(0);
        let _ = kill(Pid::from_raw(pid), self.inner.spec.stop_signal);
        let gone = wait::poll(SERVER_LIMIT, || {
            child.try_wait().ok().flatten().map(|_status| ())
        });
        self.inner.kill_all();
        let name = self.inner.spec.name;
        assert!(gone.is_some(), "{name} does not stop: {}", self.log_tail());
        let _ = child.wait();
    }

    /// Starts it after [`stop`](Self::stop) or [`kill`](Self::kill), on the same port
    /// with its data, and waits until it answers.
    pub fn start_again(&self) {
        if let Err(failure) = self.launch(&mut self.child()) {
            panic!("{}", failure.text);
        }
    }

    /// [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub fn restart(&self) {
        self.stop();
        self.start_again();
    }

    /// A fault proxy before this server.
    pub fn proxy(&self) -> Proxy {
        Proxy::speaking(self.inner.spec.wire, self.address())
    }

    /// Starts a new server.
    pub(crate) fn begin(spec: Spec) -> Result<Self, Failure> {
        let server = Self {
            inner: Arc::new(Inner {
                spec,
                child: Mutex::new(None),
            }),
        };
        server.launch(&mut server.child())?;
        Ok(server)
    }

    fn launch(&self, slot: &mut Option<Child>) -> Result<(), Failure> {
        let spec = &self.inner.spec;
        assert!(slot.is_none(), "{} runs already", spec.name);
        let child = slot.insert(self.spawn());
        let outcome = wait::poll(SERVER_LIMIT, || match child.try_wait() {
            Ok(None) if (spec.ready)() => Some(Ok(())),
            Ok(None) => None,
            Ok(Some(status)) => Some(Err(format!("ended with {status}"))),
            Err(error) => Some(Err(error.to_string())),
        });
        let why = match outcome {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why,
            None => format!("was not ready after {SERVER_LIMIT:?}"),
        };
        self.inner.kill_all();
        if let Some(mut child) = slot.take() {
            let _ = child.wait();
        }
        let tail = self.log_tail();
        let lower = tail.to_lowercase();
        Err(Failure {
            port_taken: lower.contains("address already in use") || lower.contains("bind"),
            text: format!("{} {why}; its log ends with:\n{tail}", spec.name),
        })
    }

    fn spawn(&self) -> Child {
        let spec = &self.inner.spec;
        let path = spec.folder.join("log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .current_dir(&spec.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap_or_else(|e| panic!("{e}")))
            .stdout(log)
            // Ctrl-C is for the tests; the reaper ends the servers.
            .process_group(0);
        if let Some((uid, gid)) = spec.user {
            command.uid(uid).gid(gid);
        }
        if let Some(clock) = &spec.clock {
            clock.apply(&mut command);
        }
        let child = command.spawn();
        let child = child.unwrap_or_else(|e| panic!("{}: {e}", spec.program.display()));
        let file = spec.folder.join(processes::PID_FILE);
        let written = fs::write(&file, processes::pid_line(child.id()));
        written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        child
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        let child = self.inner.child.lock();
        child.unwrap_or_else(PoisonError::into_inner)
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.inner.spec.name;
        write!(f, "{name} on {}", self.address())
    }
}

impl Inner {
    fn kill_all(&self) {
        for _ in 0..500 {
            processes::signal_folder(&self.spec.folder, Signal::SIGKILL);
            if processes::of_folder(&self.spec.folder).is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let child = child.take();
        run::end(&self.spec.folder);
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    }
}

/// Starts by `attempt` until it has a port that nobody else took in between.
pub(crate) fn begin_on_free_port<T>(mut attempt: impl FnMut() -> Result<T, Failure>) -> T {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt() {
            Ok(value) => return value,
            Err(failure) if failure.port_taken && tries < 10 => {}
            Err(failure) => panic!("{}", failure.text),
        }
    }
}
