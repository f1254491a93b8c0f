//! The node's rules: when to believe, for how long, and when no longer.

use crate::setup::{Break, Setup};
use crate::world::{Answer, Ask, Attempt, Node, Pending, Phase, Stage, Tenure, Wrong};

impl Node {
    /// The request that this node may send now.
    pub(crate) fn next_ask(&self, setup: &Setup) -> Option<Ask> {
        if self.pending.is_some() {
            return None;
        }
        Some(match self.phase {
            Phase::Campaigning => Ask::Acquire {
                attempt: self.attempt,
                ended: self.seen.is_some_and(|seen| seen >= setup.watched_term()),
            },
            Phase::Leading { tenure, .. } => Ask::Renew(tenure),
            Phase::Releasing(tenure) => Ask::Release(tenure),
        })
    }

    pub(crate) fn send(&mut self, ask: Ask) {
        self.pending = Some(Pending {
            ask,
            age: 0,
            stage: Stage::Asked,
        });
    }

    /// Takes in the answer to its call.
    pub(crate) fn receive(&mut self, setup: &Setup, wrong: &mut Wrong) {
        let Some(Pending {
            ask,
            age,
            stage: Stage::Answered(answer),
        }) = self.pending.take()
        else {
            return;
        };
        // The deadline counts from the moment before the request was sent.
        let counted = if setup.is(Break::DeadlineFromAnswer) {
            0
        } else {
            age
        };
        let left = setup.deadline_after().saturating_sub(counted);
        match (answer, ask) {
            (Answer::Granted(tenure), _) => self.granted(tenure, left, wrong),
            (Answer::Held { present, .. }, _) => {
                if present && self.seen.is_none() {
                    let from_sending = setup.is(Break::WatchedFromSendTime);
                    self.seen = Some(if from_sending { age } else { 0 });
                }
            }
            (Answer::Renewed, Ask::Renew(tenure)) => self.renewed(setup, tenure, left, wrong),
            (Answer::Lost, _) => {
                if let Phase::Leading { tenure, .. } = self.phase {
                    self.end(tenure);
                }
            }
            (Answer::Released, _) => {
                if let Some(tenure) = self.valid() {
                    self.end(tenure);
                }
                self.phase = Phase::Campaigning;
            }
            (Answer::Renewed, _) => {}
        }
    }

    fn granted(&mut self, tenure: Tenure, left: u8, wrong: &mut Wrong) {
        if left == 0 {
            return; // The answer lay about for too long: ask again, with the same attempt.
        }
        wrong.revived |= tenure.order <= self.ended;
        self.phase = Phase::Leading { tenure, left };
        self.attempt.number += 1;
        self.seen = None;
    }

    fn renewed(&mut self, setup: &Setup, tenure: Tenure, left: u8, wrong: &mut Wrong) {
        match &mut self.phase {
            Phase::Leading { left: before, .. } => *before = left.max(*before),
            Phase::Campaigning if setup.is(Break::LateAnswerRevives) && left > 0 => {
                wrong.revived |= tenure.order <= self.ended;
                self.phase = Phase::Leading { tenure, left };
            }
            // Once ended it never becomes valid again.
            Phase::Campaigning | Phase::Releasing(_) => {}
        }
    }

    /// Waits no longer for its call, whose outcome it does not know. What was asked, if
    /// it may still arrive.
    pub(crate) fn give_up(&mut self, setup: &Setup) -> Option<Ask> {
        let pending = self.pending.take()?;
        let left = setup.deadline_after().saturating_sub(pending.age);
        match (pending.ask, &mut self.phase) {
            (Ask::Renew(_), Phase::Leading { left: before, .. })
                if setup.is(Break::UnknownRenewIsYes) =>
            {
                *before = left.max(*before);
            }
            (Ask::Acquire { .. }, Phase::Campaigning)
                if setup.is(Break::UnknownAcquireIsYes) && left > 0 =>
            {
                // It has no token to show, and makes one up.
                let tenure = Tenure {
                    holder: u8::MAX,
                    token: u8::MAX,
                    order: u8::MAX,
                };
                self.phase = Phase::Leading { tenure, left };
            }
            _ => {}
        }
        matches!(pending.stage, Stage::Asked).then_some(pending.ask)
    }

    /// Gives its tenure back of its own will.
    pub(crate) fn resign(&mut self, tenure: Tenure) {
        self.end(tenure);
        self.phase = Phase::Releasing(tenure);
    }

    /// Gives back a tenure that was granted to an earlier request of its own, by which
    /// nobody leads.
    pub(crate) fn give_back_unknown(&mut self) {
        let Some(Pending {
            stage:
                Stage::Answered(Answer::Held {
                    ours: Some(tenure), ..
                }),
            ..
        }) = self.pending.take()
        else {
            return;
        };
        self.phase = Phase::Releasing(tenure);
    }

    /// Dies and starts again, with the same holder and nothing in mind. What was asked,
    /// if it may still arrive.
    pub(crate) fn crash(&mut self) -> Option<Ask> {
        let pending = self.pending.take();
        if let Some(tenure) = self.valid() {
            self.end(tenure);
        }
        self.phase = Phase::Campaigning;
        self.attempt = Attempt {
            life: self.attempt.life + 1,
            number: 0,
        };
        self.seen = None;
        pending
            .filter(|pending| pending.stage == Stage::Asked)
            .map(|pending| pending.ask)
    }

    /// By how many ticks this node's clock may go on in one true tick.
    pub(crate) fn steps(&self, setup: &Setup) -> &'static [u8] {
        let counts = self.pending.is_some() || self.seen.is_some() || self.valid().is_some();
        // Where nothing is counted, it makes no difference how fast.
        if setup.drift && self.steady == 0 && counts {
            &[1, 0, 2]
        } else {
            &[1]
        }
    }

    /// One true tick, in which this node's clock goes on by `step` ticks.
    pub(crate) fn tick(&mut self, setup: &Setup, step: u8) {
        self.steady = self.steady.saturating_sub(1);
        if step != 1 {
            // So any ttl of true time has at most one such step.
            self.steady = setup.ttl - 1;
        }
        if let Some(pending) = &mut self.pending
            && !matches!(pending.ask, Ask::Release(_))
        {
            pending.age = (pending.age + step).min(setup.ttl);
        }
        if let Some(seen) = &mut self.seen {
            *seen = (*seen + step).min(setup.watched_term());
        }
        if let Phase::Leading { tenure, left } = &mut self.phase {
            *left = left.saturating_sub(step);
            if *left == 0 {
                let tenure = *tenure;
                self.end(tenure);
            }
        }
    }

    fn end(&mut self, tenure: Tenure) {
        self.phase = Phase::Campaigning;
        self.ended = self.ended.max(tenure.order);
    }
}
