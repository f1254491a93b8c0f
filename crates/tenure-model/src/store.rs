//! The store's rules: what acquire, renew, release and a deletion do to the record.

use crate::setup::{Break, Setup};
use crate::world::{Answer, Ask, Attempt, Node, Record, Stage, Tenure, World};

impl<const N: usize> World<N> {
    /// Does what is asked, in one atomic step. None if it would go past the run's bounds.
    pub(crate) fn execute(&mut self, setup: &Setup, node: usize, ask: Ask) -> Option<Answer> {
        match ask {
            Ask::Acquire { attempt, ended } => self.acquire(setup, node, attempt, ended),
            Ask::Renew(tenure) => Some(self.renew(setup, tenure)),
            Ask::Release(tenure) => {
                self.release(setup, tenure);
                Some(Answer::Released)
            }
        }
    }

    fn acquire(
        &mut self,
        setup: &Setup,
        node: usize,
        attempt: Attempt,
        ended: bool,
    ) -> Option<Answer> {
        if let Some((tenure, holders)) = self.record.lease {
            let same_process = usize::from(tenure.holder) == node && holders.life == attempt.life;
            if same_process && holders == attempt {
                self.written(setup);
                return Some(Answer::Granted(tenure));
            }
            if !ended {
                return Some(Answer::Held {
                    present: !setup.own_clock,
                    ours: same_process.then_some(tenure),
                });
            }
        }
        if self.record.granted == setup.tenures {
            return None;
        }
        let order = self.record.granted + 1;
        // The store's clock or revision: greater than any before, whatever the record
        // still knows.
        let token = if setup.is(Break::TokenResetOnDelete) {
            self.record.last + 1
        } else {
            order
        };
        let tenure = Tenure {
            holder: node as u8,
            token,
            order,
        };
        self.wrong.token |= token <= self.record.token_max;
        self.record = Record {
            lease: Some((tenure, attempt)),
            left: 0,
            last: token,
            granted: order,
            token_max: self.record.token_max.max(token),
        };
        self.written(setup);
        Some(Answer::Granted(tenure))
    }

    fn renew(&mut self, setup: &Setup, named: Tenure) -> Answer {
        let any_token = setup.is(Break::RenewWithoutToken);
        match self.record.lease {
            Some((tenure, _)) if names(named, tenure, any_token) => {
                self.wrong.touched |= tenure.order != named.order;
                self.written(setup);
                Answer::Renewed
            }
            _ => Answer::Lost,
        }
    }

    fn release(&mut self, setup: &Setup, named: Tenure) {
        let any_token = setup.is(Break::ReleaseWithoutToken);
        match self.record.lease {
            Some((tenure, _)) if names(named, tenure, any_token) => {
                self.wrong.touched |= tenure.order != named.order;
                self.record.lease = None;
                self.written(setup);
            }
            _ => {}
        }
    }

    /// Somebody removes the record.
    pub(crate) fn delete(&mut self, setup: &Setup) {
        self.record.lease = None;
        self.record.last = 0;
        self.written(setup);
    }

    /// The term begins anew, and every earlier version is an earlier one.
    fn written(&mut self, setup: &Setup) {
        self.record.left = if setup.own_clock && self.record.lease.is_some() {
            setup.ttl
        } else {
            0
        };
        let forget = |ask: &mut Ask| {
            if let Ask::Acquire { ended, .. } = ask {
                // Without the compare an acquire that names an earlier version is as good.
                *ended &= setup.is(Break::NoCompare);
            }
        };
        for node in &mut self.nodes {
            forget_version(setup, node);
            if let Some(pending) = &mut node.pending {
                forget(&mut pending.ask);
            }
        }
        self.late
            .iter_mut()
            .flatten()
            .for_each(|(_, ask)| forget(ask));
        self.order_late();
    }

    /// A tick of the store's clock.
    pub(crate) fn store_tick(&mut self) {
        if self.record.left > 0 {
            self.record.left -= 1;
            if self.record.left == 0 {
                self.record.lease = None;
            }
        }
    }
}

fn names(named: Tenure, tenure: Tenure, any_token: bool) -> bool {
    named.holder == tenure.holder && (any_token || named.token == tenure.token)
}

fn forget_version(setup: &Setup, node: &mut Node) {
    if !setup.is(Break::WatchIgnoresVersion) {
        node.seen = None;
    }
    if let Some(pending) = &mut node.pending
        && let Stage::Answered(Answer::Held { present, .. }) = &mut pending.stage
    {
        *present = false;
    }
}
