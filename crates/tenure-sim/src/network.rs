//! The simulated network: requests, answers and notices that come late, twice or never.

use tenure::election::{Answer, Operation, Request};
use tenure::{Acquired, Error, Notice};

use crate::driver::operation;
use crate::event::{Event, Fate, Message, Owner, Proof, Reply};
use crate::node::Waiting;
use crate::phase::Phase;
use crate::planted::Bug;
use crate::world::World;

/// What goes wrong at present, as parts of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) loss: f64,
    pub(crate) slow: f64,
    /// Requests of which a copy arrives much later.
    pub(crate) copies: f64,
    /// Answers of the store that say try again: before or after it did what was asked.
    pub(crate) errors: f64,
    pub(crate) stale: f64,
    pub(crate) notices_lost: f64,
    pub(crate) notices_twice: f64,
    pub(crate) notices_for_nothing: f64,
    pub(crate) store_down: bool,
}

impl World {
    fn chance(&mut self, part: f64) -> bool {
        part > 0.0 && self.rng.f64() < part
    }

    /// One way through the network.
    fn latency(&mut self) -> u64 {
        let healthy = self.rng.u64(self.latency_max / 8..=self.latency_max);
        let slow = self.weather.slow;
        if self.chance(slow) {
            let timeout = self.settings.timing.call_timeout.as_nanos() as u64;
            return healthy + self.rng.u64(0..timeout * 3);
        }
        healthy
    }

    /// Sends a request, whatever becomes of it.
    pub(crate) fn send(&mut self, mut message: Message) {
        let n = message.from.node;
        self.slip_timeout(&message);
        message.fate = self.fate_of(&message);
        if message.fate != Fate::Well {
            self.say(n, || format!("  (it goes wrong: {:?})", message.fate));
        }
        let way = self.nodes[n].way_there;
        let loss = self.weather.loss;
        if !way || self.chance(loss) || message.fate == Fate::RequestLost {
            self.lose(&message);
            return;
        }
        let copies = self.weather.copies;
        if self.chance(copies) {
            let late = self.now + self.latency() + self.rng.u64(0..2 * self.ttl());
            let copy = Message {
                copy: true,
                ..message.clone()
            };
            self.queue.push(late, Event::Request(Box::new(copy)));
        }
        let mut latency = self.latency();
        if message.fate == Fate::Hangs {
            latency += self.settings.timing.call_timeout.as_nanos() as u64;
        }
        self.queue
            .push(self.now + latency, Event::Request(Box::new(message)));
    }

    fn fate_of(&mut self, message: &Message) -> Fate {
        let renews = operation(&message.request) == Operation::Renew;
        let leads = self.nodes[message.from.node].believes(self.now);
        if self.armed && renews && leads && self.phase == Phase::OneFault {
            self.armed = false;
            self.count.faults += 1;
            let fates = [
                Fate::RequestLost,
                Fate::AnswerLost,
                Fate::Hangs,
                Fate::ErrorBefore,
                Fate::ErrorAfter,
            ];
            return fates[self.rng.usize(0..fates.len())];
        }
        Fate::Well
    }

    /// A request that never arrives: silence, or a refused connection.
    fn lose(&mut self, message: &Message) {
        if message.fate != Fate::RequestLost && self.rng.f64() < 0.3 {
            let error = Error::unreachable("connection refused");
            let after = self.latency();
            self.reply(message, failure(&message.request, error), None, after);
        }
    }

    /// A request has reached the store.
    pub(crate) fn arrive(&mut self, message: &Message) {
        let n = message.from.node;
        if self.weather.store_down {
            if !message.copy {
                self.lose(message);
            }
            return;
        }
        let errors = self.weather.errors;
        let error = self.chance(errors);
        let before = self.rng.bool();
        if message.fate == Fate::ErrorBefore || (error && before) {
            let text = if self.rng.bool() {
                "503 try again"
            } else {
                "409 conflict"
            };
            let answer = failure(&message.request, Error::unavailable(text));
            self.answer_back(message, answer, None);
            return;
        }
        let stale = self.weather.stale;
        self.store.stale = self.chance(stale);
        let (mut answer, confirms) = self.store.apply(self.now, message);
        self.store.stale = false;
        if self.tracing() {
            let what = crate::timeline::answer(&answer);
            let copy = if message.copy { ", a late copy" } else { "" };
            self.say_store(|| format!("call {} of node {n}{copy}: {what}", message.call.0));
        }
        self.after_deeds();
        let mut fate = message.fate;
        let granted = matches!(answer, Answer::Acquire(Ok(Acquired::Granted(_))));
        if granted && self.armed && self.phase == Phase::LostGrant && !message.copy {
            self.armed = false;
            self.count.faults += 1;
            fate = Fate::AnswerLost;
            self.say(n, || "  (the answer to this grant is lost)".into());
            if let Some(token) = confirms {
                let due = self.now + self.found_again_after();
                let owner = message.from;
                self.queue.push(due, Event::FoundAgain { owner, token });
                if self.nodes.len() > 2 && self.rng.f64() < 0.3 {
                    self.stopped_unaware = Some(owner);
                    self.queue.push(self.now + 1, Event::StopNow(n));
                }
            }
        }
        if fate == Fate::ErrorAfter || (error && !before) {
            answer = failure(
                &message.request,
                Error::unavailable("504 no answer in time"),
            );
            self.answer_back(message, answer, None);
            return;
        }
        if fate != Fate::AnswerLost {
            self.answer_back(message, answer, confirms);
        }
    }

    fn answer_back(&mut self, message: &Message, answer: Answer, confirms: Option<tenure::Token>) {
        let loss = self.weather.loss;
        if message.copy || !self.nodes[message.from.node].way_back || self.chance(loss) {
            return;
        }
        let after = self.latency();
        self.reply(message, answer, confirms, after);
    }

    fn reply(
        &mut self,
        message: &Message,
        answer: Answer,
        confirms: Option<tenure::Token>,
        after: u64,
    ) {
        let stamp = self.store.record.as_ref().map(|record| {
            let version = tenure::Version::new(record.version.to_string());
            (version, record.wall_us, record.ttl.as_micros() as u64)
        });
        let reply = Reply {
            to: message.from,
            call: message.call,
            answer,
            proof: Proof {
                confirms,
                sent: message.sent,
                sent_local: message.sent_local,
            },
            stamp,
        };
        self.queue
            .push(self.now + after, Event::Reply(Box::new(reply)));
    }

    /// An answer has come to where it was asked for.
    pub(crate) fn come(&mut self, reply: Reply) {
        let n = reply.to.node;
        if self.broken(Bug::WallClocksCompared)
            && let Some(process) = &mut self.nodes[n].process
        {
            process.slips.stamp = reply.stamp;
        }
        let now = self.nodes[n].now(self.now);
        let waiting = Waiting::Answer(reply.call, reply.answer, reply.proof, now);
        self.hand_to(reply.to, waiting);
    }

    // Pushed changes

    /// Sends what the store pushes to all who watch.
    pub(crate) fn push_notices(&mut self) {
        let pushed = std::mem::take(&mut self.store.pushed);
        if !self.watches {
            return;
        }
        for notice in pushed {
            for n in 0..self.nodes.len() {
                let node = &self.nodes[n];
                let watching = node.process.as_ref().is_some_and(|p| p.watching);
                if let (true, true, Some(owner)) = (watching, node.way_back, node.owner(n)) {
                    self.push_notice(owner, &notice);
                }
            }
        }
    }

    fn push_notice(&mut self, owner: Owner, notice: &Notice) {
        let weather = self.weather.clone();
        if !self.chance(weather.notices_lost) {
            let at = self.now + self.latency();
            self.queue
                .push(at, Event::Notice(owner, Box::new(notice.clone())));
        }
        if self.chance(weather.notices_twice) {
            let at = self.now + self.latency() + self.rng.u64(0..self.ttl());
            self.queue
                .push(at, Event::Notice(owner, Box::new(notice.clone())));
        }
        if self.chance(weather.notices_for_nothing) {
            let at = self.now + self.latency() + self.rng.u64(0..self.ttl());
            let nothing = if self.rng.bool() {
                Notice::Look
            } else {
                Notice::Free
            };
            self.queue.push(at, Event::Notice(owner, Box::new(nothing)));
        }
    }

    /// For the planted bugs that make something of a timeout, the driver has its own.
    fn slip_timeout(&mut self, message: &Message) {
        let own_timeout = [
            Bug::RenewTimeoutIsSuccess,
            Bug::AcquireTimeoutIsSuccess,
            Bug::OutageIsPermission,
        ];
        if own_timeout.iter().any(|bug| self.broken(*bug)) {
            let after = self.settings.timing.call_timeout.as_nanos() as u64 / 10 * 9;
            let answer = failure(&message.request, Error::unavailable("no answer in time"));
            self.reply(message, answer, None, after);
        }
    }
}

fn failure(request: &Request, error: Error) -> Answer {
    match request {
        Request::Acquire(_) => Answer::Acquire(Err(error)),
        Request::Renew(..) => Answer::Renew(Err(error)),
        Request::Release(_) => Answer::Release(Err(error)),
        Request::Read(_) => Answer::Read(Err(error)),
    }
}
