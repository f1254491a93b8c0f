//! Waiting for the lease, with an eye on signals, the store and the clock.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::getpid;
use tenure::{
    BootClock, Clock, Elector, Error, ErrorKind, Event, Events, Holder, Lease, Moment, Settings,
    Store, Tenure, WorkGuard,
};

use super::line::{Line, SignalLine};
use super::signals::{self, Caught};
use super::{Ended, Ending, Job, Wait};
use crate::exit::{self, Failure};
use crate::output;
use crate::script;

/// When a person who waits is told for whom.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// The lease is there, and work under it has begun.
pub struct Won {
    pub elector: Elector,
    pub tenure: Tenure,
    pub work: WorkGuard,
}

/// How often a store that never answered is asked at least before that is the answer. One
/// failure says little: this process may have been stopped meanwhile.
const FAILURES_MIN: u32 = 3;

/// What is known while waiting.
struct Known {
    since: Moment,
    holder: Option<Lease>,
    error: Option<Error>,
    failures: u32,
    answered: bool,
    said: bool,
}

/// Waits until the lease is there, or until something ends the wait.
pub async fn wait_for_lease(
    job: &Job,
    holder: &Holder,
    store: Arc<dyn Store>,
    line: &mut Line,
    signals: &mut SignalLine,
) -> Result<Won, Ended> {
    let mut known = Known::new();
    let until = tokio::time::sleep(match job.wait {
        Wait::AtMost(wait) => wait,
        // Not a bound, but one is needed: a thousand years.
        Wait::ForEver | Wait::Not => Duration::from_secs(1000 * 365 * 24 * 3600),
    });
    let say = tokio::time::sleep(SAY_AFTER);
    tokio::pin!(until, say);
    'campaign: loop {
        let (elector, mut events) = campaign(job, holder, store.clone())?;
        let ended = loop {
            tokio::select! {
                biased;
                caught = signals.next() => match on_signal(caught) {
                    Some(ended) => break ended,
                    None => continue,
                },
                event = next(&mut events) => match event {
                    Event::Elected(tenure) => {
                        // None: it is over already, because this process was stopped
                        // meanwhile. The next campaign is a new elector's.
                        let Some(work) = tenure.begin_work() else {
                            elector.stop().await;
                            continue 'campaign;
                        };
                        return Ok(Won { elector, tenure, work });
                    }
                    event => if let Some(ended) = known.learn(job, event) {
                        break ended;
                    },
                },
                report = line.next() => if report.is_none() {
                    let text = "the guardian was killed while waiting: nothing was run";
                    break Ended::failed(&Failure::internal(text), Ending::Lost);
                },
                () = &mut until => break known.give_up(job),
                () = &mut say, if !known.said => known.say(job),
            }
        };
        // Finds out about an acquire whose answer is still out, and frees what it got.
        elector.stop().await;
        return Err(ended);
    }
}

fn campaign(job: &Job, holder: &Holder, store: Arc<dyn Store>) -> Result<(Elector, Events), Ended> {
    let refused = |error: Error| Ended::failed(&error.into(), Ending::Refused);
    let mut settings = Settings::new(&job.key).map_err(refused)?;
    settings.holder = Some(holder.clone());
    settings.timing = job.timing;
    // After a loss the work has to end before anybody campaigns again.
    settings.once = true;
    // This runtime has nothing else to do, so the elector needs no thread of its own.
    Elector::builder(store, settings)
        .runtime(tokio::runtime::Handle::current())
        .start_listening()
        .map_err(refused)
}

async fn next(events: &mut Events) -> Event {
    events.next().await.unwrap_or(Event::Stopped)
}

fn on_signal(caught: Caught) -> Option<Ended> {
    if caught.signal == Signal::SIGTSTP {
        // Read instead of suffered: so we do ourselves what it stands for.
        let _ = nix::sys::signal::kill(getpid(), Signal::SIGSTOP);
    }
    signals::ends(caught.signal)
        .then(|| Ended::new(exit::of_signal(caught.signal as i32), Ending::Signalled))
}

impl Known {
    fn new() -> Self {
        Self {
            since: BootClock.now(),
            holder: None,
            error: None,
            failures: 0,
            answered: false,
            said: false,
        }
    }

    /// Whether the store has never answered and was given time enough to.
    fn is_unreachable(&self, now: Moment, ttl: Duration) -> bool {
        !self.answered && self.failures >= FAILURES_MIN && now - self.since >= ttl
    }

    /// Takes in what the elector tells; says if the wait is over.
    fn learn(&mut self, job: &Job, event: Event) -> Option<Ended> {
        match event {
            Event::Following(lease) => {
                self.answered = true;
                self.error = None;
                self.holder = Some(lease);
                (job.wait == Wait::Not).then(|| self.give_up(job))
            }
            Event::StoreError { error, .. } => {
                let fixable = error.kind() != ErrorKind::Unavailable;
                self.error = Some(error);
                self.failures += 1;
                let over = fixable
                    || job.wait == Wait::Not
                    || self.is_unreachable(BootClock.now(), job.timing.ttl);
                over.then(|| self.give_up(job))
            }
            Event::Recovered => {
                self.answered = true;
                self.error = None;
                None
            }
            Event::Stopped => {
                let text = "the elector stopped while waiting: nothing was run";
                Some(Ended::failed(&Failure::internal(text), Ending::Lost))
            }
            _ => None,
        }
    }

    /// The wait is over without the lease.
    fn give_up(&self, job: &Job) -> Ended {
        match (&self.error, &self.holder) {
            (Some(error), _) => {
                let ending = match error.kind() {
                    ErrorKind::Unavailable => Ending::Unreachable,
                    _ => Ending::Refused,
                };
                Ended::failed(&error.clone().into(), ending)
            }
            (None, Some(lease)) => {
                let failure = Failure::new(job.conflict, script::held_by(lease));
                Ended::failed(&failure, Ending::NotAcquired)
            }
            (None, None) => {
                let text = "the store did not answer in time: check that it is reachable";
                Ended::failed(&Failure::new(exit::STORE, text), Ending::Unreachable)
            }
        }
    }

    fn say(&mut self, job: &Job) {
        self.said = true;
        let key = &job.key;
        match (&self.error, &self.holder) {
            (None, Some(lease)) => {
                let rest = lease
                    .rest
                    .map(output::show)
                    .unwrap_or("an unknown time".into());
                let Lease { holder, token, .. } = lease;
                eprintln!(
                    "tenure: waiting for {key}: {holder} has it (token {token}), its term has {rest} left"
                );
            }
            _ => eprintln!("tenure: waiting for {key}: the store has not answered yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_unreachable_after_a_ttl_of_several_failures_without_an_answer() {
        let ttl = Duration::from_secs(30);
        let known = |failures, answered| Known {
            failures,
            answered,
            ..Known::new()
        };
        let after = |known: &Known, seconds| {
            let now = known.since + Duration::from_secs(seconds);
            known.is_unreachable(now, ttl)
        };
        assert!(after(&known(3, false), 30));
        assert!(!after(&known(3, false), 29), "an outage may be short");
        assert!(
            !after(&known(2, false), 3600),
            "this process may have been stopped"
        );
        assert!(
            !after(&known(9, true), 3600),
            "it has answered, and will again"
        );
    }
}
