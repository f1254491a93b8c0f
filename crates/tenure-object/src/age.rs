//! The age of a record by the service's own clock, and what has ended by it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::objects::{Found, Read};

/// What is taken off an age: two times in whole seconds (one second), and several front
/// ends of one service whose clocks differ by less than the rest.
pub const MARGIN: Duration = Duration::from_secs(10);

/// A clock may run faster than another by this part. More than any drift that an elector
/// is likely to be set to.
const DRIFT_PART: u32 = 10;

/// The term that a record of a peer has at least: the lease duration that LeaderElection.S3
/// has unless told otherwise.
pub(crate) const PEER_TTL: Duration = Duration::from_secs(30);

impl Found {
    /// How long the term is. Of a peer's record it is the time from its writing, by the
    /// service's clock, to its end, by the peer's; never less than the peers' own setting,
    /// so a peer's wrong clock can make it longer, but not shorter.
    pub(crate) fn ttl(&self, peer_ttl: Duration, most: Duration) -> Duration {
        match &self.record.own {
            Some(own) => own.ttl,
            None => {
                let rest = self.record.until - self.written_at;
                let rest = rest.to_std().unwrap_or_default();
                rest.max(peer_ttl).min(most)
            }
        }
    }
}

impl Read {
    /// Whether the record has ended long ago, by the service's clock alone: when it was
    /// written and when it was shown are both the service's word.
    pub(crate) fn long_ended(&self, written_at: DateTime<Utc>, ttl: Duration) -> bool {
        let Some(date) = self.date else {
            return false; // Nobody saw the clock: the record has to be watched.
        };
        let term = ttl.saturating_add(ttl / DRIFT_PART).saturating_add(MARGIN);
        (date - written_at).to_std().is_ok_and(|age| age > term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_to_be_beyond_all_doubt() {
        let at = |seconds: i64| DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap();
        let ttl = Duration::from_secs(30);
        let long_ended = |seconds: i64| {
            let read = Read {
                found: None,
                date: Some(at(seconds)),
            };
            read.long_ended(at(0), ttl)
        };
        assert!(!long_ended(-3600), "a clock that was set back");
        assert!(!long_ended(31));
        assert!(!long_ended(43));
        assert!(long_ended(44));
        let unseen = Read {
            found: None,
            date: None,
        };
        assert!(!unseen.long_ended(at(-1_000_000), ttl));
        let endless = Read {
            found: None,
            date: Some(at(0)),
        };
        assert!(!endless.long_ended(at(-1_000_000), Duration::MAX));
    }
}
