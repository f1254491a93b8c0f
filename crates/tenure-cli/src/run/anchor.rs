//! The command's parent in its own session, where there is a terminal.
//!
//! The kernel stops a group from the terminal (Ctrl-Z, reading in the background) only
//! if one of its members has a parent in the same session. The guardian has left that
//! session, so on a terminal this small process stands between the two: it waits for
//! the command and passes on what it learns.

use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid, setpgid};

use super::child::Waiting;
use super::protocol::{self, Done, How, Report};
use crate::exit;

/// Forks the process that is to become the command, and passes on what becomes of it;
/// never comes back.
///
/// Runs in a fresh fork of a process with one thread, with all signals blocked.
pub fn stand(guardian: Pid, to_guardian: &UnixStream, waiting: Waiting) -> ! {
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // Without its guardian nothing may run; the command dies with this process in turn.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let _ = prctl::set_name(c"tenure-anchor");
    let anchor = getpid();
    if getppid() == guardian {
        // SAFETY: this process is a fork of one with one thread and has started none.
        #[expect(unsafe_code, reason = "fork of a process with one thread")]
        match unsafe { fork() } {
            Ok(ForkResult::Child) => waiting.wait_and_become(anchor),
            Ok(ForkResult::Parent { child }) => {
                let _ = setpgid(child, child);
                // A guardian that does not listen is dead, and so are we.
                let _ = pass_on(child, to_guardian);
            }
            Err(error) => eprintln!("tenure: cannot fork: {error}"),
        }
    }
    std::process::exit(0)
}

fn pass_on(child: Pid, to_guardian: &UnixStream) -> io::Result<()> {
    protocol::send(to_guardian, Report::Ready(child.as_raw()).to_frame())?;
    loop {
        let report = match waitpid(child, Some(WaitPidFlag::WUNTRACED))? {
            WaitStatus::Stopped(_, signal) => Report::Stopped(signal as i32),
            WaitStatus::Exited(_, code) => ended(u8::try_from(code).unwrap_or(exit::INTERNAL)),
            WaitStatus::Signaled(_, signal, _) => ended(exit::of_signal(signal as i32)),
            _ => continue,
        };
        protocol::send(to_guardian, report.to_frame())?;
        if matches!(report, Report::Done(_)) {
            return Ok(());
        }
    }
}

fn ended(code: u8) -> Report {
    let how = How::Own;
    Report::Done(Done { code, how })
}
