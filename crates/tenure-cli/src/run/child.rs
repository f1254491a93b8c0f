//! The process that waits for the lease and then becomes the command.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::unistd::{Pid, execvpe, getppid, setpgid};
use tenure::{Holder, Key};

use crate::exit;

/// What is to be run, prepared before the lease is there.
#[derive(Clone, Debug)]
pub struct Command {
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Command {
    /// The command with its environment; only the token is still missing.
    pub fn new(words: &[OsString], key: &Key, holder: &Holder, ttl_ms: u64) -> Option<Self> {
        let own = [
            ("TENURE_KEY", key.to_string()),
            ("TENURE_HOLDER", holder.to_string()),
            ("TENURE_TTL_MS", ttl_ms.to_string()),
        ];
        let inherited = std::env::vars_os().filter(|(name, _)| {
            name != "TENURE_TOKEN" && own.iter().all(|(ours, _)| name != OsStr::new(ours))
        });
        let mut environment: Vec<CString> = Vec::new();
        for (name, value) in inherited {
            environment.push(pair(&name, &value)?);
        }
        for (name, value) in &own {
            environment.push(pair(name.as_ref(), value.as_ref())?);
        }
        let arguments = words.iter().map(|word| CString::new(word.as_bytes()).ok());
        Some(Self {
            arguments: arguments.collect::<Option<_>>()?,
            environment,
        })
    }
}

fn pair(name: &OsStr, value: &OsStr) -> Option<CString> {
    let mut text = name.to_owned().into_vec();
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    CString::new(text).ok()
}

/// A process that waits for the lease, with its ends of the guardian's pipes.
#[derive(Debug)]
pub struct Waiting {
    /// What it is to become.
    pub command: Command,
    /// The signals that are to be blocked then.
    pub mask: SigSet,
    /// Where the token comes from.
    pub go: PipeReader,
    /// Where it says that it could not become the command.
    pub failed: PipeWriter,
}

impl Waiting {
    /// Waits for the token, then becomes the command; never comes back.
    ///
    /// Runs in a fresh fork of a process with one thread.
    pub fn wait_and_become(mut self, parent: Pid) -> ! {
        // The parent does the same, so that whoever comes first, the group is there.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
        // Without its guardian the command must not run; the second line is for one that
        // died before the first.
        let _ = prctl::set_pdeathsig(Signal::SIGKILL);
        if getppid() != parent {
            std::process::exit(0);
        }
        let mut token = [0; 8];
        if self.go.read_exact(&mut token).is_err() {
            // The pipe was closed: the lease never came.
            std::process::exit(0);
        }
        let token = u64::from_ne_bytes(token).to_string();
        self.command
            .environment
            .extend(pair(OsStr::new("TENURE_TOKEN"), OsStr::new(&token)));
        let Err(errno) = become_now(&self.command, &self.mask);
        let _ = self.failed.write_all(&[1]);
        std::process::exit(i32::from(self.command.explain(errno)));
    }
}

impl Command {
    /// Says why it could not be executed, and gives the exit code for that.
    fn explain(&self, errno: Errno) -> u8 {
        let name = self.arguments.first().cloned().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let (code, why) = match errno {
            Errno::ENOENT => (exit::NOT_FOUND, "not found: check the name and PATH".into()),
            Errno::EACCES => (
                exit::NOT_EXECUTABLE,
                "not executable: check its permissions (chmod +x)".to_owned(),
            ),
            other => (exit::NOT_EXECUTABLE, other.desc().to_lowercase()),
        };
        eprintln!("tenure: cannot run {name}: {why}");
        code
    }
}

fn become_now(command: &Command, mask: &SigSet) -> Result<Infallible, Errno> {
    // SAFETY: no handler is installed, the default is put back: the Rust runtime ignores
    // PIPE, and a command must not inherit that.
    #[expect(unsafe_code, reason = "restores a default, installs no handler")]
    unsafe {
        signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None)?;
    let name = command.arguments.first().ok_or(Errno::ENOENT)?;
    execvpe(name, &command.arguments, &command.environment)
}
