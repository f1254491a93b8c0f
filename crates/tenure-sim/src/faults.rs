//! The faults of a run: drawn from the seed, begun and ended as true time passes.

use tenure::election::Input;

use crate::checkers::Fact;
use crate::clock;
use crate::event::Event;
use crate::network::Weather;
use crate::profile::Drift;
use crate::world::World;

const HOUR: i64 = 3_600_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    PartitionBoth,
    PartitionThere,
    PartitionBack,
    Loss,
    Slow,
    Copies,
    Pause,
    Sleep,
    Crash,
    Resign,
    Stop,
    StepDown,
    Rate,
    WallJump,
    StoreDown,
    StoreErrors,
    StaleReads,
    LateExpiry,
    NoticesLost,
    NoticesTwice,
    NoticesForNothing,
    // Beyond what a store may do; what still holds is in docs/proof.md.
    Rollback,
    Delete,
    StoreJump,
    StoreWallJump,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    kind: FaultKind,
    node: usize,
    /// It strikes whoever leads when it begins, if somebody does.
    at_leader: bool,
}

impl World {
    /// Draws the faults of the first phase.
    pub(crate) fn plan_faults(&mut self, length: u64) {
        if self.profile.faults.is_empty() {
            return;
        }
        let ttl = self.ttl();
        let mean_gap = ttl / 4 + self.rng.u64(0..3 * ttl);
        let mut at = self.rng.u64(0..mean_gap);
        while at < length {
            let kind = self.profile.faults[self.rng.usize(0..self.profile.faults.len())];
            let node = self.rng.usize(0..self.nodes.len());
            let at_leader = self.rng.f64() < 0.6;
            let number = self.faults.len();
            let lasts = match self.rng.u32(0..4) {
                0 => self.rng.u64(1..ttl / 4),
                1..=2 => self.rng.u64(1..ttl + ttl / 2),
                _ => self.rng.u64(1..3 * ttl),
            };
            self.faults.push(Fault {
                kind,
                node,
                at_leader,
            });
            self.queue.push(at, Event::FaultBegins(number));
            self.queue
                .push((at + lasts).min(length), Event::FaultEnds(number));
            at += self.rng.u64(1..2 * mean_gap);
        }
    }

    pub(crate) fn fault_begins(&mut self, number: usize) {
        let leader = (0..self.nodes.len()).find(|n| self.nodes[*n].believes(self.now));
        let fault = &mut self.faults[number];
        if let (true, Some(leader)) = (fault.at_leader, leader) {
            fault.node = leader;
        }
        let (kind, n) = (fault.kind, fault.node);
        self.count.faults += 1;
        self.say_fault(|| format!("{kind:?} begins (node {n})"));
        let part = 0.1 + 0.8 * self.rng.f64();
        let weather = &mut self.weather;
        match kind {
            FaultKind::PartitionBoth => self.set_ways(n, false, false),
            FaultKind::PartitionThere => self.set_ways(n, false, true),
            FaultKind::PartitionBack => self.set_ways(n, true, false),
            FaultKind::Loss => weather.loss = part,
            FaultKind::Slow => weather.slow = part,
            FaultKind::Copies => weather.copies = part,
            FaultKind::StoreDown => weather.store_down = true,
            FaultKind::StoreErrors => weather.errors = part,
            FaultKind::StaleReads => weather.stale = part,
            FaultKind::NoticesLost => weather.notices_lost = part,
            FaultKind::NoticesTwice => weather.notices_twice = part,
            FaultKind::NoticesForNothing => weather.notices_for_nothing = part,
            FaultKind::LateExpiry => self.store.late = (self.ttl() as f64 * part) as u64,
            FaultKind::Pause => self.pause(n, false),
            FaultKind::Sleep => self.pause(n, true),
            FaultKind::Crash => self.crash(n),
            FaultKind::Resign => self.order(n, false),
            FaultKind::Stop => self.order(n, true),
            FaultKind::StepDown => self.ask_to_step_down(),
            FaultKind::Rate => self.change_rate(n),
            FaultKind::WallJump => self.jump_wall(n),
            _ => self.breach(kind, n),
        }
    }

    /// Faults that a store may not have: from here on the promises that rest on it are
    /// void, for two ttl.
    fn breach(&mut self, kind: FaultKind, n: usize) {
        match kind {
            FaultKind::Rollback => {
                let writes = self.rng.usize(1..4);
                if !self.store.roll_back(writes) {
                    return;
                }
            }
            FaultKind::Delete => {
                if !self.store.delete() {
                    return;
                }
                self.after_deeds();
            }
            FaultKind::StoreJump => {
                let by = self.rng.u64(0..2 * self.ttl());
                self.store.clock.jump(by);
            }
            FaultKind::StoreWallJump => {
                // Only a store that also loses records is harmed by it.
                let by = self.jump_by();
                self.store.clock.jump_wall(by);
                return;
            }
            _ => unreachable!("node {n}: {kind:?} is handled before"),
        }
        self.last_breach = Some(self.now);
    }

    pub(crate) fn fault_ends(&mut self, number: usize) {
        let Fault { kind, node: n, .. } = self.faults[number];
        let weather = &mut self.weather;
        match kind {
            FaultKind::PartitionBoth | FaultKind::PartitionThere | FaultKind::PartitionBack => {
                self.set_ways(n, true, true);
            }
            FaultKind::Loss => weather.loss = 0.0,
            FaultKind::Slow => weather.slow = 0.0,
            FaultKind::Copies => weather.copies = 0.0,
            FaultKind::StoreDown => weather.store_down = false,
            FaultKind::StoreErrors => weather.errors = 0.0,
            FaultKind::StaleReads => weather.stale = 0.0,
            FaultKind::NoticesLost => weather.notices_lost = 0.0,
            FaultKind::NoticesTwice => weather.notices_twice = 0.0,
            FaultKind::NoticesForNothing => weather.notices_for_nothing = 0.0,
            FaultKind::LateExpiry => self.store.late = 0,
            FaultKind::Pause | FaultKind::Sleep => self.wake_up(n),
            FaultKind::Crash | FaultKind::Stop => self.start(n),
            _ => return,
        }
        self.say_fault(|| format!("{kind:?} ends (node {n})"));
    }

    /// Ends every fault: from here on the cluster is healthy.
    pub(crate) fn heal(&mut self) {
        self.weather = Weather::default();
        self.store.late = 0;
        let timeout = self.settings.timing.call_timeout.as_nanos() as u64;
        self.queue.forget_late(self.now + timeout);
        for n in 0..self.nodes.len() {
            self.set_ways(n, true, true);
            if self.profile.drift == Drift::Beyond {
                let rate = self.draw_rate(Drift::Bounded);
                self.set_rate(n, rate);
            }
            self.wake_up(n);
            self.start(n);
            let process = self.nodes[n].process.as_mut();
            let belief = process.and_then(|p| p.belief.as_mut());
            if let Some(work) = belief.and_then(|b| b.work.as_mut()) {
                work.stalls = false;
            }
        }
        let rate = self.draw_rate(Drift::Bounded);
        self.store.clock.set_rate(self.now, rate);
    }

    fn set_ways(&mut self, n: usize, there: bool, back: bool) {
        self.nodes[n].way_there = there;
        self.nodes[n].way_back = back;
    }

    /// Lets a node's process run again; its clock may have stood still, with a planted bug.
    fn wake_up(&mut self, n: usize) {
        if let Some(rate) = self.nodes[n].rate_before.take() {
            self.set_rate(n, rate);
        }
        self.resume(n);
    }

    pub(crate) fn order(&mut self, n: usize, stop: bool) {
        let node = &mut self.nodes[n];
        let Some(process) = node.process.as_mut().filter(|_| !node.paused) else {
            return;
        };
        process.ordered.resign |= !stop;
        process.ordered.stop |= stop;
        let what = if stop { "stop" } else { "resign" };
        self.say(n, || format!("is told to {what}"));
        let input = if stop { Input::Stop } else { Input::Resign };
        self.input(n, input, None);
    }

    fn ask_to_step_down(&mut self) {
        if self.store.ask_to_step_down() {
            self.step_down_asked = true;
            self.push_notices();
        }
    }

    // Clocks

    pub(crate) fn draw_rate(&mut self, drift: Drift) -> u64 {
        let bound = self.settings.timing.drift;
        // The ends of the range matter most.
        let off = if self.rng.bool() {
            if self.rng.bool() { 1.0 } else { -1.0 }
        } else {
            2.0 * self.rng.f64() - 1.0
        };
        match drift {
            Drift::Bounded => clock::rate(1.0 + off * bound * 0.4999),
            Drift::EachBounded => clock::rate(1.0 + off * bound * 0.9999),
            Drift::Beyond => clock::rate(2f64.powf(off)),
        }
    }

    fn change_rate(&mut self, n: usize) {
        let rate = self.draw_rate(self.profile.drift);
        if self.rng.u32(0..4) == 0 {
            self.store.clock.set_rate(self.now, rate);
        } else if self.nodes[n].rate_before.is_none() {
            self.set_rate(n, rate);
        }
    }

    fn set_rate(&mut self, n: usize, rate: u64) {
        let before = self.nodes[n].believes(self.now);
        let at = self.now;
        self.nodes[n].clock.set_rate(at, rate);
        self.clock_changed(n, before);
    }

    fn jump_by(&mut self) -> i64 {
        if self.rng.bool() { HOUR } else { -HOUR }
    }

    fn jump_wall(&mut self, n: usize) {
        let before = self.nodes[n].believes(self.now);
        let by = self.jump_by();
        self.nodes[n].clock.jump_wall(by);
        self.clock_changed(n, before);
    }

    fn clock_changed(&mut self, n: usize, believed: bool) {
        if let Some(process) = &mut self.nodes[n].process {
            process.wake_at = None;
            self.schedule(n);
        }
        self.tell(&Fact::ClockChanged { node: n, believed });
    }
}
