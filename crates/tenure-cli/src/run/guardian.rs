//! The guardian: a process beside the command that ends it in time, whatever becomes of its parent.
//!
//! It lives outside the command's group and session, so that nothing that stops or kills
//! those reaches it, and it needs nobody to be told the time: it knows the deadline and
//! acts by itself unless a later one comes.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{ForkResult, Pid, fork, getpid, setpgid, setsid};
use tenure::{BootClock, Clock, Moment};

use super::anchor;
use super::child::{Command, Waiting};
use super::proc_status::ProcStatus;
use super::protocol::{self, Done, How, Inbox, Order, Received, Report};
use super::tree::{self, Waited};
use super::warden::{Act, Times, Warden};

/// What the guardian has to know when it starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is to be run.
    pub command: Command,
    /// When to tell and when to kill.
    pub times: Times,
    /// The signals that the command has blocked at its start.
    pub mask: SigSet,
    /// Whether there is a terminal, so that the command needs a parent in its session.
    pub terminal: bool,
}

/// The guardian as its parent sees it.
#[derive(Debug)]
pub struct Guardian {
    /// Its number.
    pub pid: Pid,
    /// The line to it.
    pub socket: UnixStream,
}

impl Guardian {
    /// Forks the guardian, which forks the process that is to become the command.
    ///
    /// Only for a process with one thread: a fork copies no other, and whatever lock
    /// another one holds would stay locked for ever in the copy.
    pub fn start(plan: Plan, status: &ProcStatus) -> io::Result<Self> {
        if status.threads != 1 {
            return Err(io::Error::other("a thread was started before the guardian"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        // SAFETY: this process has one thread, as was just checked, so the copy is whole
        // and may run any code.
        #[expect(unsafe_code, reason = "fork of a process with one thread")]
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(ours);
                live(theirs, plan)
            }
            ForkResult::Parent { child } => Ok(Self {
                pid: child,
                socket: ours,
            }),
        }
    }
}

/// The guardian's life; it leaves when no descendant is left.
fn live(socket: UnixStream, plan: Plan) -> ! {
    let home = tree::home_session();
    let watched = std::panic::catch_unwind(|| Watch::begin(socket, plan).and_then(Watch::keep));
    if !matches!(watched, Ok(Ok(()))) {
        // Whatever went wrong here, nothing may go on running.
        eprintln!("tenure: the guardian failed: the command is ended");
        while !tree::kill_all(home, u32::MAX) {}
    }
    std::process::exit(0)
}

struct Watch {
    socket: Option<UnixStream>,
    inbox: Inbox,
    anchor: Option<UnixStream>,
    anchor_inbox: Inbox,
    warden: Warden,
    home: Pid,
    child: Pid,
    code: Option<u8>,
    go: Option<io::PipeWriter>,
    failed: PipeReader,
    deaths: SignalFd,
    timer: TimerFd,
}

impl Watch {
    fn begin(socket: UnixStream, plan: Plan) -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        let _ = prctl::set_name(c"tenure-guard");
        SigSet::all().thread_block()?;
        let home = tree::home_session();
        let guardian = getpid();
        let (go_reader, go) = io::pipe()?;
        let (failed, failed_writer) = io::pipe()?;
        let (anchor, to_guardian) = UnixStream::pair()?;
        // SAFETY: this process is a fork of one with one thread and has started none.
        #[expect(unsafe_code, reason = "fork of a process with one thread")]
        let mut child = match unsafe { fork() }? {
            ForkResult::Child => {
                drop((socket, go, failed, anchor));
                let waiting = Waiting {
                    command: plan.command,
                    mask: plan.mask,
                    go: go_reader,
                    failed: failed_writer,
                };
                if plan.terminal {
                    anchor::stand(guardian, &to_guardian, waiting)
                }
                waiting.wait_and_become(guardian)
            }
            ForkResult::Parent { child } => child,
        };
        let _ = setpgid(child, child);
        drop((to_guardian, failed_writer));
        let mut anchor_inbox = Inbox::default();
        let mut anchor = plan.terminal.then_some(anchor);
        if let Some(line) = &mut anchor {
            // It says at once which process is to become the command.
            let Received::Frame(frame) = anchor_inbox.next(line)? else {
                return Err(io::Error::other("the anchor did not start"));
            };
            if let Some(Report::Ready(pid)) = Report::from_frame(frame) {
                child = Pid::from_raw(pid);
            }
            line.set_nonblocking(true)?;
        }
        // The child stays in the terminal's session, its guardian leaves it.
        setsid()?;
        let mut chld = SigSet::empty();
        chld.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let timer_flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let watch = Self {
            socket: Some(socket),
            inbox: Inbox::default(),
            anchor,
            anchor_inbox,
            warden: Warden::new(plan.times),
            home,
            child,
            code: None,
            go: Some(go),
            failed,
            deaths: SignalFd::with_flags(&chld, flags)?,
            // Boot time: it fires at once when the machine wakes from a sleep.
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, timer_flags)?,
        };
        watch.report(Report::Ready(child.as_raw()));
        Ok(watch)
    }

    fn keep(mut self) -> io::Result<()> {
        loop {
            // Orders first: after a stop of this process a later deadline may lie there.
            self.take_orders()?;
            self.hear_anchor()?;
            if self.reap() {
                self.report_done();
                return Ok(());
            }
            let act = self.warden.tick(BootClock.now());
            self.act(act);
            self.sleep()?;
        }
    }

    fn take_orders(&mut self) -> io::Result<()> {
        while let Some(socket) = &self.socket {
            match self.inbox.next(socket)? {
                Received::Nothing => return Ok(()),
                Received::Frame(frame) => {
                    let order = Order::from_frame(frame);
                    let now = BootClock.now();
                    let act = order.and_then(|order| self.warden.order(order, now));
                    self.act(act);
                }
                Received::Closed => {
                    self.socket = None;
                    let act = self.warden.orphaned(BootClock.now());
                    if act == Some(Act::Ask) {
                        eprintln!("tenure: the parent process is gone: the command is ended");
                    }
                    self.act(act);
                }
            }
        }
        Ok(())
    }

    /// Takes in what the anchor passes on, where there is one.
    fn hear_anchor(&mut self) -> io::Result<()> {
        while let Some(anchor) = &self.anchor {
            match self.anchor_inbox.next(anchor)? {
                Received::Nothing => return Ok(()),
                Received::Closed => self.anchor = None,
                Received::Frame(frame) => match Report::from_frame(frame) {
                    Some(Report::Done(done)) => {
                        self.code = Some(done.code);
                        let act = self.warden.ended(BootClock.now());
                        self.act(act);
                    }
                    Some(report) => self.report(report),
                    None => {}
                },
            }
        }
        Ok(())
    }

    /// Waits for the dead; true if no descendant is left.
    fn reap(&mut self) -> bool {
        let mut ended = false;
        loop {
            match tree::wait_one() {
                Waited::NoneLeft => return true,
                Waited::Nothing => break,
                Waited::Ended(pid, code) if pid == self.child => {
                    self.code = Some(code);
                    ended = true;
                }
                Waited::Stopped(pid, signal) if pid == self.child => {
                    self.report(Report::Stopped(signal));
                }
                Waited::Ended(..) | Waited::Stopped(..) => {}
            }
        }
        if ended {
            let act = self.warden.ended(BootClock.now());
            self.act(act);
        }
        false
    }

    fn act(&mut self, act: Option<Act>) {
        match act {
            None => {}
            Some(Act::Start(token)) => {
                // If the child is gone, its death tells the rest.
                let go = self.go.take();
                let _ = go.map(|mut go| go.write_all(&token.0.to_ne_bytes()));
            }
            Some(Act::Forward(number)) => {
                // Until it is waited for, nobody else can have its number.
                if let (None, Ok(signal)) = (self.code, Signal::try_from(number)) {
                    let _ = killpg(self.child, signal);
                }
            }
            Some(Act::Ask) => tree::signal_all(self.child, &[Signal::SIGTERM, Signal::SIGCONT]),
            Some(Act::Kill) => tree::kill_once(self.home),
        }
    }

    fn report(&self, report: Report) {
        if let Some(socket) = &self.socket {
            // Nobody there to read it: the closed line says the same.
            let _ = protocol::send(socket, report.to_frame());
        }
    }

    fn report_done(&mut self) {
        let ended_by_itself = self.warden.how() == How::Own || self.code_came_first();
        let mut how = if ended_by_itself {
            How::Own
        } else {
            How::Ended
        };
        let mut mark = [0];
        // The child holds the other end no more, so this does not block.
        if matches!(self.failed.read(&mut mark), Ok(1)) {
            how = How::NotExecuted;
        }
        let code = self.code.unwrap_or(crate::exit::INTERNAL);
        self.report(Report::Done(Done { code, how }));
    }

    /// Whether the command was the last to end and nothing had been done to it.
    fn code_came_first(&self) -> bool {
        self.code.is_some() && self.warden.is_running()
    }

    fn sleep(&mut self) -> io::Result<()> {
        match self.warden.wake_at(BootClock.now()) {
            Some(moment) => self.timer.set(
                Expiration::OneShot(time_spec(moment)),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )?,
            None => self.timer.unset()?,
        }
        let mut fds = vec![
            PollFd::new(self.deaths.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(socket) = &self.socket {
            fds.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        }
        if let Some(anchor) = &self.anchor {
            fds.push(PollFd::new(anchor.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(Some(_)) = self.deaths.read_signal() {}
        Ok(())
    }
}

fn time_spec(moment: Moment) -> TimeSpec {
    // Zero would mean "never": one nanosecond after boot is as past as any.
    TimeSpec::from_duration(Duration::from_nanos(moment.as_nanos().max(1)))
}
