//! The signals that `tenure run` hands on to its command.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::proc_status::ProcStatus;

/// What is handed on. STOP and KILL cannot be; CHLD, PIPE and faults are the process's own.
const FORWARDED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Signals that are read instead of being suffered.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    before: SigSet,
}

/// A signal that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Which.
    pub signal: Signal,
    /// Whether the kernel sent it to the whole foreground group, as Ctrl-C does.
    pub from_terminal: bool,
}

impl Signals {
    /// From here on the signals are read. Those that the caller ignores (`nohup`) stay ignored.
    ///
    /// To be called before any thread starts, since threads inherit what is blocked.
    pub fn catch(status: &ProcStatus, also: &[Signal]) -> io::Result<Self> {
        let mut read = SigSet::empty();
        for signal in FORWARDED.iter().chain(also) {
            if !status.ignores(*signal as i32) {
                read.add(*signal);
            }
        }
        let mut blocked = read;
        // Taking the terminal back from the background would stop us otherwise.
        blocked.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before))?;
        let fd = SignalFd::with_flags(&read, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, before })
    }

    /// What was blocked before: the command gets just that.
    pub fn before(&self) -> SigSet {
        self.before
    }

    /// Does something with the signals as they were before.
    pub fn unblocked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut ours = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), Some(&mut ours))?;
        let done = work();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&ours), None)?;
        done
    }

    /// The next signal, if one is there.
    pub fn next(&self) -> Option<Caught> {
        let info = self.fd.read_signal().ok()??;
        let signal = i32::try_from(info.ssi_signo).ok()?;
        Some(Caught {
            signal: Signal::try_from(signal).ok()?,
            from_terminal: info.ssi_code == nix::libc::SI_KERNEL,
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for Signals {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.fd)
    }
}

/// Whether a process that does nothing about it dies of this signal.
pub fn ends(signal: Signal) -> bool {
    !matches!(
        signal,
        Signal::SIGWINCH | Signal::SIGTSTP | Signal::SIGCONT | Signal::SIGCHLD
    )
}
