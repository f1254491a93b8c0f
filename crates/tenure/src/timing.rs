//! Timing: the durations of an election, the proof that they fit, and what they mean.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::error::{Error, Result};

/// The durations of an election. Plain data; [`check`](Timing::check) tells whether they
/// can hold the promises, and an elector does not start if they cannot.
///
/// What is left out of a configuration file follows from the ttl:
///
/// ```
/// use std::time::Duration;
/// use tenure::Timing;
/// let timing: Timing = serde_json::from_str(r#"{ "ttl": "12s" }"#)?;
/// assert_eq!(timing, Timing::with_ttl(Duration::from_secs(12)));
/// assert_eq!(timing.renew_every, Duration::from_secs(4));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TimingFields", into = "TimingFields")]
pub struct Timing {
    /// How long a lease lasts after its last renewal. Default 30 s.
    pub ttl: Duration,
    /// How often the leader renews. Default a third of the ttl.
    pub renew_every: Duration,
    /// How long one store call may take before it is given up and its outcome is
    /// unknown. Default a sixth of the ttl.
    pub call_timeout: Duration,
    /// How long before its deadline guarded work is told to stop. Default a sixth of the ttl.
    pub grace: Duration,
    /// How often a follower asks when nothing is pushed to it. Default as often as the leader renews.
    pub poll_every: Duration,
    /// By how much clocks may *run* differently. Default 0.01, that is 1 %.
    pub drift: f64,
    /// The part of an interval that chance may take away, so that many processes do not
    /// ask at once. Default 0.1.
    pub jitter: f64,
}

/// The sum that [`Timing::check`] makes, and what the timing means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimingSum {
    /// The renew interval, or a call if that may take longer, + a hung call + the wait
    /// before the next + a second call.
    #[serde(with = "millis", rename = "needed_ms")]
    pub needed: Duration,
    /// The ttl less drift and grace: what there is for it.
    #[serde(with = "millis", rename = "available_ms")]
    pub available: Duration,
    /// How long after sending its last confirmed renewal a leader stops being one.
    #[serde(with = "millis", rename = "deadline_after_ms")]
    pub deadline_after: Duration,
    /// How long after sending its last confirmed renewal guarded work is told to stop.
    #[serde(with = "millis", rename = "told_after_ms")]
    pub told_after: Duration,
    /// The worst time from a leader's death to the next leader, on a store with a clock
    /// whose calls all work but take as long as they may.
    #[serde(with = "millis", rename = "failover_ms_max")]
    pub failover_max: Duration,
    /// The same on a store without a clock, where the record is watched.
    #[serde(with = "millis", rename = "failover_watched_ms_max")]
    pub failover_watched_max: Duration,
    /// The worst time from a release to the next leader where changes are not pushed.
    #[serde(with = "millis", rename = "handover_polled_ms_max")]
    pub handover_polled_max: Duration,
}

impl Timing {
    /// The default timing for this ttl: renewal at a third, calls and grace at a sixth.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self {
            ttl,
            renew_every: ttl / 3,
            call_timeout: ttl / 6,
            grace: ttl / 6,
            poll_every: ttl / 3,
            drift: 0.01,
            jitter: 0.1,
        }
    }

    /// The profile for fast failover: a ttl of 10 s.
    ///
    /// ```
    /// use tenure::Timing;
    /// let sum = Timing::fast().check()?;
    /// assert!(sum.failover_max.as_secs() < 16);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn fast() -> Self {
        Self::with_ttl(Duration::from_secs(10))
    }

    /// The deadline of a tenure whose confirmed request was sent at `sent`.
    pub fn deadline(&self, sent: Moment) -> Moment {
        sent + self.deadline_after()
    }

    /// How long a watcher has to see a record of this ttl unchanged before it has ended.
    pub fn watched_term(&self, record_ttl: Duration) -> Duration {
        record_ttl.saturating_add(scale(record_ttl, self.drift))
    }

    /// The first wait after a failed call, before chance shortens it.
    pub(crate) fn retry_first(&self) -> Duration {
        (self.call_timeout / 10).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    /// The longest wait between failed calls.
    pub(crate) fn retry_max(&self) -> Duration {
        self.poll_every.max(self.retry_first())
    }

    /// Within what time after an expected expiry the followers ask, spread by chance.
    pub(crate) fn spread(&self) -> Duration {
        scale(self.renew_every, self.jitter)
    }

    fn deadline_after(&self) -> Duration {
        self.ttl.saturating_sub(scale(self.ttl, self.drift))
    }

    /// Whether this timing can hold the promises. If not, the error has the sum written out.
    ///
    /// A leader must be able to lose one call to a hang and still renew before guarded
    /// work has to be told to stop.
    pub fn check(&self) -> Result<TimingSum> {
        self.check_ranges()?;
        let sum = self.sum();
        if sum.needed > sum.available {
            return Err(Error::invalid(format!(
                "this timing cannot hold: {}; needed {} > available {}: {}",
                self.needed_text(),
                show(sum.needed),
                show(sum.available),
                "raise the ttl, or lower renew interval, call timeout or grace"
            )));
        }
        Ok(sum)
    }

    fn check_ranges(&self) -> Result<()> {
        let durations = [
            ("ttl", self.ttl),
            ("renew interval", self.renew_every),
            ("call timeout", self.call_timeout),
            ("poll interval", self.poll_every),
        ];
        for (name, duration) in durations {
            if duration.is_zero() {
                return Err(Error::invalid(format!(
                    "the {name} is zero: give it a positive time, such as 10s"
                )));
            }
            if duration > Duration::from_secs(100 * 365 * 24 * 3600) {
                return Err(Error::invalid(format!(
                    "the {name} is longer than a hundred years: give it a shorter time"
                )));
            }
        }
        for (name, part, below) in [("drift", self.drift, 0.5), ("jitter", self.jitter, 1.0)] {
            if !(0.0..below).contains(&part) {
                return Err(Error::invalid(format!(
                    "the {name} is {part}: give it a fraction from 0 to below {below}"
                )));
            }
        }
        Ok(())
    }

    fn sum(&self) -> TimingSum {
        let deadline_after = self.deadline_after();
        let available = deadline_after.saturating_sub(self.grace);
        let ended = self.watched_term(self.ttl);
        let call = self.call_timeout;
        // A call of a follower may be under way when the lease ends; the next one wins.
        let taken = all([self.spread(), call, call]);
        TimingSum {
            needed: all([self.next_renewal(), call, call, self.retry_first()]),
            available,
            deadline_after,
            told_after: available,
            // A renewal that was on its way when the leader died still counts.
            failover_max: all([call, ended, taken]),
            failover_watched_max: all([call, self.poll_every, call, ended, taken]),
            handover_polled_max: all([self.poll_every, call, call]),
        }
    }

    /// When the renewal after this one is sent at the latest: not before its answer.
    fn next_renewal(&self) -> Duration {
        self.renew_every.max(self.call_timeout)
    }

    fn needed_text(&self) -> String {
        let waits = if self.renew_every < self.call_timeout {
            " (no sooner than a call may take)"
        } else {
            ""
        };
        format!(
            "renew interval {}{waits} + hung call {} + wait {} + next call {} must fit into ttl {} - drift {} - grace {}",
            show(self.next_renewal()),
            show(self.call_timeout),
            show(self.retry_first()),
            show(self.call_timeout),
            show(self.ttl),
            show(scale(self.ttl, self.drift)),
            show(self.grace),
        )
    }
}

/// The sum written out for people: what has to fit into what, and what it means.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.sum();
        let fits = if sum.needed <= sum.available {
            format!("fits, {} to spare", show(sum.available - sum.needed))
        } else {
            "does not fit".into()
        };
        writeln!(f, "{}:", self.needed_text())?;
        writeln!(
            f,
            "  needed {}, available {}: {fits}",
            show(sum.needed),
            show(sum.available)
        )?;
        writeln!(f, "after the last confirmed renewal was sent:")?;
        writeln!(
            f,
            "  {:>9}  guarded work is told to stop",
            show(sum.told_after)
        )?;
        writeln!(
            f,
            "  {:>9}  the leader is no longer one",
            show(sum.deadline_after)
        )?;
        writeln!(
            f,
            "worst case until the next leader, if every call takes as long as it may:"
        )?;
        writeln!(f, "  {:>9}  after a crash", show(sum.failover_max))?;
        writeln!(
            f,
            "  {:>9}  after a crash, where the store has no clock (objects, Kubernetes)",
            show(sum.failover_watched_max)
        )?;
        write!(
            f,
            "  {:>9}  after a release, where the store cannot push changes",
            show(sum.handover_polled_max)
        )
    }
}

impl Default for Timing {
    /// ttl 30 s, renewal every 10 s.
    fn default() -> Self {
        Self::with_ttl(Duration::from_secs(30))
    }
}

/// A duration as people read it, to the millisecond.
pub(crate) fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if duration < Duration::from_millis(10) {
        return humantime::format_duration(duration).to_string();
    }
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// The sum; also of what nobody has checked yet.
fn all<const N: usize>(durations: [Duration; N]) -> Duration {
    let sum = durations.into_iter();
    sum.fold(Duration::ZERO, Duration::saturating_add)
}

fn scale(duration: Duration, part: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * part).unwrap_or(Duration::ZERO)
}

/// The form of [`Timing`] in configuration files: durations as text, all but optional.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingFields {
    ttl: Option<Text>,
    renew_every: Option<Text>,
    call_timeout: Option<Text>,
    grace: Option<Text>,
    poll_every: Option<Text>,
    drift: Option<f64>,
    jitter: Option<f64>,
}

/// A duration written `30s` or `1m 30s`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Text(Duration);

impl TryFrom<String> for Text {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        humantime::parse_duration(&text).map(Text).map_err(|e| {
            format!("\"{text}\" is no duration ({e}): write it like \"30s\" or \"500ms\"")
        })
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        humantime::format_duration(text.0).to_string()
    }
}

impl TryFrom<TimingFields> for Timing {
    type Error = Error;
    fn try_from(fields: TimingFields) -> Result<Self> {
        let base = fields
            .ttl
            .map_or_else(Timing::default, |ttl| Timing::with_ttl(ttl.0));
        Ok(Self {
            ttl: base.ttl,
            renew_every: fields.renew_every.map_or(base.renew_every, |t| t.0),
            call_timeout: fields.call_timeout.map_or(base.call_timeout, |t| t.0),
            grace: fields.grace.map_or(base.grace, |t| t.0),
            poll_every: fields.poll_every.map_or(base.poll_every, |t| t.0),
            drift: fields.drift.unwrap_or(base.drift),
            jitter: fields.jitter.unwrap_or(base.jitter),
        })
    }
}

impl From<Timing> for TimingFields {
    fn from(timing: Timing) -> Self {
        Self {
            ttl: Some(Text(timing.ttl)),
            renew_every: Some(Text(timing.renew_every)),
            call_timeout: Some(Text(timing.call_timeout)),
            grace: Some(Text(timing.grace)),
            poll_every: Some(Text(timing.poll_every)),
            drift: Some(timing.drift),
            jitter: Some(timing.jitter),
        }
    }
}

mod millis {
    use super::Duration;
    pub fn serialize<S: serde::Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_hold() {
        for timing in [Timing::default(), Timing::fast()] {
            timing.check().unwrap();
        }
        for ttl_ms in [10, 100, 999, 3_000, 86_400_000] {
            Timing::with_ttl(Duration::from_millis(ttl_ms))
                .check()
                .unwrap();
        }
    }

    #[test]
    fn what_cannot_hold_is_refused_with_the_sum() {
        let timing = Timing {
            renew_every: Duration::from_secs(20),
            ..Timing::default()
        };
        let text = timing.check().unwrap_err().to_string();
        assert!(
            text.contains("needed 30s 500ms > available 24s 700ms"),
            "{text}"
        );
        assert!(text.contains("renew interval 20s"), "{text}");
    }

    #[test]
    fn a_renewal_waits_for_the_answer_to_the_last_one() {
        let timing = Timing {
            renew_every: Duration::from_secs(1),
            call_timeout: Duration::from_secs(9),
            ..Timing::default()
        };
        let text = timing.check().unwrap_err().to_string();
        assert!(text.contains("no sooner than a call may take"), "{text}");
    }

    #[test]
    fn zero_and_nonsense_are_refused() {
        assert!(Timing::with_ttl(Duration::ZERO).check().is_err());
        for drift in [f64::NAN, -0.1, 0.5, f64::INFINITY] {
            let timing = Timing {
                drift,
                ..Timing::default()
            };
            assert!(timing.check().is_err(), "{drift}");
        }
        assert!(serde_json::from_str::<Timing>(r#"{"tll": "3s"}"#).is_err());
    }

    #[test]
    fn a_hundred_years_are_enough() {
        let years = |count: u64| Duration::from_secs(count * 365 * 24 * 3600);
        let timing = Timing::with_ttl(years(100));
        assert!(timing.check().is_ok(), "{:?}", timing.check());
        let longer = Timing::with_ttl(years(100) + Duration::from_secs(1));
        let text = longer.check().unwrap_err().to_string();
        assert!(text.contains("a hundred years"), "{text}");
    }

    #[test]
    fn what_just_fits_holds_and_a_bit_more_does_not() {
        let mut timing = Timing {
            drift: 0.0,
            ..Timing::default()
        };
        let sum = timing.check().unwrap();
        timing.grace += sum.available - sum.needed;
        assert!(timing.check().is_ok());
        timing.grace += Duration::from_nanos(1);
        assert!(timing.check().is_err());
    }

    #[test]
    fn the_fast_profile_and_the_waits_between_failures() {
        let fast = Timing::fast();
        assert_eq!(fast.ttl, Duration::from_secs(10));
        assert_eq!(fast.retry_max(), fast.poll_every);
        let hasty = Timing {
            poll_every: Duration::from_millis(1),
            ..fast
        };
        assert_eq!(hasty.retry_max(), hasty.retry_first());
    }

    #[test]
    fn serde_round_trip() {
        let timing = Timing::fast();
        let text = serde_json::to_string(&timing).unwrap();
        assert_eq!(serde_json::from_str::<Timing>(&text).unwrap(), timing);
    }

    #[test]
    fn the_deadline_is_before_the_record_ends() {
        let timing = Timing::default();
        let sent = Moment::from_nanos(5);
        assert_eq!(timing.deadline(sent) - sent, Duration::from_millis(29_700));
        assert_eq!(
            timing.watched_term(timing.ttl),
            Duration::from_millis(30_300)
        );
    }
}
