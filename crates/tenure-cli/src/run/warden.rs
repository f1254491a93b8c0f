//! What the guardian decides, without doing it: (now, what happened) → what to do.

use std::time::Duration;

use tenure::{Moment, Token};

use super::protocol::{How, Order};

/// How long what the command left running may take to end after TERM.
const LEFTOVER_GRACE_MAX: Duration = Duration::from_secs(1);

/// The times that the guardian keeps.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long before the deadline the command is told to stop.
    pub grace: Duration,
    /// How long before the deadline everything that is left is killed.
    pub margin: Duration,
}

impl Times {
    /// The times for this grace: killing begins early enough to be over by the deadline,
    /// also on a busy machine, and leaves most of the grace to the command.
    pub fn new(grace: Duration, ttl: Duration) -> Self {
        let margin = (grace / 4).clamp(Duration::from_millis(20), Duration::from_millis(500));
        Self {
            grace,
            margin: margin.min(ttl / 4),
        }
    }

    /// When everything is killed, for a tenure that ends at `deadline`.
    pub fn kill_at(&self, deadline: Moment) -> Moment {
        deadline.saturating_sub(self.margin)
    }

    /// When the command is told to stop, for a tenure that ends at `deadline`.
    pub fn stop_at(&self, deadline: Moment) -> Moment {
        deadline.saturating_sub(self.grace.max(self.margin))
    }
}

/// Something for the guardian to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Let the waiting child become the command, with this token.
    Start(Token),
    /// Hand this signal on to the command's group.
    Forward(i32),
    /// TERM and CONT to the command's group and every descendant.
    Ask,
    /// KILL to every descendant; comes again at each tick until none is left.
    Kill,
}

/// Where the guardian is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The lease is not there yet: the child waits.
    Waiting,
    /// The command runs.
    Running { deadline: Moment },
    /// It was told to stop, and is killed at that moment.
    Ending { kill_at: Moment },
    /// It is being killed.
    Killing,
}

/// The guardian's mind.
#[derive(Debug)]
pub struct Warden {
    times: Times,
    phase: Phase,
    how: How,
}

impl Warden {
    /// A warden whose child waits for the lease.
    pub fn new(times: Times) -> Self {
        Self {
            times,
            phase: Phase::Waiting,
            how: How::Ended,
        }
    }

    /// Takes an order.
    pub fn order(&mut self, order: Order, now: Moment) -> Option<Act> {
        match (order, self.phase) {
            (Order::Go { token, deadline }, Phase::Waiting) => {
                if now >= self.times.stop_at(deadline) {
                    // Too late to begin: the order lay there while somebody was stopped.
                    return self.kill();
                }
                self.phase = Phase::Running { deadline };
                Some(Act::Start(token))
            }
            (Order::Deadline(renewed), Phase::Running { deadline }) => {
                // A deadline never moves back by a renewal.
                self.phase = Phase::Running {
                    deadline: renewed.max(deadline),
                };
                None
            }
            (Order::End { kill_at }, Phase::Running { deadline }) => {
                self.end(kill_at.min(self.times.kill_at(deadline)), now)
            }
            (Order::End { kill_at }, Phase::Ending { kill_at: before }) => {
                self.phase = Phase::Ending {
                    kill_at: kill_at.min(before),
                };
                None
            }
            (Order::End { .. }, Phase::Waiting) => self.kill(),
            (Order::Forward(signal), Phase::Running { .. } | Phase::Ending { .. }) => {
                Some(Act::Forward(signal))
            }
            _ => None,
        }
    }

    /// `tenure run` itself is gone.
    pub fn orphaned(&mut self, now: Moment) -> Option<Act> {
        match self.phase {
            Phase::Waiting => self.kill(),
            Phase::Running { deadline } => {
                let kill_at = now + self.times.grace;
                self.end(kill_at.min(self.times.kill_at(deadline)), now)
            }
            Phase::Ending { .. } | Phase::Killing => None,
        }
    }

    /// The command itself has ended; descendants may be left.
    pub fn ended(&mut self, now: Moment) -> Option<Act> {
        match self.phase {
            Phase::Running { deadline } => {
                self.how = How::Own;
                let kill_at = now + self.times.grace.min(LEFTOVER_GRACE_MAX);
                self.end(kill_at.min(self.times.kill_at(deadline)), now)
            }
            Phase::Waiting => self.kill(),
            Phase::Ending { .. } | Phase::Killing => None,
        }
    }

    /// What is due now.
    pub fn tick(&mut self, now: Moment) -> Option<Act> {
        match self.phase {
            Phase::Running { deadline } if now >= self.times.stop_at(deadline) => {
                self.end(self.times.kill_at(deadline), now)
            }
            Phase::Ending { kill_at } if now >= kill_at => self.kill(),
            Phase::Killing => Some(Act::Kill),
            _ => None,
        }
    }

    /// When to tick next, if nothing happens before.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        match self.phase {
            Phase::Waiting => None,
            Phase::Running { deadline } => Some(self.times.stop_at(deadline)),
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing => Some(now + Duration::from_millis(2)),
        }
    }

    /// Whether the command runs and nothing was done to it.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Who ended the command.
    pub fn how(&self) -> How {
        self.how
    }

    fn end(&mut self, kill_at: Moment, now: Moment) -> Option<Act> {
        if now >= kill_at {
            return self.kill();
        }
        self.phase = Phase::Ending { kill_at };
        Some(Act::Ask)
    }

    fn kill(&mut self) -> Option<Act> {
        self.phase = Phase::Killing;
        Some(Act::Kill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * SECOND)
    }

    fn running(deadline: Moment) -> Warden {
        let times = Times::new(Duration::from_secs(5), Duration::from_secs(30));
        let mut warden = Warden::new(times);
        let go = Order::Go {
            token: Token(1),
            deadline,
        };
        assert_eq!(warden.order(go, at(100)), Some(Act::Start(Token(1))));
        warden
    }

    #[test]
    fn told_then_killed_before_the_deadline() {
        let mut warden = running(at(130));
        assert_eq!(warden.tick(at(124)), None);
        assert_eq!(warden.wake_at(at(124)), Some(at(125)));
        assert_eq!(warden.tick(at(125)), Some(Act::Ask));
        assert_eq!(warden.tick(at(126)), None);
        let kill_at = warden.wake_at(at(126)).unwrap();
        assert!(kill_at < at(130) && kill_at > at(129));
        assert_eq!(warden.tick(kill_at), Some(Act::Kill));
        assert_eq!(warden.tick(at(131)), Some(Act::Kill));
        assert_eq!(warden.how(), How::Ended);
    }

    #[test]
    fn a_renewal_moves_the_deadline_and_never_back() {
        let mut warden = running(at(130));
        warden.order(Order::Deadline(at(140)), at(110));
        warden.order(Order::Deadline(at(120)), at(111));
        assert_eq!(warden.tick(at(134)), None);
        assert_eq!(warden.tick(at(135)), Some(Act::Ask));
    }

    #[test]
    fn a_late_renewal_does_not_undo_the_end() {
        let mut warden = running(at(130));
        assert_eq!(warden.tick(at(125)), Some(Act::Ask));
        assert_eq!(warden.order(Order::Deadline(at(150)), at(126)), None);
        assert_eq!(warden.tick(at(130)), Some(Act::Kill));
    }

    #[test]
    fn after_the_deadline_there_is_no_grace() {
        let mut warden = running(at(130));
        assert_eq!(warden.tick(at(500)), Some(Act::Kill));
    }

    #[test]
    fn an_orphan_ends_at_once_and_by_the_deadline() {
        let mut warden = running(at(130));
        assert_eq!(warden.orphaned(at(110)), Some(Act::Ask));
        assert_eq!(warden.wake_at(at(110)), Some(at(115)));
        let mut warden = running(at(130));
        warden.orphaned(at(128));
        assert!(warden.wake_at(at(128)).unwrap() < at(130));
    }

    #[test]
    fn a_late_go_never_starts() {
        let times = Times::new(Duration::from_secs(5), Duration::from_secs(30));
        let mut warden = Warden::new(times);
        let go = Order::Go {
            token: Token(1),
            deadline: at(130),
        };
        assert_eq!(warden.order(go, at(125)), Some(Act::Kill));
        assert_eq!(warden.how(), How::Ended);
    }

    #[test]
    fn an_own_end_is_the_commands_own() {
        let mut warden = running(at(130));
        assert_eq!(warden.ended(at(110)), Some(Act::Ask));
        assert_eq!(warden.wake_at(at(110)), Some(at(111)));
        assert_eq!(warden.how(), How::Own);
        let mut told = running(at(130));
        told.tick(at(125));
        told.ended(at(126));
        assert_eq!(told.how(), How::Ended);
    }

    #[test]
    fn an_order_to_end_at_once_kills_at_once() {
        let mut warden = running(at(130));
        let end = Order::End { kill_at: at(0) };
        assert_eq!(warden.order(end, at(110)), Some(Act::Kill));
    }

    #[test]
    fn even_no_grace_is_killed_before_the_deadline() {
        let times = Times::new(Duration::ZERO, Duration::from_millis(40));
        assert!(times.kill_at(at(10)) < at(10));
        assert!(times.stop_at(at(10)) <= times.kill_at(at(10)));
    }
}
