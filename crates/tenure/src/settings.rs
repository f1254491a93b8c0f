//! The settings of an elector: plain data, so that the host keeps its own configuration.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::timing::Timing;
use crate::words::{Holder, Key};

/// What an elector is to do. Plain data; the store and the clock are given beside it.
///
/// ```
/// use tenure::Settings;
/// let settings: Settings = serde_json::from_str(
///     r#"{ "key": "billing/nightly", "timing": { "ttl": "12s" }, "release_on_stop": false }"#,
/// )?;
/// assert_eq!(settings.key.as_str(), "billing/nightly");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What is to be led.
    pub key: Key,
    /// Who leads. Left out: [`Holder::generate`]. Given: must be unique among live processes.
    #[serde(default)]
    pub holder: Option<Holder>,
    /// The durations. Left out: a ttl of 30 s and what follows from it.
    #[serde(default)]
    pub timing: Timing,
    /// Whether stopping frees the lease at once. On by default; off means that it runs out.
    #[serde(default = "yes")]
    pub release_on_stop: bool,
    /// Work that has not reported progress for this long is no longer renewed. Off by default.
    #[serde(default, with = "humane", skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<Duration>,
    /// How long one that resigned waits before it campaigns again. Left out: the ttl.
    #[serde(default, with = "humane", skip_serializing_if = "Option::is_none")]
    pub rest_after_resign: Option<Duration>,
    /// Whether the elector stops after its first tenure instead of campaigning again.
    #[serde(default)]
    pub once: bool,
}

impl Settings {
    /// The defaults for this key.
    pub fn new(key: impl TryInto<Key, Error = impl Into<Error>>) -> Result<Self> {
        Ok(Self {
            key: key.try_into().map_err(Into::into)?,
            holder: None,
            timing: Timing::default(),
            release_on_stop: true,
            stall_after: None,
            rest_after_resign: None,
            once: false,
        })
    }

    /// These settings with this holder, who must be unique among live processes.
    #[must_use = "this returns the changed settings"]
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// These settings with this timing.
    #[must_use = "this returns the changed settings"]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Whether these settings can hold the promises.
    pub fn check(&self) -> Result<()> {
        self.timing.check()?;
        if self.stall_after.is_some_and(|after| after.is_zero()) {
            return Err(Error::invalid(
                "stall_after is zero: give the work time to report progress, or leave it out",
            ));
        }
        Ok(())
    }

    pub(crate) fn rest(&self) -> Duration {
        self.rest_after_resign.unwrap_or(self.timing.ttl)
    }
}

fn yes() -> bool {
    true
}

mod humane {
    use super::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(&humantime::format_duration(*time)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| humantime::parse_duration(&text).map_err(serde::de::Error::custom))
            .transpose()
    }
}
