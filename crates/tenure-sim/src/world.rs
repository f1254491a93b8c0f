//! The simulated world: true time, everything in it, and the loop that lets it run.

use std::time::Duration;

use fastrand::Rng;
use tenure::election::Input;
use tenure::{Holder, Key, Settings, Timing, TimingSum};

use crate::checkers::{self, Checker, Fact};
use crate::clock::{self, SimClock};
use crate::event::{Event, Owner, Queue};
use crate::faults::Fault;
use crate::network::Weather;
use crate::node::{Node, Waiting};
use crate::phase::Phase;
use crate::planted::Bug;
use crate::profile::Profile;
use crate::report::{Count, Violation};
use crate::resource::Resource;
use crate::store::{Kind, Store};
use crate::timeline::{Timeline, Trace};

/// More events than any run needs: beyond it the run goes in circles.
const EVENTS_MAX: u64 = 3_000_000;

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) queue: Queue,
    pub(crate) profile: &'static Profile,
    pub(crate) bug: Option<Bug>,
    pub(crate) settings: Settings,
    pub(crate) sum: TimingSum,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Store,
    pub(crate) resource: Resource,
    pub(crate) weather: Weather,
    /// The longest way through a healthy network, one way.
    pub(crate) latency_max: u64,
    /// Whether the store pushes changes.
    pub(crate) watches: bool,
    pub(crate) phase: Phase,
    pub(crate) phase_began: u64,
    pub(crate) faults: Vec<Fault>,
    /// The next fitting call goes wrong.
    pub(crate) armed: bool,
    /// When the store last did what it may not do.
    pub(crate) last_breach: Option<u64>,
    pub(crate) step_down_asked: bool,
    /// Who was told to go last.
    pub(crate) resigned: Option<usize>,
    /// Who was stopped without knowing that it had been granted the lease.
    pub(crate) stopped_unaware: Option<Owner>,
    pub(crate) checkers: Vec<Box<dyn Checker>>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) timeline: Timeline,
    pub(crate) count: Count,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        profile: &'static Profile,
        bug: Option<Bug>,
        trace: Trace,
    ) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x7465_6e75_7265);
        let kinds = [Kind::Clocked, Kind::Watched];
        let kind = profile.kind.unwrap_or(kinds[rng.usize(0..2)]);
        let (settings, sum) = draw_settings(&mut rng);
        let timeout = settings.timing.call_timeout.as_nanos() as u64;
        // A healthy round trip takes at most half of what one call may take.
        let mut latency_max = timeout / [400, 40, 8, 4][rng.usize(0..4)];
        if profile.slow {
            // An answer is just in time, by the fastest clock that the bound allows.
            let by_fast_clock = timeout as f64 * (1.0 - settings.timing.drift);
            latency_max = (by_fast_clock * 0.49) as u64;
        }
        let store = Store {
            kind,
            key: settings.key.clone(),
            clock: SimClock::new(draw_local(&mut rng), clock::rate(1.0)),
            record: None,
            past: Vec::new(),
            revision: rng.u64(0..1_000),
            revision_rolls_back: rng.bool(),
            late: 0,
            stale: false,
            only_says_look: profile.vague,
            deeds: Vec::new(),
            pushed: Vec::new(),
            bug,
        };
        let mut resource = Resource::default();
        resource.bug = bug;
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            profile,
            bug,
            settings,
            sum,
            nodes: Vec::new(),
            store,
            resource,
            weather: Weather::default(),
            latency_max: latency_max.max(8),
            watches: rng.f64() < 0.6 || profile.vague || bug.is_some_and(Bug::needs_notices),
            phase: Phase::Chaos,
            phase_began: 0,
            faults: Vec::new(),
            armed: false,
            last_breach: None,
            step_down_asked: false,
            resigned: None,
            stopped_unaware: None,
            checkers: checkers::of(profile),
            violations: Vec::new(),
            timeline: Timeline::new(trace),
            count: Count::default(),
            rng,
        };
        world.make_nodes();
        world
    }

    fn make_nodes(&mut self) {
        let rate = self.draw_rate(self.profile.drift);
        self.store.clock.set_rate(0, rate);
        let count = [2, 3, 3, 3, 5][self.rng.usize(0..5)];
        for n in 0..count {
            let rate = self.draw_rate(self.profile.drift);
            let mut clock = SimClock::new(draw_local(&mut self.rng), rate);
            clock.by_wall = self.broken(Bug::WallClockTrusted);
            self.nodes.push(Node {
                // Short plain names are always good holders.
                holder: Holder::new(format!("node-{n}")).expect("a good name"),
                clock,
                way_there: true,
                way_back: true,
                process: None,
                paused: false,
                resumed_at: 0,
                lives: 0,
                rate_before: None,
            });
        }
    }

    pub(crate) fn broken(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Runs from the beginning to the end.
    pub(crate) fn run(&mut self) {
        let chaos = self.ttl() * self.rng.u64(10..40);
        self.plan_faults(chaos);
        self.queue.push(chaos, Event::Phase(Phase::Healing));
        for n in 0..self.nodes.len() {
            let at = self.rng.u64(0..self.ttl());
            self.queue.push(at, Event::Start(n));
        }
        while self.phase != Phase::Done {
            let Some((at, event)) = self.queue.pop() else {
                break;
            };
            self.now = at;
            self.count.events += 1;
            if self.count.events > EVENTS_MAX {
                self.violated("run_ends", "the run goes in circles".into());
                break;
            }
            self.happen(event);
        }
        self.count.simulated_ns = self.now;
        self.count.turned_away = self.resource.turned_away;
        self.count.unfenced_older = self.resource.unfenced_older;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake { owner, number } => {
                let node = &mut self.nodes[owner.node];
                let paused = node.paused;
                let process = node.process.as_mut().filter(|p| p.life == owner.life);
                let Some(process) = process.filter(|p| p.wake_number == number) else {
                    return;
                };
                process.wake_at = None;
                if !paused {
                    self.input(owner.node, Input::Tick, None);
                }
            }
            Event::Timer { owner, number } => {
                let process = self.nodes[owner.node].process.as_ref();
                if process.is_some_and(|p| p.timer_number == number) {
                    self.timer(owner);
                }
            }
            Event::Request(message) => self.arrive(&message),
            Event::Reply(reply) => self.come(*reply),
            Event::Notice(owner, notice) => self.hand_to(owner, Waiting::Notice(*notice)),
            Event::Check { owner, token } => self.check(owner, token),
            Event::Use { owner, token } => self.hand_to(owner, Waiting::Use(token)),
            Event::WorkStops { owner, token } => self.work_stops(owner, token),
            Event::FaultBegins(number) => {
                if self.phase == Phase::Chaos {
                    self.fault_begins(number);
                }
            }
            Event::FaultEnds(number) => {
                if self.phase == Phase::Chaos {
                    self.fault_ends(number);
                }
            }
            // Who was told to go does not come back before the end.
            Event::Start(n) if self.resigned == Some(n) => {}
            Event::Start(n) => self.start(n),
            Event::StopNow(n) => self.order(n, true),
            Event::Phase(phase) => self.enter(phase),
            Event::FoundAgain { owner, token } => self.tell(&Fact::FoundAgain { owner, token }),
            Event::ArmFault => self.arm(),
        }
    }

    // Phases

    fn enter(&mut self, phase: Phase) {
        // The promise of the phase that ends is called in first.
        self.tell(&Fact::PhaseEnds);
        self.phase = phase;
        self.phase_began = self.now;
        self.say_fault(|| phase.name().into());
        self.tell(&Fact::PhaseBegins);
        let ttl = self.ttl();
        let lasts = match phase {
            Phase::Chaos | Phase::Done => return,
            Phase::Healing => {
                self.heal();
                self.healing_max()
            }
            Phase::Quiet => 3 * ttl,
            Phase::OneFault => {
                self.arm();
                5 * ttl
            }
            Phase::Failover => {
                self.crash_leader();
                self.failover_max()
            }
            Phase::LostGrant => {
                self.armed = true;
                for n in 0..self.nodes.len() {
                    self.start(n);
                }
                self.crash_leader();
                let found = self.failover_max() + self.found_again_after();
                found + self.stretched(self.sum.handover_polled_max)
            }
            Phase::Handover => self.hand_over(),
        };
        self.queue
            .push(self.now + lasts, Event::Phase(phase.next()));
    }

    fn arm(&mut self) {
        if self.phase == Phase::OneFault {
            self.armed = true;
            self.queue
                .push(self.now + self.ttl() * 5 / 4, Event::ArmFault);
        }
    }

    fn crash_leader(&mut self) {
        let leader = (0..self.nodes.len()).find(|n| self.nodes[*n].believes(self.now));
        if let Some(n) = leader {
            self.count.faults += 1;
            self.crash(n);
            self.queue.push(self.now + 3 * self.ttl(), Event::Start(n));
        }
    }

    /// Tells the leader to go, and says by when another has to lead.
    fn hand_over(&mut self) -> u64 {
        for n in 0..self.nodes.len() {
            self.start(n);
        }
        let leader = (0..self.nodes.len()).find(|n| self.nodes[*n].believes(self.now));
        let Some(n) = leader else { return 1 };
        let grace = self.grace();
        let process = self.nodes[n].process.as_mut();
        let belief = process.and_then(|p| p.belief.as_mut());
        if let Some(work) = belief.and_then(|b| b.work.as_mut()) {
            // Well within its grace, by whatever clock.
            work.stops_after = Some(work.stops_after.unwrap_or(grace).min(grace / 4 * 3));
        }
        let stops = self.rng.bool() && self.settings.release_on_stop;
        self.order(n, stops);
        self.resigned = Some(n);
        // The work stops, the lease is released, and the next poll finds it free.
        let timing = &self.settings.timing;
        let released = timing.grace + timing.call_timeout * 2;
        self.stretched(released + self.sum.handover_polled_max)
    }

    /// The stated worst time from a leader's death to the next, with room for clocks.
    pub(crate) fn failover_max(&self) -> u64 {
        let stated = match self.store.kind {
            Kind::Clocked => self.sum.failover_max,
            Kind::Watched => self.sum.failover_watched_max,
        };
        self.stretched(stated)
    }

    /// After any faults: a call may hang as they end, the followers may have backed off,
    /// and one that resigned may rest.
    pub(crate) fn healing_max(&self) -> u64 {
        let timing = &self.settings.timing;
        let resting = self
            .nodes
            .iter()
            .filter_map(|node| node.process.as_ref()?.rested_from);
        let rests = resting
            .max()
            .map_or(0, |from| (from + self.rest()).saturating_sub(self.now));
        self.failover_max() + self.stretched(timing.call_timeout + timing.poll_every) + rests
    }

    /// How long one that resigned leaves the lease to others.
    pub(crate) fn rest(&self) -> u64 {
        let rest = self
            .settings
            .rest_after_resign
            .unwrap_or(self.settings.timing.ttl);
        rest.as_nanos() as u64
    }

    /// A grant whose answer was lost: the call is given up, and its attempt asked again.
    pub(crate) fn found_again_after(&self) -> u64 {
        self.stretched(self.settings.timing.call_timeout * 3)
    }

    fn stretched(&self, duration: Duration) -> u64 {
        (duration.as_nanos() as f64 * (1.0 + 2.0 * self.settings.timing.drift)) as u64
    }

    // What is seen

    /// Shows the checkers what the store has done, and sends its notices.
    pub(crate) fn after_deeds(&mut self) {
        for deed in std::mem::take(&mut self.store.deeds) {
            self.tell(&Fact::Done(deed));
        }
        self.push_notices();
    }

    /// Shows a fact to every checker.
    pub(crate) fn tell(&mut self, fact: &Fact) {
        if self.timeline.trace == Trace::Full {
            self.draw(fact);
        }
        let mut checkers = std::mem::take(&mut self.checkers);
        for checker in &mut checkers {
            if let Some(text) = checker.see(self, fact) {
                self.violated(checker.name(), text);
            }
        }
        self.checkers = checkers;
    }

    fn draw(&mut self, fact: &Fact) {
        let at = self.now;
        match fact {
            Fact::Began { owner, token, .. } => self.timeline.began(at, owner.node, token.0),
            Fact::Ended {
                owner,
                token,
                reason,
            } => self.timeline.ended(at, owner.node, token.0, reason),
            Fact::Crashed { owner } => self.timeline.crashed(at, owner.node),
            _ => {}
        }
    }

    fn violated(&mut self, checker: &'static str, text: String) {
        self.count.violations += 1;
        self.say_fault(|| format!("VIOLATION of {checker}: {text}"));
        let at = self.now;
        if !self.violations.iter().any(|v| v.checker == checker) {
            self.violations.push(Violation { checker, at, text });
        }
    }

    pub(crate) fn tracing(&self) -> bool {
        self.timeline.trace != Trace::Off
    }

    pub(crate) fn say(&mut self, node: usize, what: impl FnOnce() -> String) {
        if self.tracing() {
            self.timeline
                .line(self.now, &format!("node {node}"), &what());
        }
    }

    pub(crate) fn say_store(&mut self, what: impl FnOnce() -> String) {
        if self.tracing() {
            self.timeline.line(self.now, "store", &what());
        }
    }

    pub(crate) fn say_fault(&mut self, what: impl FnOnce() -> String) {
        if self.tracing() {
            self.timeline.line(self.now, "*", &what());
        }
    }
}

/// Draws timings that hold: the defaults for some ttl, or tighter ones.
fn draw_settings(rng: &mut Rng) -> (Settings, TimingSum) {
    let key = Key::new("simulated").expect("a good name");
    loop {
        let ttl = [1, 5, 10, 30, 30, 30, 60, 300][rng.usize(0..8)];
        let mut timing = Timing::with_ttl(Duration::from_secs(ttl));
        if rng.f64() < 0.4 {
            let part =
                |rng: &mut Rng, most: f64| timing.ttl.mul_f64(most * (0.1 + 0.9 * rng.f64()));
            timing.renew_every = part(rng, 0.5);
            timing.call_timeout = part(rng, 0.25);
            timing.grace = part(rng, 0.4);
            timing.poll_every = part(rng, 0.5);
            timing.drift = [0.0005, 0.01, 0.05][rng.usize(0..3)];
            timing.jitter = 0.3 * rng.f64();
        }
        let Ok(sum) = timing.check() else { continue };
        // The name is fixed and good.
        let mut settings = Settings::new(&key).expect("a good name").timing(timing);
        settings.release_on_stop = rng.f64() < 0.8;
        if rng.f64() < 0.2 {
            settings.stall_after = Some(timing.ttl);
        }
        if rng.f64() < 0.3 {
            settings.rest_after_resign = Some(timing.ttl.mul_f64(0.5 * rng.f64()));
        }
        return (settings, sum);
    }
}

/// What a clock shows at the beginning: boot was an hour to three years ago.
fn draw_local(rng: &mut Rng) -> u64 {
    const HOUR: u64 = 3_600_000_000_000;
    rng.u64(1_000 * HOUR..26_000 * HOUR)
}
