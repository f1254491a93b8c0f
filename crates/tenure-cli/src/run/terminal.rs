//! The terminal: the command's group gets it while it runs, as a shell would do.

use std::io::{self, IsTerminal};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, if there is one.
#[derive(Debug)]
pub struct Terminal {
    there: bool,
    lent: bool,
}

impl Terminal {
    /// Looks whether stdin is a terminal.
    pub fn look() -> Self {
        Self {
            there: io::stdin().is_terminal(),
            lent: false,
        }
    }

    /// Whether there is a terminal.
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Whether the command gets the terminal from the start: we are a job of our own in
    /// the foreground. In a pipeline or a script others need it too, and the command
    /// gets it when it asks.
    ///
    /// Under `--restart` it stays with the supervisor: Ctrl-C there means all of it, and
    /// not one run.
    pub fn is_ours_alone(&self, supervised: bool) -> bool {
        let leader = getpgrp() == getpid();
        self.in_foreground() && leader && !supervised && io::stdout().is_terminal()
    }

    fn in_foreground(&self) -> bool {
        self.there && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// Gives the terminal to the command's group, if it is ours to give.
    pub fn lend(&mut self, group: Pid) -> bool {
        if self.in_foreground() && tcsetpgrp(io::stdin(), group).is_ok() {
            self.lent = true;
        }
        self.lent
    }

    /// Takes it back. TTOU is blocked, so that this works from the background.
    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }

    /// Whether the command has it.
    pub fn is_lent(&self) -> bool {
        self.lent
    }
}

/// Stops our own group, so that the shell gets its turn; comes back when continued.
pub fn stop_ourselves() {
    let _ = kill(Pid::from_raw(0), Signal::SIGSTOP);
}
