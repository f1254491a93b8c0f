//! The simulated driver: what `tenure`'s driver does around the election, without tasks.

use std::collections::VecDeque;
use std::time::Duration;

use tenure::election::{Answer, CallId, Election, Input, Operation, Output, Request};
use tenure::{Acquired, EndReason, Lease, Moment, Notice};

use crate::belief::{Belief, Extended};
use crate::checkers::Fact;
use crate::event::{Event, Message, Proof};
use crate::node::{Call, Process};
use crate::phase::Phase;
use crate::planted::Bug;
use crate::world::World;

impl World {
    /// Starts the process of a node, with the holder that it always has.
    pub(crate) fn start(&mut self, n: usize) {
        if self.nodes[n].process.is_some() {
            return;
        }
        let now = self.nodes[n].now(self.now);
        let seed = self.rng.u64(..);
        let holder = self.nodes[n].holder.clone();
        let mut settings = self.settings.clone();
        if self.broken(Bug::ElectorDiesAfterLoss) {
            settings.once = true;
        }
        if self.broken(Bug::RenewalAtTtl) {
            settings.timing.renew_every = settings.timing.ttl;
        }
        if self.broken(Bug::DriftNotSubtracted) || self.broken(Bug::WatchedWithoutDrift) {
            settings.timing.drift = 0.0;
        }
        if self.broken(Bug::PollsTooOften) {
            settings.timing.poll_every /= 5;
        }
        if self.broken(Bug::RestSkipped) {
            settings.rest_after_resign = Some(Duration::ZERO);
        }
        let election = Election::new(settings, holder, seed, Moment::from_nanos(now));
        let node = &mut self.nodes[n];
        node.lives += 1;
        node.paused = false;
        node.resumed_at = now;
        node.process = Some(Process {
            life: node.lives,
            election,
            belief: None,
            ended: None,
            calls: Vec::new(),
            watching: false,
            inbox: Vec::new(),
            wake_at: None,
            wake_number: 0,
            timer_number: 0,
            called_at: self.now,
            called: 0,
            rested_from: None,
            ordered: Default::default(),
            slips: Default::default(),
        });
        self.say(n, || "starts".into());
        self.input(n, Input::Tick, None);
    }

    /// Ends the process at once: nothing is told, nothing is released.
    pub(crate) fn crash(&mut self, n: usize) {
        if let Some(owner) = self.nodes[n].owner(n) {
            self.say(n, || "crashes".into());
            self.nodes[n].process = None;
            self.nodes[n].paused = false;
            self.tell(&Fact::Crashed { owner });
        }
    }

    /// One turn of the driver: an input, and whatever follows from it.
    pub(crate) fn input(&mut self, n: usize, input: Input, proof: Option<Proof>) {
        self.input_at(n, self.nodes[n].now(self.now), input, proof);
    }

    pub(crate) fn input_at(&mut self, n: usize, now: u64, input: Input, proof: Option<Proof>) {
        let mut inputs = VecDeque::from([(input, proof)]);
        let Some(process) = &self.nodes[n].process else {
            return;
        };
        if process.slips.dead {
            return;
        }
        if let Some(belief) = &process.belief {
            let progress = Input::Progress(Moment::from_nanos(belief.progress_at));
            inputs.push_front((progress, None));
        }
        while let Some((input, proof)) = inputs.pop_front() {
            let Some(process) = &mut self.nodes[n].process else {
                return;
            };
            for output in process.election.step(Moment::from_nanos(now), input) {
                let next = self.perform(n, now, output, proof);
                inputs.extend(next.map(|input| (input, None)));
            }
        }
        self.schedule(n);
    }

    /// Plans the next wake-up and the next timer of a node's process.
    pub(crate) fn schedule(&mut self, n: usize) {
        let at = self.now;
        let node = &mut self.nodes[n];
        let Some(owner) = node.owner(n) else { return };
        let Some(process) = &mut node.process else {
            return;
        };
        let wake = process.election.next_wake().map(Moment::as_nanos);
        let wake = wake
            .and_then(|local| node.clock.reaches(local))
            .map(|t| t.max(at));
        if wake != process.wake_at || wake.is_none() {
            process.wake_number += 1;
            process.wake_at = wake;
            if let Some(time) = wake {
                let number = process.wake_number;
                self.queue.push(time, Event::Wake { owner, number });
            }
        }
        let beliefs = [&process.belief, &process.ended];
        let timers = beliefs.into_iter().flatten().filter_map(Belief::timer_at);
        let timer = timers.filter_map(|local| node.clock.reaches(local)).min();
        process.timer_number += 1;
        if let Some(time) = timer {
            let number = process.timer_number;
            self.queue
                .push(time.max(at), Event::Timer { owner, number });
        }
    }

    fn perform(
        &mut self,
        n: usize,
        now: u64,
        output: Output,
        proof: Option<Proof>,
    ) -> Option<Input> {
        match output {
            Output::Call(id, request) => self.call(n, now, id, request),
            Output::Abandon(id, operation) => return self.abandon(n, id, operation),
            Output::Begin { lease, deadline } => {
                self.begin(n, now, &lease, deadline.as_nanos(), proof);
            }
            Output::Extend { deadline } => return self.extend(n, now, deadline.as_nanos(), proof),
            Output::Drain(reason) => return self.drain(n, now, &reason),
            Output::End(reason) => return self.end(n, now, reason),
            Output::Following(lease) => {
                self.say(n, || {
                    format!("follows {} with token {}", lease.holder, lease.token)
                });
                self.start_watching(n);
            }
            Output::Failed(operation, error) => {
                self.say(n, || format!("{} failed: {error}", operation.as_str()));
                if operation == Operation::Acquire && self.broken(Bug::FollowerNeverRetries) {
                    self.slips(n).dead = true;
                }
            }
            Output::Recovered => self.say(n, || "the store answers again".into()),
            Output::Stopped => {
                self.say(n, || "stopped".into());
                let process = self.nodes[n].process.take();
                let ordered = process.is_some_and(|process| process.ordered.stop);
                if ordered && self.phase == Phase::Healing {
                    // It was stopped by a fault, and those have ended.
                    self.queue.push(self.now + 1_000_000, Event::Start(n));
                }
            }
        }
        None
    }

    fn begin(&mut self, n: usize, now: u64, lease: &Lease, deadline: u64, proof: Option<Proof>) {
        let Some(owner) = self.nodes[n].owner(n) else {
            return;
        };
        let token = lease.token;
        let deadline = self.counted_from(now, deadline);
        let work = self.new_work();
        let sent = proof.map_or(self.now, |proof| proof.sent);
        let belief = Belief {
            token,
            deadline,
            cut_off_at: deadline,
            grace: if self.broken(Bug::WorkToldAtDeadline) {
                0
            } else {
                self.grace()
            },
            told_at: None,
            work,
            progress_at: now,
            confirmed_sent: sent,
        };
        self.say(n, || {
            let left = Duration::from_nanos(deadline.saturating_sub(now));
            format!("LEADS with token {token}, for {left:.3?} if no renewal comes")
        });
        self.count.tenures += 1;
        if let Some(process) = &mut self.nodes[n].process {
            process.belief = Some(belief);
            process.slips.failures = 0;
        }
        let work_at = self.now + self.rng.u64(0..self.ttl() / 3);
        self.queue.push(work_at, Event::Check { owner, token });
        self.tell(&Fact::Began {
            owner,
            token,
            deadline,
            proof,
        });
    }

    fn extend(&mut self, n: usize, now: u64, to: u64, proof: Option<Proof>) -> Option<Input> {
        let owner = self.nodes[n].owner(n)?;
        let to = self.counted_from(now, to);
        let even_late = self.broken(Bug::ExtensionAfterDeadline);
        let at = self.now;
        let clock_now = self.nodes[n].now(at);
        let belief = self.nodes[n].process.as_mut()?.belief.as_mut()?;
        let was_valid = belief.is_valid(clock_now);
        match belief.extend(clock_now, to, even_late) {
            Extended::Moved => {}
            Extended::Overrun => return Some(Input::Overrun),
            Extended::Told => return Some(Input::Told),
        }
        let token = belief.token;
        belief.confirmed_sent = proof.map_or(at, |proof| proof.sent);
        self.say(n, || {
            let left = Duration::from_nanos(to.saturating_sub(now));
            format!("renewed, leads for {left:.3?}")
        });
        self.start_watching(n);
        self.tell(&Fact::Extended {
            owner,
            token,
            deadline: to,
            was_valid,
            proof,
        });
        None
    }

    fn drain(&mut self, n: usize, now: u64, reason: &EndReason) -> Option<Input> {
        if self.broken(Bug::WorkToldAtDeadline) {
            return None;
        }
        let owner = self.nodes[n].owner(n)?;
        let token = self.nodes[n].process.as_ref()?.belief.as_ref()?.token;
        self.say(n, || format!("work is told to stop: {reason}"));
        let idle = self.tell_work(owner, token, now);
        (idle || self.broken(Bug::ReleaseWhileWorkRuns)).then_some(Input::WorkDone(token))
    }

    fn end(&mut self, n: usize, now: u64, reason: EndReason) -> Option<Input> {
        if self.broken(Bug::EndSwallowed) {
            return None;
        }
        let owner = self.nodes[n].owner(n)?;
        let process = self.nodes[n].process.as_mut()?;
        let belief = process.belief.as_ref()?;
        let token = belief.token;
        let rests = matches!(
            reason,
            EndReason::Resigned | EndReason::AskedToStepDown | EndReason::StalledWork
        );
        if rests {
            process.rested_from = Some(self.now);
        }
        self.say(n, || format!("LEADS NO MORE with token {token}: {reason}"));
        self.tell(&Fact::Ended {
            owner,
            token,
            reason,
        });
        let idle = self.tell_work(owner, token, now);
        let process = self.nodes[n].process.as_mut()?;
        let mut belief = process.belief.take()?;
        belief.end();
        if idle {
            return Some(Input::WorkDone(token));
        }
        process.ended = Some(belief);
        None
    }

    fn start_watching(&mut self, n: usize) {
        let at = self.now;
        let Some(owner) = self.nodes[n].owner(n) else {
            return;
        };
        let leads = self.nodes[n].leads(at).is_some();
        let Some(process) = &mut self.nodes[n].process else {
            return;
        };
        if self.watches && !process.watching {
            process.watching = true;
            if !leads {
                let event = Event::Notice(owner, Box::new(Notice::Look));
                self.queue.push(at + 1_000_000, event);
            }
        }
    }

    // Store calls

    fn call(&mut self, n: usize, now: u64, id: CallId, mut request: Request) {
        let Some(owner) = self.nodes[n].owner(n) else {
            return;
        };
        let operation = operation(&request);
        if let Request::Acquire(request) = &mut request {
            self.slip_into(n, request);
        }
        let at = self.now;
        let wall_us = self.nodes[n].clock.wall_us(at);
        if let Some(process) = &mut self.nodes[n].process {
            process.called_at = at;
            process.called += 1;
            let given_up = false;
            process.calls.push(Call {
                id,
                operation,
                sent_local: now,
                given_up,
            });
        }
        self.say(n, || format!("→ {} (call {})", operation.as_str(), id.0));
        if operation == Operation::Release && self.broken(Bug::ReleaseForgotten) {
            return;
        }
        self.send(Message {
            from: owner,
            call: id,
            request,
            sent: at,
            sent_local: now,
            wall_us,
            fate: crate::event::Fate::Well,
            copy: false,
        });
    }

    fn abandon(&mut self, n: usize, id: CallId, operation: Operation) -> Option<Input> {
        self.say(n, || format!("gives up call {}", id.0));
        let keep = self.broken(Bug::LateAnswerBelieved);
        let process = self.nodes[n].process.as_mut()?;
        if keep {
            let call = process.calls.iter_mut().find(|call| call.id == id);
            call?.given_up = true;
        } else {
            process.calls.retain(|call| call.id != id);
        }
        let lost = operation == Operation::Renew && self.broken(Bug::RenewTimeoutIsLoss);
        lost.then_some(Input::Overrun)
    }

    /// An answer has come to a process that runs.
    pub(crate) fn answered(&mut self, n: usize, id: CallId, answer: Answer, proof: Proof) {
        let Some(process) = &mut self.nodes[n].process else {
            return;
        };
        let Some(place) = process.calls.iter().position(|call| call.id == id) else {
            return; // It was given up, and nobody waits for it.
        };
        let call = process.calls.remove(place);
        let mut id = id;
        if call.given_up {
            let same = |c: &&Call| !c.given_up && c.operation == call.operation;
            let Some(place) = process.calls.iter().position(|c| same(&c)) else {
                return;
            };
            id = process.calls.remove(place).id;
        }
        self.say(n, || {
            format!(
                "← {} (call {})",
                crate::timeline::answer(&answer),
                call.id.0
            )
        });
        let answer = self.slip_out(n, answer);
        let mut now = self.nodes[n].now(self.now);
        if self.broken(Bug::WatchedSinceSending)
            && matches!(answer, Answer::Acquire(Ok(Acquired::Held(_))))
        {
            now = call.sent_local;
        }
        self.input_at(n, now, Input::Answer(id, answer), Some(proof));
    }

    pub(crate) fn grace(&self) -> u64 {
        self.settings.timing.grace.as_nanos() as u64
    }

    pub(crate) fn ttl(&self) -> u64 {
        self.settings.timing.ttl.as_nanos() as u64
    }
}

pub(crate) fn operation(request: &Request) -> Operation {
    match request {
        Request::Acquire(_) => Operation::Acquire,
        Request::Renew(..) => Operation::Renew,
        Request::Release(_) => Operation::Release,
        Request::Read(_) => Operation::Read,
    }
}
