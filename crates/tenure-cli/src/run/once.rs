//! One run: win the lease, run the command under it, free the lease.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getpid;
use tenure::{BootClock, Clock, EndReason, Holder, Moment, Store, Tenure};

use super::child::Command;
use super::guardian::{Guardian, Plan};
use super::line::{Line, SignalLine};
use super::proc_status::ProcStatus;
use super::protocol::{Done, How, Order, Report};
use super::signals::{self, Caught, Signals};
use super::terminal::{self, Terminal};
use super::waiting::{self, Won};
use super::warden::Times;
use super::{Ended, Ending, Job, tree};
use crate::exit::{self, Failure};
use crate::store::Opener;
use crate::{logging, output};

/// How often killing is tried, 2 ms apart, before it is given up.
const KILL_TRIES: u32 = 2_500;

/// How long we wait for a guardian that was told to leave.
const BURY_MAX: Duration = Duration::from_secs(1);

/// Runs the command once. Must be called before any thread starts.
pub fn run(job: &Job, supervised: bool) -> Ended {
    match prepare(job, supervised) {
        Ok((run, opener)) => {
            let guardian = run.guardian.pid;
            let ended = run.go(opener);
            // The line is closed, so the guardian leaves; nobody else should have to bury it.
            tree::bury(guardian, BURY_MAX);
            ended
        }
        Err(failure) => {
            let ending = match failure.code() {
                exit::STORE => Ending::Unreachable,
                _ => Ending::Refused,
            };
            Ended::failed(&failure, ending)
        }
    }
}

/// Everything of one run that is there before the first thread.
struct Run<'j> {
    job: &'j Job,
    holder: Holder,
    times: Times,
    signals: Signals,
    guardian: Guardian,
    terminal: Terminal,
    supervised: bool,
}

/// How the command's part ended.
enum Finish {
    /// The guardian reports: all are dead.
    Done(Done),
    /// The guardian was killed, or did not do its part in time: we killed the tree.
    Killed { all: bool, why: &'static str },
}

fn prepare(job: &Job, supervised: bool) -> Result<(Run<'_>, Opener), Failure> {
    let broken = |what: &str, error: std::io::Error| Failure::internal(format!("{what}: {error}"));
    let status = ProcStatus::read().map_err(|e| broken("cannot read /proc/self/status", e))?;
    let signals = Signals::catch(&status, &[]).map_err(|e| broken("cannot read signals", e))?;
    let holder = job.holder.clone().unwrap_or_else(Holder::generate);
    let ttl_ms = output::millis(job.timing.ttl);
    let command = Command::new(&job.command, &job.key, &holder, ttl_ms)
        .ok_or_else(|| Failure::usage("the command contains a zero byte: remove it"))?;
    // If the guardian dies, what it guards becomes ours.
    prctl::set_child_subreaper(true).map_err(|e| broken("cannot become a subreaper", e.into()))?;
    // The lock is inherited by guardian and command: it is free when the last is dead.
    let opener = job.place.prepare()?;
    let times = Times::new(job.timing.grace, job.timing.ttl);
    let terminal = Terminal::look();
    let plan = Plan {
        command,
        times,
        mask: signals.before(),
        terminal: terminal.is_there(),
    };
    let guardian = Guardian::start(plan, &status).map_err(|e| broken("cannot fork", e))?;
    logging::start(job.verbose, job.log_format);
    let run = Run {
        job,
        holder,
        times,
        signals,
        guardian,
        terminal,
        supervised,
    };
    Ok((run, opener))
}

impl Run<'_> {
    fn go(self, opener: Opener) -> Ended {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.compete(opener)),
            Err(error) => {
                let text = format!("cannot start the runtime: {error}");
                Ended::failed(&Failure::internal(text), Ending::Refused)
            }
        }
    }

    async fn compete(self, opener: Opener) -> Ended {
        let Self {
            job,
            holder,
            times,
            signals,
            guardian,
            terminal,
            supervised,
        } = self;
        let lines =
            Line::new(guardian.socket).and_then(|line| Ok((line, SignalLine::new(signals)?)));
        let (mut line, mut signals) = match lines {
            Ok(lines) => lines,
            Err(error) => {
                let text = format!("cannot listen: {error}");
                return Ended::failed(&Failure::internal(text), Ending::Refused);
            }
        };
        let store: Arc<dyn Store> = match opener.open().await {
            Ok(store) => store,
            Err(error) => {
                let ending = match error.kind() {
                    tenure::ErrorKind::Unavailable => Ending::Unreachable,
                    _ => Ending::Refused,
                };
                return Ended::failed(&error.into(), ending);
            }
        };
        let won = waiting::wait_for_lease(job, &holder, store, &mut line, &mut signals).await;
        let won = match won {
            Ok(won) => won,
            Err(ended) => return ended,
        };
        let tenure = won.tenure.clone();
        let mut lead = Lead {
            job,
            times,
            line,
            signals,
            terminal,
            supervised,
            tenure,
        };
        let started = BootClock.now();
        let finish = lead.run().await;
        lead.finish(won, finish, started).await
    }
}

/// A run that leads.
struct Lead<'j> {
    job: &'j Job,
    times: Times,
    line: Line,
    signals: SignalLine,
    terminal: Terminal,
    supervised: bool,
    tenure: Tenure,
}

impl Lead<'_> {
    /// Starts the command and stays with it until all of it is dead.
    async fn run(&mut self) -> Finish {
        if self.terminal.is_ours_alone(self.supervised)
            && let Some(finish) = self.lend_terminal().await
        {
            return finish;
        }
        let tenure = self.tenure.clone();
        let mut deadlines = tenure.deadlines();
        let deadline = *deadlines.borrow_and_update();
        let token = tenure.token();
        self.line.send(Order::Go { token, deadline });
        let mut told = false;
        loop {
            // Only a look: what is new is marked as seen where it is sent on.
            let last_resort_at = self.last_resort_at(*deadlines.borrow());
            tokio::select! {
                biased;
                report = self.line.next() => {
                    if let Some(finish) = self.take(report) {
                        return finish;
                    }
                }
                _ = deadlines.changed() => {
                    let renewed = *deadlines.borrow_and_update();
                    self.line.send(Order::Deadline(renewed));
                }
                () = tenure.told_to_stop(), if !told => {
                    told = true;
                    let kill_at = self.kill_at();
                    self.line.send(Order::End { kill_at });
                }
                caught = self.signals.next() => self.hand_on(caught),
                () = wait_until(last_resort_at) => {
                    return kill_ourselves("the guardian did not end the command in time");
                }
            }
        }
    }

    /// When the guardian has to kill: within the grace, and before the deadline.
    fn kill_at(&self) -> Moment {
        if !self.tenure.is_valid() {
            // Somebody else may lead already.
            return Moment::ZERO;
        }
        let grace = self.times.grace.saturating_sub(self.times.margin);
        (BootClock.now() + grace).min(self.times.kill_at(self.tenure.deadline()))
    }

    /// When we kill ourselves, because the guardian is stopped.
    fn last_resort_at(&self, deadline: Moment) -> Moment {
        deadline.saturating_sub(self.times.margin / 2)
    }

    async fn lend_terminal(&mut self) -> Option<Finish> {
        while self.line.child().is_none() {
            let report = self.line.next().await;
            if let Some(finish) = self.take(report) {
                return Some(finish);
            }
        }
        self.terminal.lend(self.line.child()?);
        None
    }

    fn take(&mut self, report: Option<Report>) -> Option<Finish> {
        match report {
            Some(Report::Ready(_)) => {}
            Some(Report::Stopped(signal)) => self.child_stopped(signal),
            Some(Report::Done(done)) => return Some(Finish::Done(done)),
            None => return Some(kill_ourselves("the guardian was killed")),
        }
        None
    }

    /// The command was stopped: from the terminal, so we stop too and the shell takes over.
    fn child_stopped(&mut self, signal: i32) {
        let wants_terminal = signal == Signal::SIGTTIN as i32 || signal == Signal::SIGTTOU as i32;
        if wants_terminal && !self.terminal.is_lent() {
            let child = self.line.child();
            if child.is_some_and(|child| self.terminal.lend(child)) {
                self.line.send(Order::Forward(Signal::SIGCONT as i32));
            }
        } else if signal == Signal::SIGTSTP as i32 && self.terminal.is_lent() {
            self.terminal.take_back();
            terminal::stop_ourselves();
            // Continued: CONT lies there as a signal and is handed on.
        }
    }

    fn hand_on(&mut self, caught: Caught) {
        match caught.signal {
            Signal::SIGCONT => {
                if let Some(child) = self.line.child()
                    && self.terminal.is_ours_alone(self.supervised)
                {
                    self.terminal.lend(child);
                }
                self.line.send(Order::Forward(Signal::SIGCONT as i32));
            }
            Signal::SIGTSTP => {
                self.line.send(Order::Forward(Signal::SIGTSTP as i32));
                let _ = nix::sys::signal::kill(getpid(), Signal::SIGSTOP);
            }
            signal => self.line.send(Order::Forward(signal as i32)),
        }
    }

    /// Frees the lease, now that all are dead, and says how it went.
    async fn finish(mut self, won: Won, finish: Finish, started: Moment) -> Ended {
        self.terminal.take_back();
        let own = matches!(finish, Finish::Done(done) if done.how == How::Own);
        if own && let Some(at_least) = self.job.at_least {
            self.keep_until(started + at_least).await;
        }
        if let Finish::Killed { all: false, why } = finish {
            // Some process lives and cannot be killed: the lease is not freed for others.
            let text = format!("{why}, and some of its processes cannot be killed");
            let ended = Ended::failed(&Failure::new(exit::LEASE_LOST, text), Ending::Lost);
            std::process::exit(i32::from(ended.code));
        }
        drop(won.work);
        tokio::select! {
            () = won.elector.stop() => {}
            // Whoever is in a hurry need not wait for the store: the lease runs out.
            () = self.asked_to_leave() => {}
        }
        self.result(finish)
    }

    /// Keeps the lease for a short command, unless it is lost or somebody wants us to leave.
    async fn keep_until(&mut self, moment: Moment) {
        let tenure = self.tenure.clone();
        tokio::select! {
            () = BootClock.sleep_until(moment) => {}
            () = tenure.told_to_stop() => {
                tracing::warn!("the lease was lost before --at-least was over");
            }
            () = self.asked_to_leave() => {}
        }
    }

    async fn asked_to_leave(&mut self) {
        while !signals::ends(self.signals.next().await.signal) {}
    }

    fn result(&self, finish: Finish) -> Ended {
        let done = match finish {
            Finish::Done(done) => done,
            Finish::Killed { why, .. } => {
                let text = format!("{why}: the command and all its processes were killed");
                return Ended::failed(&Failure::new(exit::LEASE_LOST, text), Ending::Lost);
            }
        };
        match done.how {
            How::Own => Ended::new(done.code, Ending::Ran),
            How::NotExecuted => Ended::new(done.code, Ending::Refused),
            How::Ended => {
                let reason = self.tenure.end_reason().unwrap_or(EndReason::Expired);
                let ending = match reason {
                    EndReason::AskedToStepDown => Ending::SteppedDown,
                    _ => Ending::Lost,
                };
                let key = &self.job.key;
                let text = format!("lost the lease on {key} ({reason}): the command was ended");
                Ended::failed(&Failure::new(exit::LEASE_LOST, text), ending)
            }
        }
    }
}

/// Kills every descendant, the guardian too.
fn kill_ourselves(why: &'static str) -> Finish {
    let all = tree::kill_all(tree::home_session(), KILL_TRIES);
    Finish::Killed { all, why }
}

async fn wait_until(moment: Moment) {
    // Timers stand still while the machine sleeps, so the rest is looked at again.
    loop {
        let left = moment - BootClock.now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}
