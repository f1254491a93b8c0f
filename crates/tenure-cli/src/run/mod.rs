//! `tenure run`: a command that runs only while its lease is held.
//!
//! ```text
//!  tenure run ── forks ──▶ guardian ── forks ──▶ the command (its own group)
//!   campaigns, renews  ──deadlines──▶  ends the tree in time, whatever becomes of the left
//! ```

mod anchor;
mod child;
mod guardian;
mod line;
mod once;
mod proc_status;
mod protocol;
mod signals;
mod supervisor;
mod terminal;
mod tree;
mod waiting;
mod warden;

use std::ffi::OsString;
use std::time::Duration;

use tenure::{Holder, Key, Timing};

use crate::args::{Global, LogFormat, RunArgs};
use crate::config::Config;
use crate::exit::{self, Failure, Outcome};
use crate::store::Place;

/// What `tenure run` is asked, checked before anything is touched.
#[derive(Debug)]
pub struct Job {
    key: Key,
    holder: Option<Holder>,
    command: Vec<OsString>,
    timing: Timing,
    wait: Wait,
    conflict: u8,
    at_least: Option<Duration>,
    restart: bool,
    place: Place,
    verbose: u8,
    log_format: LogFormat,
}

/// How long to wait for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    ForEver,
    AtMost(Duration),
    Not,
}

/// How one run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    code: u8,
    ending: Ending,
}

/// Why one run ended; decides whether there is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Ending {
    /// The command ran and ended by itself.
    Ran = b'r',
    /// The lease was lost.
    Lost = b'l',
    /// Somebody asked to step down.
    SteppedDown = b'd',
    /// Somebody else has the lease.
    NotAcquired = b'n',
    /// The store cannot be reached now.
    Unreachable = b'u',
    /// It cannot work until somebody fixes something.
    Refused = b'x',
    /// A signal came before the command ran.
    Signalled = b's',
}

impl Ended {
    fn new(code: u8, ending: Ending) -> Self {
        Self { code, ending }
    }

    /// Reports a failure that comes before or instead of the command.
    fn failed(failure: &Failure, ending: Ending) -> Self {
        failure.report();
        Self::new(failure.code(), ending)
    }
}

impl Ending {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Ending::Ran,
            Ending::Lost,
            Ending::SteppedDown,
            Ending::NotAcquired,
            Ending::Unreachable,
            Ending::Refused,
            Ending::Signalled,
        ]
        .into_iter()
        .find(|ending| *ending as u8 == byte)
    }
}

impl Job {
    /// Checks the input; nothing is opened and no file is made.
    pub fn new(mut args: RunArgs, global: &Global, config: &Config) -> Result<Self, Failure> {
        config.fill_run(&mut args)?;
        let key = Key::new(args.key)?;
        let holder = args.holder.map(Holder::new).transpose()?;
        let timing = args.timing.resolve()?;
        let wait = match args.wait {
            _ if args.no_wait => Wait::Not,
            Some(wait) if wait.is_zero() => Wait::Not,
            Some(wait) => Wait::AtMost(wait),
            None => Wait::ForEver,
        };
        Ok(Self {
            key,
            holder,
            command: args.command,
            timing,
            wait,
            conflict: args.conflict_exit_code.unwrap_or(exit::NOT_ACQUIRED),
            at_least: args.at_least,
            restart: args.restart,
            place: Place::new(global.store.as_deref())?,
            verbose: global.verbose,
            log_format: Config::log_format(global),
        })
    }

    /// Runs the command: once, or again and again. Must be called before any thread starts.
    pub fn run(&self) -> Outcome {
        if self.restart {
            supervisor::run(self)
        } else {
            Ok(once::run(self, false).code)
        }
    }
}

/// Signals that end a subcommand which has to clear up behind it.
#[derive(Debug)]
pub struct Interrupts {
    signals: signals::Signals,
}

impl Interrupts {
    /// From here on signals are read. Must be called before any thread starts.
    pub fn catch() -> std::io::Result<Self> {
        let status = proc_status::ProcStatus::read()?;
        Ok(Self {
            signals: signals::Signals::catch(&status, &[])?,
        })
    }

    /// Starts a process that gets the signals as we did, not blocked as we have them.
    pub fn spawn(
        &self,
        command: &mut std::process::Command,
    ) -> std::io::Result<std::process::Child> {
        self.signals.unblocked(|| command.spawn())
    }

    /// Waits this long; gives the signal that asks to leave, if one comes.
    pub fn wait(&self, time: Duration) -> Option<nix::sys::signal::Signal> {
        // An interrupted wait is only a shorter one.
        let _ = supervisor::wait_for_signal(&self.signals, Some(time));
        while let Some(caught) = self.signals.next() {
            if caught.signal == nix::sys::signal::Signal::SIGTSTP {
                let _ = nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::SIGSTOP);
            }
            if signals::ends(caught.signal) {
                return Some(caught.signal);
            }
        }
        None
    }
}
