//! The election as a state machine without I/O: (now, input) → outputs.
//!
//! It owns every rule of time: when to ask, when to renew, when a call is given up,
//! when guarded work is told to stop and when the tenure ends. It reads no clock, sends
//! nothing and sleeps never; the driver does, and the simulator does it instead.
//!
//! ```text
//!                 granted                    told to stop              work done
//!  Campaigning ─────────────▶ Leading ─────────────────▶ Draining ─────────────▶ Releasing
//!   ▲    ▲                       │  lost, or deadline       │ deadline              │
//!   │    └───────────────────────┴──────────────────────────┘                       │
//!   └──────────────────────────── (rests first if it resigned) ────────────────────┘
//! ```

mod answers;
mod messages;
mod state;

use std::time::Duration;

use fastrand::Rng;

pub use self::messages::{Answer, CallId, Input, Operation, Output, Request};
use self::state::{Drain, Leading, Pending, Phase, Releasing, Seen};
use crate::clock::Moment;
use crate::error::Error;
use crate::reason::EndReason;
use crate::settings::Settings;
use crate::store::{AcquireRequest, Lease};
use crate::words::{Attempt, Holder, Token, Version};

/// The state machine of one elector. See the module's page.
#[derive(Debug)]
pub struct Election {
    settings: Settings,
    holder: Holder,
    rng: Rng,
    phase: Phase,
    /// The one call that is under way.
    pending: Option<Pending>,
    calls: u64,
    /// The attempt that the next acquire carries.
    attempt: Attempt,
    /// An acquire with that attempt may have been granted without our knowing.
    unresolved: bool,
    /// Calls that failed since the last that did not.
    failures: u32,
    /// The record of somebody else as last seen, and since when.
    seen: Option<Seen>,
    /// A tenure of ours whose work may not have stopped: it is not released, it runs out.
    runs_out: Option<Lease>,
    /// It resigned a tenure with this token, and leaves the free lease to others until it
    /// asks again.
    resting: Option<Token>,
    /// How many tenures have begun.
    tenures: u64,
    /// A notice came while a call was under way: its answer may be older.
    look_again: bool,
    stopping: bool,
    outputs: Vec<Output>,
}

impl Election {
    /// A candidate that will ask at once. The seed makes its chance repeatable.
    pub fn new(settings: Settings, holder: Holder, seed: u64, now: Moment) -> Self {
        let mut rng = Rng::with_seed(seed);
        let attempt = Attempt::first(rng.u64(..));
        Self {
            settings,
            holder,
            rng,
            phase: Phase::Campaigning { ask_at: now },
            pending: None,
            calls: 0,
            attempt,
            unresolved: false,
            failures: 0,
            seen: None,
            runs_out: None,
            resting: None,
            tenures: 0,
            look_again: false,
            stopping: false,
            outputs: Vec::new(),
        }
    }

    /// Takes in what happened and says what is to be done.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Output> {
        // The deadline comes first, whatever else there is: a late answer cannot revive.
        self.check_deadline(now);
        match input {
            Input::Tick => {}
            Input::Answer(id, answer) => self.answered(now, id, answer),
            Input::Notice(notice) => self.noticed(now, notice),
            Input::Resign => self.drain(now, EndReason::Resigned),
            Input::Stop => self.stop(now),
            Input::WorkDone(token) => self.work_done(now, token),
            Input::Progress(at) => {
                if let Phase::Leading(leading) = &mut self.phase {
                    leading.progress_at = leading.progress_at.max(at);
                }
            }
            Input::Told => self.drain(now, EndReason::Expired),
            Input::Overrun => {
                if let Phase::Leading(_) | Phase::Draining(..) = &self.phase {
                    self.end(now, EndReason::Expired);
                }
            }
        }
        self.turn(now);
        std::mem::take(&mut self.outputs)
    }

    /// When [`Input::Tick`] is due, if nothing else happens before.
    pub fn next_wake(&self) -> Option<Moment> {
        let give_up = self.pending.as_ref().map(|pending| pending.give_up_at);
        let idle = self.pending.is_none();
        let phase = match &self.phase {
            Phase::Campaigning { ask_at } => idle.then_some(*ask_at),
            Phase::FindingOut { since, ask_at } => {
                idle.then_some((*ask_at).min(*since + self.settings.timing.call_timeout))
            }
            Phase::Leading(leading) => {
                let renew = idle.then_some(leading.renew_at);
                let stall = self.stalls_at(leading);
                [Some(self.drain_at(leading)), renew, stall]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Phase::Draining(leading, drain) => Some(drain.until.min(leading.deadline)),
            Phase::Releasing(releasing) => idle.then_some(releasing.ask_at.min(releasing.until)),
            Phase::Stopped => None,
        };
        [give_up, phase].into_iter().flatten().min()
    }

    /// Whether the election is over.
    pub fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped)
    }

    // Inputs

    fn check_deadline(&mut self, now: Moment) {
        let reason = match &self.phase {
            Phase::Leading(leading) if now >= leading.deadline => EndReason::Expired,
            Phase::Draining(leading, drain) if now >= leading.deadline => drain.reason.clone(),
            _ => return,
        };
        self.end(now, reason);
    }

    fn drain(&mut self, now: Moment, reason: EndReason) {
        let Phase::Leading(leading) = &self.phase else {
            return;
        };
        let leading = leading.clone();
        let until = leading.deadline.min(now + self.settings.timing.grace);
        self.outputs.push(Output::Drain(reason.clone()));
        self.phase = Phase::Draining(leading, Drain { reason, until });
    }

    fn stop(&mut self, now: Moment) {
        self.stopping = true;
        self.drain(now, EndReason::Stopped);
        // A drain or a release for another reason goes on, and the election stops after it.
    }

    /// Stops a candidate that has no call under way.
    fn stop_campaign(&mut self, now: Moment) {
        if self.unresolved {
            let (since, ask_at) = (now, now);
            self.phase = Phase::FindingOut { since, ask_at };
        } else {
            self.finish();
        }
    }

    fn work_done(&mut self, now: Moment, token: Token) {
        let stopped = self.runs_out.take_if(|lease| lease.token == token);
        if let (Some(lease), Phase::Campaigning { ask_at }) = (stopped, &self.phase) {
            // It took longer than its grace, but now nothing keeps the lease.
            let rest_until = *ask_at;
            self.release(now, lease, rest_until);
            return;
        }
        let Phase::Draining(leading, drain) = &self.phase else {
            return;
        };
        if leading.lease.token != token {
            return; // Work of an earlier tenure that took long to stop.
        }
        let (lease, reason) = (leading.lease.clone(), drain.reason.clone());
        if reason == EndReason::Stopped && !self.settings.release_on_stop {
            self.end(now, reason);
            return;
        }
        let rest_until = now + self.rest_after(&reason);
        self.ended(reason);
        self.release(now, lease, rest_until);
    }

    fn after_release(&mut self, now: Moment) {
        let Phase::Releasing(releasing) = &self.phase else {
            return;
        };
        let ask_at = releasing.rest_until.max(now);
        self.campaign(ask_at);
    }

    fn failed(&mut self, now: Moment, operation: Operation, error: Error) {
        if operation == Operation::Acquire && error.may_have_worked() {
            self.unresolved = true;
        }
        self.outputs.push(Output::Failed(operation, error));
        let wait = self.retry_wait();
        self.failures = self.failures.saturating_add(1);
        match &mut self.phase {
            // A call of the tenure before may fail during a rest: that does not end it.
            Phase::Campaigning { ask_at } => *ask_at = (*ask_at).max(now + wait),
            Phase::FindingOut { ask_at, .. } => *ask_at = now + wait,
            Phase::Leading(leading) => leading.renew_at = now + wait,
            Phase::Releasing(releasing) => releasing.ask_at = now + wait,
            Phase::Draining(..) | Phase::Stopped => {}
        }
    }

    fn worked(&mut self) {
        if self.failures > 0 {
            self.failures = 0;
            self.outputs.push(Output::Recovered);
        }
    }

    // What the passing of time does

    fn turn(&mut self, now: Moment) {
        if let Some(pending) = self.pending.take_if(|pending| now >= pending.give_up_at) {
            let waited = crate::timing::show(now - pending.sent);
            let name = pending.operation.as_str();
            self.outputs
                .push(Output::Abandon(pending.id, pending.operation));
            let error = Error::unavailable(format!(
                "no answer to {name} after {waited}: it may or may not have worked"
            ));
            self.failed(now, pending.operation, error);
        }
        match &self.phase {
            Phase::Leading(leading) if now >= self.drain_at(leading) => {
                self.drain(now, EndReason::Expired);
            }
            Phase::Leading(leading) if self.stalls_at(leading).is_some_and(|at| now >= at) => {
                self.drain(now, EndReason::StalledWork);
            }
            Phase::Draining(_, drain) if now >= drain.until => {
                let reason = drain.reason.clone();
                self.end(now, reason);
            }
            Phase::Releasing(releasing) if now >= releasing.until => self.after_release(now),
            Phase::FindingOut { since, .. }
                if now >= *since + self.settings.timing.call_timeout =>
            {
                self.finish();
            }
            _ => {}
        }
        if self.pending.is_none() {
            self.call_if_due(now);
        }
    }

    fn call_if_due(&mut self, now: Moment) {
        if self.stopping && matches!(self.phase, Phase::Campaigning { .. }) {
            self.stop_campaign(now);
        }
        let key = self.settings.key.clone();
        let (operation, request) = match &self.phase {
            Phase::Campaigning { ask_at } if now >= *ask_at => {
                let request = AcquireRequest {
                    key,
                    holder: self.holder.clone(),
                    ttl: self.settings.timing.ttl,
                    attempt: self.attempt,
                    ended: self.ended_version(now),
                };
                (Operation::Acquire, Request::Acquire(request))
            }
            Phase::Leading(leading) if now >= leading.renew_at => {
                let lease = leading.lease.clone();
                (
                    Operation::Renew,
                    Request::Renew(lease, self.settings.timing.ttl),
                )
            }
            Phase::Releasing(releasing) if now >= releasing.ask_at => (
                Operation::Release,
                Request::Release(releasing.lease.clone()),
            ),
            Phase::FindingOut { ask_at, .. } if now >= *ask_at => {
                (Operation::Read, Request::Read(key))
            }
            _ => return,
        };
        self.calls += 1;
        let id = CallId(self.calls);
        self.pending = Some(Pending {
            id,
            operation,
            sent: now,
            give_up_at: now + self.settings.timing.call_timeout,
        });
        self.outputs.push(Output::Call(id, request));
    }

    /// The version that we have watched for longer than its record's term.
    fn ended_version(&self, now: Moment) -> Option<Version> {
        let seen = self.seen.as_ref()?;
        let term = self.settings.timing.watched_term(seen.ttl);
        (now >= seen.since + term).then(|| seen.version.clone())
    }

    fn drain_at(&self, leading: &Leading) -> Moment {
        leading.deadline.saturating_sub(self.settings.timing.grace)
    }

    fn stalls_at(&self, leading: &Leading) -> Option<Moment> {
        let after = self.settings.stall_after?;
        Some(leading.progress_at + after)
    }

    // Changes of phase

    /// Ends the tenure and goes on without a release: its work may not have stopped, so
    /// the lease is not handed on early but runs out.
    fn end(&mut self, now: Moment, reason: EndReason) {
        let ours = !matches!(
            reason,
            EndReason::Superseded { .. } | EndReason::RecordDeleted
        );
        if let Phase::Leading(leading) | Phase::Draining(leading, _) = &self.phase {
            self.runs_out = ours.then(|| leading.lease.clone());
        }
        let ask_at = now + self.rest_after(&reason);
        self.ended(reason);
        self.campaign(ask_at);
    }

    fn ended(&mut self, reason: EndReason) {
        self.look_again = false;
        self.resting = match &self.phase {
            Phase::Leading(leading) | Phase::Draining(leading, _) if reason.rests() => {
                Some(leading.lease.token)
            }
            _ => None,
        };
        self.outputs.push(Output::End(reason));
    }

    fn rest_after(&mut self, reason: &EndReason) -> Duration {
        if reason.rests() {
            self.settings.rest()
        } else {
            self.chance(self.settings.timing.spread())
        }
    }

    fn release(&mut self, now: Moment, lease: Lease, rest_until: Moment) {
        // One that stops does not wait longer than a call may take.
        let calls = if self.stopping { 1 } else { 2 };
        self.phase = Phase::Releasing(Releasing {
            lease,
            ask_at: now,
            until: now + self.settings.timing.call_timeout * calls,
            rest_until,
        });
    }

    /// Goes on to the next campaign, unless this was to be the last tenure.
    fn campaign(&mut self, ask_at: Moment) {
        self.stopping |= self.settings.once && self.tenures > 0;
        self.phase = Phase::Campaigning { ask_at };
        if self.stopping {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if !matches!(self.phase, Phase::Stopped) {
            if let Some(pending) = self.pending.take() {
                self.outputs
                    .push(Output::Abandon(pending.id, pending.operation));
            }
            self.phase = Phase::Stopped;
            self.outputs.push(Output::Stopped);
        }
    }

    // Chance

    fn renew_at(&mut self, sent: Moment) -> Moment {
        sent + self.shorten(self.settings.timing.renew_every)
    }

    /// An interval less a part of it that chance takes, up to the jitter.
    fn shorten(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(1.0 - self.settings.timing.jitter * self.rng.f64())
    }

    /// A time from zero to `most`.
    fn chance(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.f64())
    }

    /// Exponential backoff with full jitter.
    fn retry_wait(&mut self) -> Duration {
        let timing = self.settings.timing;
        let leading = matches!(self.phase, Phase::Leading(_));
        let most = if leading {
            timing.call_timeout
        } else {
            timing.retry_max()
        };
        let grown = timing
            .retry_first()
            .saturating_mul(1 << self.failures.min(20));
        self.chance(grown.min(most)).max(Duration::from_millis(1))
    }
}
