//! What a script answers, as a lease.

use std::time::{Duration, SystemTime};

use redis::Value;
use tenure::{Attempt, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};

use crate::failure::is_refused_in_script;
use crate::names::Names;
use crate::said::text;

/// The request to step down, as the record has it.
pub(crate) const STEP_DOWN: &str = "step-down";

/// The answer of a script: a word, and often a lease.
#[derive(Debug)]
pub(crate) struct Answer {
    pub word: String,
    parts: Vec<Option<String>>,
}

/// The lease of an answer, and what only the store has to know of it.
#[derive(Debug)]
pub(crate) struct Found {
    pub lease: Lease,
    /// Whether it was written by us and not by others who share the record.
    pub ours: bool,
}

/// How a record that cannot be read is mended.
const MEND: &str = "look at it with `redis-cli`, and delete it there if nobody holds the lease; it was not changed";

impl Answer {
    /// Reads the answer of a script, or the error that the script found.
    pub(crate) fn new(value: &Value, names: &Names) -> Result<Self> {
        let Value::Array(values) = value else {
            return Err(crate::failure::no_sense("this address"));
        };
        let mut parts = values.iter().map(text);
        let word = parts.next().flatten();
        let answer = Self {
            word: word.ok_or_else(|| crate::failure::no_sense("this address"))?,
            parts: parts.collect(),
        };
        if answer.word == "unreadable" {
            return Err(answer.unreadable(names));
        }
        Ok(answer)
    }

    fn unreadable(&self, names: &Names) -> Error {
        let name = match self.part(0) {
            Some("record") => &names.record,
            _ => &names.beside,
        };
        match self.part(1) {
            Some(why) if why.starts_with("WRONGTYPE") => Error::corrupt(format!(
                "the Redis key \"{name}\" has a value of the wrong type: {MEND}"
            )),
            Some(why) if why.contains("NOPERM") || is_refused_in_script(why) => {
                Error::misconfigured(format!(
                    "the user may not read the Redis key \"{name}\": see what is needed with `tenure schema --store …`"
                ))
            }
            why => corrupt(name, why.unwrap_or("it cannot be read")),
        }
    }

    fn part(&self, index: usize) -> Option<&str> {
        self.parts.get(index)?.as_deref()
    }

    fn number(&self, index: usize, what: &str, name: &str) -> Result<u64> {
        let number = self.part(index).and_then(|part| part.parse().ok());
        number.ok_or_else(|| corrupt(name, &format!("its {what} is no number")))
    }

    /// The lease that was renewed: what was not said of it is as the holder knows it.
    pub(crate) fn renewed(
        &self,
        lease: &Lease,
        ttl: Duration,
        names: &Names,
    ) -> Result<(Lease, Option<HolderRequest>)> {
        let ends_ms = self.number(0, "end", &names.beside)?;
        let renewed = Lease {
            ttl,
            rest: Some(ttl),
            version: Version::new(format!("{}.{ends_ms}", lease.token)),
            ..lease.clone()
        };
        Ok((renewed, self.request(1)))
    }

    /// One of a newer version is not for us, and no reason to lose the lease.
    fn request(&self, index: usize) -> Option<HolderRequest> {
        let known = self.part(index).filter(|word| *word == STEP_DOWN);
        known.map(|_| HolderRequest::StepDown)
    }

    /// The lease that the answer shows.
    pub(crate) fn lease(&self, key: &Key, names: &Names) -> Result<Found> {
        let ours = self.part(0) == Some("ours");
        let holder = Holder::new(self.part(1).unwrap_or_default())
            .map_err(|_| corrupt(&names.record, "its value is no holder"))?;
        let token = Token(self.number(2, "token", &names.beside)?);
        let ends_ms = self.number(3, "end", &names.beside)?;
        let now_us = self.number(4, "clock", &names.beside)?;
        let rest = rest(ends_ms, now_us);
        let mut lease = Lease {
            key: key.clone(),
            holder,
            token,
            attempt: None,
            ttl: rest,
            rest: Some(rest),
            acquired_at: None,
            version: Version::new(format!("{token}.{ends_ms}")),
        };
        if !ours {
            // Theirs has no token of its own, and must not look like one of ours.
            lease.version = Version::new(format!("foreign.{ends_ms}"));
            return Ok(Found { lease, ours });
        }
        lease.attempt = Some(Attempt::from_u64(self.number(
            5,
            "attempt",
            &names.beside,
        )?));
        lease.ttl = Duration::from_nanos(self.number(6, "ttl", &names.beside)?);
        lease.rest = Some(rest.min(lease.ttl));
        let since = Duration::from_micros(self.number(7, "beginning", &names.beside)?);
        lease.acquired_at = SystemTime::UNIX_EPOCH.checked_add(since);
        Ok(Found { lease, ours })
    }
}

/// What is left of a term. Redis keeps a record for the whole of its last millisecond.
fn rest(ends_ms: u64, now_us: u64) -> Duration {
    let ends_us = ends_ms.saturating_add(1).saturating_mul(1000);
    Duration::from_micros(ends_us.saturating_sub(now_us))
}

fn corrupt(name: &str, what: &str) -> Error {
    Error::corrupt(format!(
        "the Redis key \"{name}\" cannot be read, {what}: {MEND}"
    ))
}

/// The lease that was published when it was taken; None if that was not understood.
pub(crate) fn published(key: &Key, message: &str) -> Option<Lease> {
    let mut lines = message.split('\n');
    if lines.next()? != "held" {
        return None;
    }
    let mut number = || lines.next()?.parse::<u64>().ok();
    let (token, attempt, ttl, ends_ms, since) =
        (number()?, number()?, number()?, number()?, number()?);
    let holder = Holder::new(lines.next()?).ok()?;
    if lines.next().is_some() {
        return None;
    }
    let ttl = Duration::from_nanos(ttl);
    Some(Lease {
        key: key.clone(),
        holder,
        token: Token(token),
        attempt: Some(Attempt::from_u64(attempt)),
        ttl,
        rest: Some(ttl),
        acquired_at: SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(since)),
        version: Version::new(format!("{token}.{ends_ms}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn names() -> Names {
        Names::new("p:", &key(), 0)
    }

    fn answer(parts: &[&str]) -> Result<Answer> {
        let parts = parts
            .iter()
            .map(|part| Value::BulkString(part.as_bytes().to_vec()));
        Answer::new(&Value::Array(parts.collect()), &names())
    }

    #[test]
    fn a_lease_is_read_with_its_rest() {
        let parts = [
            "held",
            "ours",
            "me",
            "7",
            "1000",
            "900500",
            "5",
            "200000000",
            "800000",
            "step-down",
        ];
        let found = answer(&parts).unwrap().lease(&key(), &names()).unwrap();
        assert!(found.ours);
        assert_eq!(found.lease.token, Token(7));
        assert_eq!(found.lease.rest, Some(Duration::from_micros(100_500)));
        assert_eq!(found.lease.ttl, Duration::from_millis(200));
        let parts = ["held", "foreign", "they", "8", "1000", "900500"];
        let found = answer(&parts).unwrap().lease(&key(), &names()).unwrap();
        assert!(!found.ours);
        assert_eq!(found.lease.attempt, None);
        assert_eq!(found.lease.ttl, Duration::from_micros(100_500));
    }

    #[test]
    fn a_request_is_read_if_it_is_one_that_we_know() {
        let parts = ["held", "ours", "me", "7", "1", "1", "5", "2", "3", ""];
        let lease = answer(&parts)
            .unwrap()
            .lease(&key(), &names())
            .unwrap()
            .lease;
        let known = Some(HolderRequest::StepDown);
        for (word, expected) in [("", None), ("step-down", known), ("pause", None)] {
            let answer = answer(&["renewed", "1000", word]).unwrap();
            let (renewed, request) = answer.renewed(&lease, lease.ttl, &names()).unwrap();
            assert_eq!((renewed.token, request), (Token(7), expected), "{word:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_corrupt_and_names_the_key() {
        let wrong_type = ["unreadable", "record", "WRONGTYPE Operation against a key"];
        for (parts, name) in [
            (&wrong_type[..], "\"p:k\""),
            (
                &["unreadable", "beside", "it has no token"],
                "\"tenure:{p:k}\"",
            ),
        ] {
            let error = answer(parts).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(name), "{error}");
        }
        for parts in [
            ["held", "ours", "", "7", "1", "1", "5", "2", "3", ""],
            ["held", "ours", "me", "x", "1", "1", "5", "2", "3", ""],
            ["held", "ours", "me", "7", "1", "1", "", "2", "3", ""],
            ["held", "ours", "me", "7", "1", "1", "5", "-2", "3", ""],
        ] {
            let error = answer(&parts).unwrap().lease(&key(), &names()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{parts:?}");
        }
    }

    #[test]
    fn what_is_published_is_read_or_left() {
        let lease = published(&key(), "held\n7\n5\n200000000\n1000\n800000\nme").unwrap();
        assert_eq!((lease.token, lease.holder.as_str()), (Token(7), "me"));
        for strange in [
            "",
            "free",
            "held",
            "held\n7\n5\n2\n1\n8\n",
            "held\n7\nx\n2\n1\n8\nme",
        ] {
            assert!(published(&key(), strange).is_none(), "{strange:?}");
        }
    }
}
