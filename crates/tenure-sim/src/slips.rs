//! The planted bugs that sit in the driver: what it makes of deadlines, requests and answers.

use tenure::election::Answer;
use tenure::{Acquired, Attempt, Lease, Moment, Renewed, Token};

use crate::planted::Bug;
use crate::world::World;

impl World {
    pub(crate) fn counted_from(&self, now: u64, deadline: u64) -> u64 {
        if self.broken(Bug::DeadlineFromAnswer) {
            let moment = Moment::from_nanos(now);
            return self.settings.timing.deadline(moment).as_nanos();
        }
        if self.broken(Bug::WatchedWithoutDrift) {
            // Only the watcher leaves its margin out; the holder keeps its own.
            return deadline - (self.ttl() as f64 * self.settings.timing.drift) as u64;
        }
        deadline
    }

    pub(crate) fn slips(&mut self, n: usize) -> &mut crate::node::Slips {
        // Only called for a process that has just put something out.
        &mut self.nodes[n].process.as_mut().expect("it lives").slips
    }

    pub(crate) fn slip_into(&mut self, n: usize, request: &mut tenure::AcquireRequest) {
        let wall_us = self.nodes[n].clock.wall_us(self.now);
        if self.broken(Bug::UnknownAcquireForgotten) {
            request.attempt = Attempt::first(self.rng.u64(..));
        }
        if self.broken(Bug::EndNeverNamed) {
            request.ended = None;
        }
        if self.broken(Bug::WallClocksCompared)
            && let Some((version, stamp_us, ttl_us)) = self.slips(n).stamp.clone()
            && wall_us > stamp_us + ttl_us
        {
            request.ended = Some(version);
        }
        if self.broken(Bug::NoticeIsProof) && self.slips(n).said_free {
            request.ended = self.slips(n).version.clone();
        }
    }

    pub(crate) fn slip_out(&mut self, n: usize, answer: Answer) -> Answer {
        if let Answer::Acquire(Ok(Acquired::Held(lease))) = &answer {
            self.slips(n).version = Some(lease.version.clone());
            self.slips(n).said_free = false;
        }
        let (Answer::Acquire(Err(_)) | Answer::Renew(Err(_))) = &answer else {
            return answer;
        };
        self.slips(n).failures += 1;
        let failures = self.slips(n).failures;
        let holder = self.nodes[n].holder.clone();
        let last = self.nodes[n]
            .process
            .as_ref()
            .and_then(|p| p.belief.as_ref());
        let token = last.map_or(Token(u64::from(failures)), |belief| belief.token);
        let made_up = Lease {
            key: self.settings.key.clone(),
            holder,
            token,
            attempt: None,
            ttl: self.settings.timing.ttl,
            rest: None,
            acquired_at: None,
            version: tenure::Version::new("?"),
        };
        match answer {
            Answer::Renew(_) if self.broken(Bug::RenewTimeoutIsSuccess) => {
                Answer::Renew(Ok(Renewed::Renewed(made_up, None)))
            }
            Answer::Acquire(_) if self.broken(Bug::AcquireTimeoutIsSuccess) => {
                Answer::Acquire(Ok(Acquired::Granted(made_up)))
            }
            Answer::Acquire(_) if self.broken(Bug::OutageIsPermission) && failures > 3 => {
                Answer::Acquire(Ok(Acquired::Granted(made_up)))
            }
            other => other,
        }
    }
}
