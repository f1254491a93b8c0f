//! `--restart`: a small process that starts one run after another.
//!
//! Each run is a fork of this process, which has one thread and stays so: thus each can
//! fork its guardian in turn.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use tenure::{BootClock, Clock, Moment};

use super::proc_status::ProcStatus;
use super::signals::{self, Caught, Signals};
use super::{Ended, Ending, Job, once};
use crate::exit::{self, Failure, Outcome};

/// A run that lasted this long was no quick failure.
const HEALTHY: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

struct Supervisor<'j> {
    job: &'j Job,
    signals: Signals,
    chance: fastrand::Rng,
    quick_ends: u32,
    leaving: bool,
}

/// Runs the command again and again, until told to leave.
pub fn run(job: &Job) -> Outcome {
    let broken = |error: io::Error| Failure::internal(format!("cannot supervise: {error}"));
    let status = ProcStatus::read().map_err(broken)?;
    let signals = Signals::catch(&status, &[Signal::SIGCHLD]).map_err(broken)?;
    let seed = BootClock.now().as_nanos() ^ u64::from(std::process::id());
    let mut supervisor = Supervisor {
        job,
        signals,
        chance: fastrand::Rng::with_seed(seed),
        quick_ends: 0,
        leaving: false,
    };
    loop {
        let started = BootClock.now();
        let ended = supervisor.run_once().map_err(broken)?;
        if supervisor.leaving || is_final(ended.ending) {
            return Ok(ended.code);
        }
        let pause = supervisor.pause(ended.ending, started);
        if let Some(signal) = supervisor.rest(pause).map_err(broken)? {
            return Ok(exit::of_signal(signal as i32));
        }
    }
}

/// Whether there is no use in another run.
fn is_final(ending: Ending) -> bool {
    matches!(
        ending,
        Ending::NotAcquired | Ending::Refused | Ending::Signalled
    )
}

impl Supervisor<'_> {
    fn run_once(&mut self) -> io::Result<Ended> {
        let (reader, writer) = io::pipe()?;
        let supervisor = getpid();
        // SAFETY: the supervisor has one thread and never starts another, so the copy is
        // whole and may run any code.
        #[expect(unsafe_code, reason = "fork of a process with one thread")]
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(reader);
                run_in_child(self.job, supervisor, &self.signals.before(), writer)
            }
            ForkResult::Parent { child } => {
                drop(writer);
                self.attend(child, reader)
            }
        }
    }

    /// Hands signals on to the run until it ends.
    fn attend(&mut self, run: Pid, mut reader: PipeReader) -> io::Result<Ended> {
        // A run that was killed says nothing, while its guardian still has the other end.
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        loop {
            while let Some(caught) = self.signals.next() {
                self.hand_on(run, caught);
            }
            if let Some(code) = ended(run)? {
                let mut byte = [0];
                let told = reader.read(&mut byte).unwrap_or(0) == 1;
                let ending = Ending::from_byte(byte[0]).filter(|_| told);
                if ending.is_none() {
                    eprintln!("tenure: the run was killed: campaigning again");
                }
                return Ok(Ended::new(code, ending.unwrap_or(Ending::Lost)));
            }
            wait_for_signal(&self.signals, None)?;
        }
    }

    fn hand_on(&mut self, run: Pid, caught: Caught) {
        match caught.signal {
            Signal::SIGCHLD => return,
            Signal::SIGINT | Signal::SIGTERM | Signal::SIGQUIT => self.leaving = true,
            // A terminal that hangs up ends the daemon; a HUP by hand makes it read its files.
            Signal::SIGHUP if caught.from_terminal => self.leaving = true,
            _ => {}
        }
        // What the terminal sends, the run got too.
        if !caught.from_terminal {
            let _ = kill(run, caught.signal);
        }
        if caught.signal == Signal::SIGTSTP {
            let _ = kill(getpid(), Signal::SIGSTOP);
        }
    }

    /// How long to rest before the next campaign.
    fn pause(&mut self, ending: Ending, started: Moment) -> Duration {
        if ending == Ending::SteppedDown {
            // Somebody else is to lead now.
            return self.job.timing.ttl;
        }
        if BootClock.now() - started >= HEALTHY {
            self.quick_ends = 0;
        }
        let most = PAUSE_FIRST.saturating_mul(1 << self.quick_ends.min(10));
        self.quick_ends += 1;
        most.min(PAUSE_MAX).mul_f64(0.5 + 0.5 * self.chance.f64())
    }

    /// Rests; gives the signal that ends it all, if one comes.
    fn rest(&mut self, pause: Duration) -> io::Result<Option<Signal>> {
        let until = BootClock.now() + pause;
        loop {
            while let Some(caught) = self.signals.next() {
                if caught.signal == Signal::SIGTSTP {
                    let _ = kill(getpid(), Signal::SIGSTOP);
                }
                if signals::ends(caught.signal) {
                    return Ok(Some(caught.signal));
                }
            }
            let left = until - BootClock.now();
            if left.is_zero() {
                return Ok(None);
            }
            wait_for_signal(&self.signals, Some(left))?;
        }
    }
}

fn run_in_child(job: &Job, supervisor: Pid, before: &SigSet, mut writer: io::PipeWriter) -> ! {
    // Without its supervisor the run ends, and its guardian ends the command.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if getppid() != supervisor {
        std::process::exit(0);
    }
    // A copy has the chance of its parent: without this, runs would repeat each other's.
    fastrand::seed(BootClock.now().as_nanos() ^ (u64::from(std::process::id()) << 32));
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(before), None);
    let ended = once::run(job, true);
    let _ = writer.write_all(&[ended.ending as u8]);
    std::process::exit(i32::from(ended.code))
}

/// The exit code of a run that has ended.
fn ended(run: Pid) -> io::Result<Option<u8>> {
    Ok(match waitpid(run, Some(WaitPidFlag::WNOHANG))? {
        WaitStatus::Exited(_, code) => Some(u8::try_from(code).unwrap_or(exit::INTERNAL)),
        WaitStatus::Signaled(_, signal, _) => Some(exit::of_signal(signal as i32)),
        _ => None,
    })
}

pub fn wait_for_signal(signals: &Signals, at_most: Option<Duration>) -> io::Result<()> {
    let timeout = match at_most {
        // Rounded up, so as not to spin through the last millisecond.
        Some(time) => {
            PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        }
        None => PollTimeout::NONE,
    };
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
