//! The record: JSON with the two fields of LeaderElection.S3, and ours beside them.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use tenure::{Attempt, Error, Holder, HolderRequest, Key, Result, Token};

/// Nothing that is a lease is longer.
pub(crate) const BYTES_MAX: usize = 16 * 1024;
/// How much of something that is no lease is shown.
const SHOWN_MAX: usize = 120;
/// What JavaScript can still count with.
const TOKEN_LIMIT: u64 = 1 << 53;

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// None once it was released.
    pub(crate) holder: Option<Holder>,
    /// What peers that compare clocks go by; we never do.
    pub(crate) until: DateTime<Utc>,
    /// None in a record of a peer that knows nothing of us.
    pub(crate) own: Option<Own>,
}

/// Our part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) ttl: Duration,
    pub(crate) acquired_at: Option<SystemTime>,
    /// Random for each write: no two have the same bytes, so no two have the same ETag.
    pub(crate) nonce: String,
    pub(crate) request: Option<HolderRequest>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    holder_id: Option<String>,
    lease_until_utc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenure: Option<OwnBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnBody {
    key: String,
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
    ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquired_at_utc: Option<String>,
    nonce: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<HolderRequest>,
}

impl Record {
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let own = self.own.as_ref().map(|own| OwnBody {
            key: own.key.as_str().to_owned(),
            token: own.token.0,
            attempt: own.attempt.map(Attempt::as_u64),
            ttl_ms: millis(own.ttl),
            acquired_at_utc: own.acquired_at.map(|at| text(at.into())),
            nonce: own.nonce.clone(),
            request: own.request.clone(),
        });
        let body = Body {
            // Peers take an empty holder for nobody.
            holder_id: Some(self.holder.as_ref().map_or("", Holder::as_str).to_owned()),
            lease_until_utc: text(self.until),
            tenure: own,
        };
        // Text and numbers only: nothing in it can fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// What the object of this key says, checked. Something else is an error that shows
    /// it, and never overwritten.
    pub(crate) fn from_json(object: &str, key: &Key, bytes: &[u8]) -> Result<Self> {
        let wrong = |why: &str| no_lease(object, why, bytes);
        if bytes.len() > BYTES_MAX {
            return Err(wrong("it is too long for one"));
        }
        if bytes.is_empty() {
            return Err(wrong("it is empty"));
        }
        let body: Body = serde_json::from_slice(bytes)
            .map_err(|_| wrong("it is no JSON with holderId and leaseUntilUtc"))?;
        let holder = body.holder_id.filter(|holder| !holder.is_empty());
        let holder = holder.map(Holder::new).transpose();
        let holder = holder.map_err(|_| wrong("its holderId cannot be a holder"))?;
        let until =
            time(&body.lease_until_utc).ok_or_else(|| wrong("its leaseUntilUtc is no time"))?;
        let own = match body.tenure {
            None => None,
            Some(own) => Some(own.check().map_err(wrong)?),
        };
        if let Some(own) = own.as_ref().filter(|own| own.key != *key) {
            return Err(Error::corrupt(format!(
                "the object {object} is the lease of the key \"{}\", not of \"{key}\": give each key an object of its own",
                own.key
            )));
        }
        Ok(Self { holder, until, own })
    }

    pub(crate) fn nonce(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.nonce.as_str())
    }
}

impl OwnBody {
    fn check(self) -> std::result::Result<Own, &'static str> {
        if self.token == 0 || self.token >= TOKEN_LIMIT {
            return Err("its token is none");
        }
        if self.ttl_ms == 0 {
            return Err("its term is none");
        }
        let acquired_at = match self.acquired_at_utc {
            None => None,
            Some(at) => Some(time(&at).ok_or("its acquiredAtUtc is no time")?.into()),
        };
        Ok(Own {
            key: Key::new(self.key).map_err(|_| "its key is none")?,
            token: Token(self.token),
            attempt: self.attempt.map(Attempt::from_u64),
            ttl: Duration::from_millis(self.ttl_ms),
            acquired_at,
            nonce: self.nonce,
            request: self.request,
        })
    }
}

/// The error of an object that is no lease. It shows what is there, cut short.
pub(crate) fn no_lease(object: &str, why: &str, bytes: &[u8]) -> Error {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN_MAX)]);
    let mut shown: String = text
        .chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().count() > SHOWN_MAX || bytes.len() > 4 * SHOWN_MAX {
        shown.push('…');
    }
    Error::corrupt(format!(
        "the object {object} is no lease, {why}: look at it, and move it away if it may go; it begins with: {shown}"
    ))
}

/// Whole milliseconds, never less than asked for.
pub(crate) fn millis(ttl: Duration) -> u64 {
    let up = ttl.as_nanos().div_ceil(1_000_000);
    u64::try_from(up).unwrap_or(u64::MAX)
}

fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// RFC 3339; .NET leaves the zone out if it was not told that the time is UTC.
fn time(text: &str) -> Option<DateTime<Utc>> {
    let zoned = DateTime::parse_from_rfc3339(text).map(|time| time.with_timezone(&Utc));
    zoned
        .or_else(|_| DateTime::parse_from_rfc3339(&format!("{text}Z")).map(|time| time.to_utc()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tenure::ErrorKind;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn own() -> Record {
        let at: DateTime<Utc> = DateTime::from_timestamp(1_800_000_000, 123_456_000).unwrap();
        Record {
            holder: Some(Holder::new("a").unwrap()),
            until: at,
            own: Some(Own {
                key: key(),
                token: Token(5),
                attempt: Some(Attempt::first(3)),
                ttl: Duration::from_millis(1500),
                acquired_at: Some(at.into()),
                nonce: "n".into(),
                request: Some(HolderRequest::StepDown),
            }),
        }
    }

    #[test]
    fn there_and_back() {
        let mut record = own();
        assert_eq!(
            Record::from_json("o", &key(), &record.to_json()).unwrap(),
            record
        );
        record.holder = None;
        assert_eq!(
            Record::from_json("o", &key(), &record.to_json()).unwrap(),
            record
        );
        let text = String::from_utf8(record.to_json()).unwrap();
        assert!(text.contains("\"holderId\":\"\""), "{text}");
    }

    #[test]
    fn what_a_peer_has_written_is_understood() {
        for (body, held) in [
            (
                r#"{"holderId":"web-1","leaseUntilUtc":"2026-11-16T03:50:00.1234567Z"}"#,
                true,
            ),
            (
                r#"{"holderId":"web-1","leaseUntilUtc":"2026-11-16T03:50:00"}"#,
                true,
            ),
            (
                r#"{"leaseUntilUtc":"2026-11-16T03:50:00+01:00","holderId":"web-1","more":[1]}"#,
                true,
            ),
            (
                r#"{"holderId":"","leaseUntilUtc":"0001-01-01T00:00:00"}"#,
                false,
            ),
            (
                r#"{"holderId":null,"leaseUntilUtc":"2026-11-16T03:50:00Z"}"#,
                false,
            ),
        ] {
            let record = Record::from_json("o", &key(), body.as_bytes()).unwrap();
            assert_eq!(record.holder.is_some(), held, "{body}");
            assert_eq!(record.own, None);
        }
    }

    #[test]
    fn what_is_no_lease_is_shown_and_cut_short() {
        let with_token = |token: &str| {
            format!(
                r#"{{"holderId":"a","leaseUntilUtc":"2026-11-16T03:50:00Z","tenure":{{"key":"k","token":{token},"ttlMs":1,"nonce":"n"}}}}"#
            )
        };
        for body in [
            String::new(),
            "hello".into(),
            "{}".into(),
            "[]".into(),
            r#"{"holderId":"a","leaseUntilUtc":"tomorrow"}"#.into(),
            r#"{"holderId":"a\nb","leaseUntilUtc":"2026-11-16T03:50:00Z"}"#.into(),
            r#"{"holderId":7,"leaseUntilUtc":"2026-11-16T03:50:00Z"}"#.into(),
            with_token("0"),
            with_token("9007199254740992"),
            with_token("-1"),
            with_token("\"1\""),
            "\u{1b}[31m\n".repeat(50_000),
        ] {
            let error = Record::from_json("o", &key(), body.as_bytes()).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
            assert!(
                text.len() < 1000 && text.lines().count() == 1 && !text.contains('\u{1b}'),
                "{text}"
            );
        }
        assert!(Record::from_json("o", &key(), with_token("1").as_bytes()).is_ok());
        let other = Key::new("other").unwrap();
        let text = Record::from_json("o", &other, with_token("1").as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("\"k\"") && text.contains("\"other\""),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = Record::from_json("o", &key(), &bytes);
        }

        #[test]
        fn no_term_is_cut(nanos in 1_u64..u64::MAX / 2) {
            let ttl = Duration::from_nanos(nanos);
            prop_assert!(Duration::from_millis(millis(ttl)) >= ttl);
        }
    }
}
