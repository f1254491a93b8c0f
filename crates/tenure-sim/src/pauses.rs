//! Processes that do not run for a while: stopped, starved, or on a machine that sleeps.

use tenure::Notice;
use tenure::election::{Answer, CallId, Input};

use crate::event::{Owner, Proof};
use crate::node::{Node, Process, Waiting};
use crate::planted::Bug;
use crate::world::World;

impl World {
    pub(crate) fn pause(&mut self, n: usize, sleeps: bool) {
        let at = self.now;
        let stands_still = self.broken(Bug::SuspendNotCounted);
        let node = &mut self.nodes[n];
        if node.process.is_none() || node.paused {
            return;
        }
        node.paused = true;
        if sleeps && stands_still {
            node.rate_before = Some(node.clock.rate());
            node.clock.set_rate(at, 0);
        }
        self.say(n, || {
            if sleeps {
                "the machine sleeps"
            } else {
                "is paused"
            }
            .into()
        });
    }

    pub(crate) fn resume(&mut self, n: usize) {
        let at = self.now;
        let node = &mut self.nodes[n];
        if !node.paused {
            return;
        }
        node.paused = false;
        node.resumed_at = node.now(at);
        self.say(n, || "runs again".into());
        let Some(owner) = self.nodes[n].owner(n) else {
            return;
        };
        // The work's own timer and the driver run on different threads: either may be first.
        let timer_first = self.rng.bool();
        if timer_first {
            self.timer(owner);
        }
        let process = self.nodes[n].process.as_mut();
        let mut waiting = process
            .map(|p| std::mem::take(&mut p.inbox))
            .unwrap_or_default();
        waiting.sort_by_key(|waiting| match waiting {
            Waiting::Use(_) => 0,
            Waiting::Answer(..) => 1,
            Waiting::Notice(_) => 2,
        });
        for one in waiting {
            if !self.nodes[n].lives(owner.life) {
                return;
            }
            match one {
                Waiting::Use(token) => self.use_resource(owner, token),
                Waiting::Answer(id, answer, proof, came_at) => {
                    self.answered_late(n, id, answer, proof, came_at);
                }
                Waiting::Notice(notice) => self.noticed(n, notice),
            }
        }
        self.timer(owner);
        if self.nodes[n].lives(owner.life) {
            self.input(n, Input::Tick, None);
        }
    }

    fn answered_late(&mut self, n: usize, id: CallId, answer: Answer, proof: Proof, came_at: u64) {
        if self.broken(Bug::ExtensionAfterDeadline) {
            let waits = |p: &mut Process| p.calls.iter().any(|call| call.id == id);
            if self.nodes[n].process.as_mut().is_some_and(waits) {
                self.input_at(n, came_at, Input::Answer(id, answer), Some(proof));
            }
            return;
        }
        self.answered(n, id, answer, proof);
    }

    pub(crate) fn noticed(&mut self, n: usize, notice: Notice) {
        let node: &Node = &self.nodes[n];
        let leads = node.leads(self.now).is_some();
        if self.broken(Bug::StaleNoticeEndsLeader) && leads && matches!(notice, Notice::Free) {
            self.input(n, Input::Overrun, None);
            return;
        }
        if matches!(notice, Notice::Free) && self.nodes[n].process.is_some() {
            self.slips(n).said_free = true;
        }
        self.say(n, || {
            format!("is pushed: {}", crate::timeline::notice(&notice))
        });
        self.input(n, Input::Notice(notice), None);
    }

    /// Hands an event to a process, or leaves it for when that runs again.
    pub(crate) fn hand_to(&mut self, owner: Owner, waiting: Waiting) {
        let node = &mut self.nodes[owner.node];
        if !node.lives(owner.life) {
            return;
        }
        if node.paused {
            if let Some(process) = &mut node.process {
                process.inbox.push(waiting);
            }
            return;
        }
        match waiting {
            Waiting::Answer(id, answer, proof, _) => self.answered(owner.node, id, answer, proof),
            Waiting::Notice(notice) => self.noticed(owner.node, notice),
            Waiting::Use(token) => self.use_resource(owner, token),
        }
    }
}
