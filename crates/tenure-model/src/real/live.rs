//! The world around two real elections: clocks, requests under way, who believes.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::election::{Answer, CallId, Election, Input, Output, Request};
use tenure::{
    Acquired, Holder, Key, Lease, ManualClock, MemoryStore, Moment, Settings, Store, Timing, Token,
};

use super::text::{Frame, TICK, relative};
use super::{Real, RealBreak, Step, View};
use crate::world::Wrong;

const KEY: &str = "k";
/// The ttl in ticks; one of them is the drift bound.
const TTL: u64 = 3;

pub(super) struct Live {
    bounds: Real,
    clock: ManualClock,
    store: MemoryStore,
    nodes: [LiveNode; 2],
    late: Vec<(usize, Request)>,
    /// The tokens of all tenures, in the order in which they were granted.
    granted: Vec<Token>,
    crashes: u8,
    wrong: Wrong,
}

struct LiveNode {
    election: Election,
    now: Moment,
    pace: Pace,
    /// True ticks until its clock may gain or lose another tick.
    steady: u64,
    pending: Option<Call>,
    belief: Option<Belief>,
    /// The latest of its tenures that has ended.
    ended: Option<Token>,
    /// The tenure whose work has been told to stop.
    told: Option<Token>,
    lives: u64,
}

/// Whether a node's clock loses or gains ticks. The worst is one that leads too long and
/// one that is too early, so no clock does both.
#[derive(Clone, Copy)]
enum Pace {
    Slow,
    Fast,
}

struct Call {
    id: CallId,
    request: Request,
    answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug)]
struct Belief {
    token: Token,
    deadline: Moment,
}

/// The settings of both nodes, checked once: the world is built millions of times.
fn settings(at: usize) -> &'static Settings {
    static BOTH: OnceLock<[Settings; 2]> = OnceLock::new();
    &BOTH.get_or_init(|| ["a", "b"].map(make_settings))[at]
}

/// Timings whose chance always ends at the next tick: no jitter, and no wait longer than one.
fn make_settings(name: &str) -> Settings {
    let holder = Holder::new(name).expect("the holder is a good one");
    let tick = Duration::from_nanos(TICK);
    let timing = Timing {
        ttl: tick * TTL as u32,
        renew_every: tick / 2,
        call_timeout: tick / 2,
        grace: Duration::ZERO,
        poll_every: tick,
        drift: 1.0 / TTL as f64,
        jitter: 0.0,
    };
    let mut settings = Settings::new(KEY)
        .expect("the key is a good one")
        .holder(holder)
        .timing(timing);
    settings.rest_after_resign = Some(tick);
    settings.check().expect("the timing holds");
    settings
}

fn elect(at: usize, seed: u64, now: Moment) -> Election {
    let settings = settings(at).clone();
    let holder = settings.holder.clone().expect("it has one");
    Election::new(settings, holder, seed, now)
}

impl Live {
    pub(super) fn new(bounds: Real) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn tenure::Clock> = Arc::new(clock.clone());
        let store = if bounds.own_clock {
            MemoryStore::with_clock(shared)
        } else {
            MemoryStore::watched_with_clock(shared)
        };
        let node = |at: usize, pace: Pace| {
            let seed = at as u64 + 1;
            // Clocks may show anything.
            let now = Moment::from_nanos(seed * 1_000 * TICK);
            LiveNode {
                election: elect(at, seed, now),
                now,
                pace,
                steady: 0,
                pending: None,
                belief: None,
                ended: None,
                told: None,
                lives: 0,
            }
        };
        Self {
            bounds,
            clock,
            store,
            nodes: [node(0, Pace::Slow), node(1, Pace::Fast)],
            late: Vec::new(),
            granted: Vec::new(),
            crashes: bounds.crashes,
            wrong: Wrong::default(),
        }
    }

    /// What can happen next.
    pub(super) fn next(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for first in self.nodes[0].paces(&self.bounds) {
            for second in self.nodes[1].paces(&self.bounds) {
                steps.push(Step::Tick([*first, *second]));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if node
                .election
                .next_wake()
                .is_some_and(|wake| wake <= node.now)
            {
                steps.push(Step::Wake(at));
            }
            match &node.pending {
                Some(Call { answer: None, .. }) => {
                    for doubled in [false, true] {
                        steps.push(Step::Reach { node: at, doubled });
                    }
                }
                Some(_) => steps.push(Step::Receive(at)),
                None => {}
            }
            if self.bounds.resigns && node.belief.is_some() && node.told.is_none() {
                steps.push(Step::Resign(at));
            }
            if node.told.is_some() {
                steps.push(Step::WorkDone(at));
            }
            if self.crashes > 0 {
                steps.push(Step::Crash(at));
            }
        }
        steps.extend((0..self.late.len()).map(Step::ReachLate));
        steps
    }

    /// Takes a step; false if it leads out of the bounds or nowhere.
    pub(super) fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Tick(paces) => {
                self.clock.advance(Duration::from_nanos(TICK));
                for (node, pace) in self.nodes.iter_mut().zip(paces) {
                    node.tick(pace);
                }
            }
            Step::Wake(at) => self.feed(at, Input::Tick),
            Step::Resign(at) => self.feed(at, Input::Resign),
            Step::WorkDone(at) => match self.nodes[at].told.take() {
                Some(token) => self.feed(at, Input::WorkDone(token)),
                None => return false,
            },
            Step::Crash(at) => self.crash(at),
            Step::Reach { node, doubled } => return self.reach(node, doubled),
            Step::ReachLate(place) => {
                let (node, request) = self.late.remove(place);
                let answer = self.execute(&request);
                if self.bounds.broken == Some(RealBreak::AnswersMixedUp)
                    && let Some(call) = &mut self.nodes[node].pending
                {
                    call.answer = Some(answer);
                }
            }
            Step::Receive(at) => match self.nodes[at].pending.take() {
                Some(Call {
                    id,
                    answer: Some(answer),
                    ..
                }) => self.feed(at, Input::Answer(id, answer)),
                _ => return false,
            },
        }
        self.granted.len() <= self.bounds.tenures
    }

    fn crash(&mut self, at: usize) {
        self.crashes -= 1;
        let node = &mut self.nodes[at];
        node.lives += 1;
        let seed = at as u64 + 1 + 10 * node.lives;
        node.election = elect(at, seed, node.now);
        node.end();
        node.told = None;
        if let Some(call) = node.pending.take()
            && call.answer.is_none()
        {
            self.leave(at, call.request);
        }
    }

    fn reach(&mut self, at: usize, doubled: bool) -> bool {
        let Some(call) = &self.nodes[at].pending else {
            return false;
        };
        let request = call.request.clone();
        if doubled && !self.leave(at, request.clone()) {
            return false;
        }
        let answer = self.execute(&request);
        if let Some(call) = &mut self.nodes[at].pending {
            call.answer = Some(answer);
        }
        true
    }

    /// Leaves a request under way. Says no if there is no room: then it is lost.
    fn leave(&mut self, at: usize, request: Request) -> bool {
        let room = self.late.len() < self.bounds.late;
        if room {
            self.late.push((at, request));
        }
        room
    }

    /// Gives an election an input and does what it says, as the driver does.
    fn feed(&mut self, at: usize, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = self.nodes[at].now;
            for output in self.nodes[at].election.step(now, input) {
                inputs.extend(self.act(at, output));
            }
        }
    }

    fn act(&mut self, at: usize, output: Output) -> Option<Input> {
        let node = &mut self.nodes[at];
        match output {
            Output::Call(id, request) => {
                node.pending = Some(Call {
                    id,
                    request,
                    answer: None,
                });
            }
            Output::Abandon(..) => {
                if let Some(call) = node.pending.take()
                    && call.answer.is_none()
                {
                    self.leave(at, call.request);
                }
            }
            Output::Begin { lease, deadline } => {
                let token = lease.token;
                self.wrong.revived |= node.ended.is_some_and(|ended| token <= ended);
                node.belief = Some(Belief { token, deadline });
                node.told = None;
            }
            Output::Extend { deadline } => match &mut node.belief {
                Some(belief) if node.now < belief.deadline => belief.deadline = deadline,
                _ => return Some(Input::Overrun),
            },
            Output::Drain(_) => node.told = node.belief.map(|belief| belief.token),
            Output::End(_) => {
                node.told = node.belief.map(|belief| belief.token).or(node.told);
                node.end();
            }
            _ => {}
        }
        None
    }

    // The store

    fn read(&self) -> Option<Lease> {
        let key = Key::new(KEY).expect("the key is a good one");
        at_once(self.store.read(&key)).expect("the in-memory store does not fail")
    }

    fn execute(&mut self, request: &Request) -> Answer {
        let before = self.read();
        match request {
            Request::Acquire(request) => {
                let answer = at_once(self.store.acquire(request));
                if let Ok(Acquired::Granted(lease)) = &answer {
                    self.note_grant(lease.token);
                }
                Answer::Acquire(answer)
            }
            Request::Renew(lease, ttl) => {
                let answer = at_once(self.store.renew(lease, *ttl));
                self.note_touch(before, lease.token);
                Answer::Renew(answer)
            }
            Request::Release(lease) => {
                let answer = at_once(self.store.release(lease));
                self.note_touch(before, lease.token);
                Answer::Release(answer)
            }
            Request::Read(key) => Answer::Read(at_once(self.store.read(key))),
        }
    }

    fn note_grant(&mut self, token: Token) {
        if !self.granted.contains(&token) {
            self.wrong.token |= self.granted.iter().any(|earlier| *earlier >= token);
            self.granted.push(token);
        }
    }

    fn note_touch(&mut self, before: Option<Lease>, named: Token) {
        let another = before.as_ref().is_some_and(|lease| lease.token != named);
        self.wrong.touched |= another && before != self.read();
    }

    // What is to be seen

    pub(super) fn view(&self) -> View {
        let record = self.read();
        let valid: Vec<Token> = self.nodes.iter().filter_map(LiveNode::valid).collect();
        let has = record.as_ref().map(|lease| lease.token);
        let old = |named: Token| has.is_some_and(|present| named < present);
        View {
            valid: valid.len(),
            backed: valid.iter().all(|token| has == Some(*token)),
            succeeded: self.nodes.iter().any(|node| {
                let had = node.ended.or(node.belief.map(|belief| belief.token));
                had.is_some_and(|had| valid.iter().any(|token| *token > had))
            }),
            late_meets_successor: self.late.iter().any(|(_, request)| match request {
                Request::Renew(lease, _) | Request::Release(lease) => old(lease.token),
                Request::Acquire(_) | Request::Read(_) => false,
            }),
            wrong: self.wrong,
        }
    }

    /// A number that is the same for states that no future can tell apart.
    pub(super) fn print(&self) -> u64 {
        let record = self.read();
        let version = record.as_ref().map(|lease| lease.version.as_str());
        let frame = |node: &LiveNode| Frame {
            now: node.now,
            version,
            granted: &self.granted,
            past: TTL as i64 + 1,
            watched: !self.bounds.own_clock,
        };
        let mut hasher = DefaultHasher::new();
        let mut add =
            |text: String, node: &LiveNode| relative(&text, &frame(node)).hash(&mut hasher);
        for node in &self.nodes {
            add(format!("{:?}", node.election), node);
            let call = node
                .pending
                .as_ref()
                .map(|call| (&call.request, &call.answer));
            let belief = node.belief.filter(|_| node.valid().is_some());
            add(format!("{call:?} {belief:?} {:?}", node.ended), node);
            add(
                format!("{:?} {} {}", node.told, node.steady, node.lives),
                node,
            );
        }
        let any = &self.nodes[0];
        let mut late: Vec<String> = self
            .late
            .iter()
            .map(|(at, request)| relative(&format!("{at} {request:?}"), &frame(any)))
            .collect();
        late.sort_unstable();
        add(format!("{late:?}"), any);
        add(format!("{record:?}"), any);
        let rest = record.and_then(|lease| lease.rest);
        (rest, self.crashes, self.granted.len()).hash(&mut hasher);
        format!("{:?}", self.wrong).hash(&mut hasher);
        hasher.finish()
    }
}

impl LiveNode {
    fn valid(&self) -> Option<Token> {
        let belief = self.belief?;
        (self.now < belief.deadline).then_some(belief.token)
    }

    fn end(&mut self) {
        if let Some(belief) = self.belief.take() {
            self.ended = Some(belief.token);
        }
    }

    fn paces(&self, bounds: &Real) -> &'static [u8] {
        let free = bounds.broken == Some(RealBreak::ClocksBeyondBound);
        match self.pace {
            _ if !bounds.drift || (self.steady > 0 && !free) => &[1],
            Pace::Slow => &[1, 0],
            Pace::Fast => &[1, 2],
        }
    }

    fn tick(&mut self, pace: u8) {
        self.steady = self.steady.saturating_sub(1);
        if pace != 1 {
            self.steady = TTL - 1;
        }
        self.now = self.now + Duration::from_nanos(u64::from(pace) * TICK);
    }
}

/// The in-memory store never waits for anything.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the in-memory store never waits"),
    }
}
