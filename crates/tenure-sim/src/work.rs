//! Guarded work: it asks whether it leads, pauses, and writes; it is told to stop, and stops.

use tenure::Token;
use tenure::election::Input;

use crate::belief::{Belief, Work};
use crate::checkers::Fact;
use crate::event::{Event, Owner};
use crate::phase::Phase;
use crate::world::World;

impl World {
    /// Draws the work of a new tenure: most stops in its grace, some has to be cut off.
    pub(crate) fn new_work(&mut self) -> Option<Work> {
        let watched_for_progress = self.settings.stall_after.is_some();
        if !watched_for_progress && self.rng.f64() < 0.3 {
            return None;
        }
        let grace = self.grace();
        let stops_after = match self.rng.u32(0..10) {
            0 => None,
            1..=3 => Some(0),
            _ => Some(self.rng.u64(0..grace.max(1))),
        };
        let stalls = watched_for_progress && self.phase == Phase::Chaos && self.rng.f64() < 0.2;
        Some(Work {
            stops_after,
            stalls,
        })
    }

    /// Work asks whether it leads, and writes some time later: at once, or after a
    /// pause that may be longer than the tenure.
    pub(crate) fn check(&mut self, owner: Owner, token: Token) {
        let (at, ttl) = (self.now, self.ttl());
        let node = &mut self.nodes[owner.node];
        if !node.lives(owner.life) {
            return;
        }
        let now = node.now(at);
        let (paused, leads) = (node.paused, node.leads(at) == Some(token));
        let belief = node.process.as_mut().and_then(|p| p.belief.as_mut());
        let Some(belief) = belief.filter(|belief| belief.token == token) else {
            return;
        };
        let next = at + ttl / 3;
        if paused {
            self.queue.push(next, Event::Check { owner, token });
            return;
        }
        let Some(work) = &belief.work else { return };
        if !work.stalls {
            belief.progress_at = now;
        }
        if leads {
            let pause = match self.rng.u32(0..20) {
                0 => self.rng.u64(0..2 * ttl),
                1..=4 => self.rng.u64(0..ttl / 10),
                _ => 0,
            };
            self.queue.push(at + pause, Event::Use { owner, token });
            self.queue.push(next, Event::Check { owner, token });
        }
    }

    /// Work writes, believing what it was told some time ago.
    pub(crate) fn use_resource(&mut self, owner: Owner, token: Token) {
        let written = self.resource.write(owner, token);
        self.say(owner.node, || {
            let how = if written.accepted {
                "writes"
            } else {
                "is TURNED AWAY"
            };
            format!("{how} with token {token}")
        });
        self.tell(&Fact::Wrote {
            owner,
            token,
            written,
        });
    }

    /// Tells the work of a tenure to stop, and says whether none is left.
    pub(crate) fn tell_work(&mut self, owner: Owner, token: Token, now: u64) -> bool {
        let at = self.now;
        let Some(belief) = self.belief_mut(owner, token) else {
            return true;
        };
        let first = belief.tell(now);
        let Some(work) = &belief.work else {
            return true;
        };
        if let (true, Some(after)) = (first, work.stops_after) {
            self.queue
                .push(at + after, Event::WorkStops { owner, token });
        }
        false
    }

    /// Work has stopped by itself, unless its process does not run: then later.
    pub(crate) fn work_stops(&mut self, owner: Owner, token: Token) {
        let node = &self.nodes[owner.node];
        if !node.lives(owner.life) {
            return;
        }
        if node.paused {
            let later = self.now + self.grace() / 4 + 1;
            self.queue.push(later, Event::WorkStops { owner, token });
            return;
        }
        let Some(belief) = self.belief_mut(owner, token) else {
            return;
        };
        if belief.work.take().is_some() {
            self.say(owner.node, || format!("work of token {token} has stopped"));
            self.work_done(owner, token);
        }
    }

    fn work_done(&mut self, owner: Owner, token: Token) {
        if let Some(process) = &mut self.nodes[owner.node].process {
            process.ended.take_if(|ended| ended.token == token);
        }
        self.input(owner.node, Input::WorkDone(token), None);
    }

    /// The tenure's own timer, which needs no election: work is told one grace before
    /// the deadline, and cut off at it.
    pub(crate) fn timer(&mut self, owner: Owner) {
        let at = self.now;
        let node = &self.nodes[owner.node];
        if !node.runs(owner.life) {
            return;
        }
        let now = node.now(at);
        let Some(process) = &node.process else { return };
        let beliefs = [&process.belief, &process.ended];
        let due: Vec<(Token, bool)> = beliefs
            .into_iter()
            .flatten()
            .filter(|belief| belief.timer_at().is_some_and(|due| now >= due))
            .map(|belief| (belief.token, now >= belief.cut_off_at))
            .collect();
        for (token, over) in due {
            if over {
                self.cut_off(owner, token, now);
            } else {
                self.say(owner.node, || {
                    "work is told to stop by its own timer".into()
                });
                self.tell_work(owner, token, now);
            }
        }
        if self.nodes[owner.node].lives(owner.life) {
            self.schedule(owner.node);
        }
    }

    fn cut_off(&mut self, owner: Owner, token: Token, now: u64) {
        let Some(belief) = self.belief_mut(owner, token) else {
            return;
        };
        belief.tell(now);
        if belief.work.take().is_some() {
            self.say(owner.node, || format!("work of token {token} is cut off"));
            self.work_done(owner, token);
        }
    }

    fn belief_mut(&mut self, owner: Owner, token: Token) -> Option<&mut Belief> {
        let node = self.nodes.get_mut(owner.node)?;
        let process = node.process.as_mut().filter(|p| p.life == owner.life)?;
        let beliefs = [&mut process.belief, &mut process.ended];
        let mut beliefs = beliefs.into_iter().flatten();
        beliefs.find(|belief| belief.token == token)
    }
}
