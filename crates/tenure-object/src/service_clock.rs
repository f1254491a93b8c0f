//! The service's clock between two answers, for what people and peers read in a record.
//!
//! No decision of ours rests on it. Peers that compare `leaseUntilUtc` with their clocks
//! see our lease end when it ends even if the clock of this machine is wrong.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tenure::{Clock, Moment};

#[derive(Clone)]
pub(crate) struct ServiceClock {
    clock: Arc<dyn Clock>,
    /// What the service showed last, and when that was.
    shown: Arc<Mutex<Shown>>,
}

type Shown = Option<(DateTime<Utc>, Moment)>;

impl ServiceClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            shown: Arc::default(),
        }
    }

    /// Takes in the `Date` of an answer.
    pub(crate) fn show(&self, date: Option<DateTime<Utc>>) {
        if let Some(date) = date {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            *shown = Some((date, self.clock.now()));
        }
    }

    /// About what the service would show now; this machine's clock if it never did.
    pub(crate) fn about_now(&self) -> DateTime<Utc> {
        let shown = *self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match shown {
            Some((date, at)) => later(date, self.clock.now() - at),
            None => DateTime::from(self.clock.wall()),
        };
        // A record keeps microseconds: what is handed out has to be what is read later.
        DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap_or(now)
    }

    /// When a term that begins now ends. A second more, which `Date` does not show.
    pub(crate) fn end_of(&self, ttl: Duration) -> DateTime<Utc> {
        later(self.about_now(), ttl.saturating_add(Duration::from_secs(1)))
    }
}

fn later(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
    time.checked_add_signed(by)
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

impl fmt::Debug for ServiceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceClock").finish_non_exhaustive()
    }
}
