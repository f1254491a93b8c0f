//! The record of a key: what HAMode reads and writes too, and beside it what only we need.
//!
//! ```text
//! app_runtime_leases/NAME         the holder, word for word          ─┐ bound to one
//! tenure/app_runtime_leases/NAME  {"attempt":…,"ttl_ns":…, …}        ─┘ etcd lease
//! ```
//!
//! The second counts only if it is bound to the same etcd lease as the first: every tenure
//! has an etcd lease of its own, so a note of an earlier tenure, or beside a record that
//! somebody else wrote, never does.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tenure::{Attempt, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};

use crate::proto::KeyValue;

/// What stands before the key of each note.
pub(crate) const NOTES: &str = "tenure/";

/// The record of a key as it stands in etcd.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) holder: Holder,
    pub(crate) token: Token,
    /// The etcd lease that it is bound to.
    pub(crate) bound_to: i64,
    pub(crate) note: Option<Note>,
    /// The revision of whatever lies at the note's key, 0 if nothing does.
    pub(crate) note_revision: i64,
    /// There is a note of this tenure, but nobody can read it.
    pub(crate) note_unreadable: bool,
}

/// What only we need: it lies beside the record, and HAMode never sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u64>,
    /// As it was asked for; etcd itself counts whole seconds.
    pub(crate) ttl_ns: u64,
    /// By the holder's clock, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acquired_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
}

const STEP_DOWN: &str = "step-down";

impl Note {
    pub(crate) fn new(attempt: Option<Attempt>, ttl: Duration, now: SystemTime) -> Self {
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).ok();
        Self {
            attempt: attempt.map(Attempt::as_u64),
            ttl_ns: nanos(ttl),
            acquired_at_ms: since_1970.and_then(|t| u64::try_from(t.as_millis()).ok()),
            request: None,
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns)
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        // Numbers and text: nothing in it can fail to be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl_ns = nanos(ttl);
        self
    }

    pub(crate) fn with_request(mut self, request: &HolderRequest) -> Result<Self> {
        match request {
            HolderRequest::StepDown => self.request = Some(STEP_DOWN.to_owned()),
            other => {
                return Err(Error::unsupported(format!(
                    "the etcd store cannot carry the request {other:?}"
                )));
            }
        }
        Ok(self)
    }
}

fn nanos(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX)
}

impl Record {
    /// The record of a key, from what lies at its two keys; None if nobody has it.
    pub(crate) fn read(
        key: &Key,
        main: Option<&KeyValue>,
        note: Option<&KeyValue>,
    ) -> Result<Option<Self>> {
        let Some(main) = main else {
            return Ok(None);
        };
        let holder = std::str::from_utf8(&main.value).ok();
        let holder = holder.and_then(|text| Holder::new(text).ok());
        let holder = holder.ok_or_else(|| {
            corrupt(
                key,
                "its value is no holder: it is empty, too long or no text",
            )
        })?;
        if main.lease == 0 {
            return Err(corrupt(
                key,
                "it is bound to no etcd lease and so would never end: delete it with `etcdctl del` if nobody holds it",
            ));
        }
        let revision = u64::try_from(main.create_revision);
        let token = revision.map_err(|_| corrupt(key, "its revision is below zero"))?;
        let ours = note.filter(|note| note.lease == main.lease);
        let read = ours.and_then(|note| serde_json::from_slice(&note.value).ok());
        Ok(Some(Self {
            holder,
            token: Token(token),
            bound_to: main.lease,
            note_unreadable: ours.is_some() && read.is_none(),
            note: read,
            note_revision: note.map_or(0, |note| note.mod_revision),
        }))
    }

    pub(crate) fn is_of(&self, lease: &Lease) -> bool {
        self.holder == lease.holder && self.token == lease.token
    }

    pub(crate) fn attempt(&self) -> Option<Attempt> {
        let number = self.note.as_ref()?.attempt?;
        Some(Attempt::from_u64(number))
    }

    /// What others ask of the holder, as far as this version knows the word for it.
    pub(crate) fn request(&self) -> Option<HolderRequest> {
        let word = self.note.as_ref()?.request.as_deref()?;
        (word == STEP_DOWN).then_some(HolderRequest::StepDown)
    }

    pub(crate) fn lease(&self, key: &Key, ttl: Duration, rest: Option<Duration>) -> Lease {
        let acquired = self.note.as_ref().and_then(|note| note.acquired_at_ms);
        Lease {
            key: key.clone(),
            holder: self.holder.clone(),
            token: self.token,
            attempt: self.attempt(),
            ttl,
            rest: rest.map(|rest| rest.min(ttl)),
            acquired_at: acquired
                .and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))),
            version: version(key, &self.holder, self.token, self.bound_to),
        }
    }
}

fn corrupt(key: &Key, what: &str) -> Error {
    Error::corrupt(format!(
        "the record of {key:?} in etcd cannot be read: {what}"
    ))
}

/// `TOKEN.LEASE.CHECK`: which tenure, bound to which etcd lease, and a check of whose it is.
pub(crate) fn version(key: &Key, holder: &Holder, token: Token, bound_to: i64) -> Version {
    let check = check(key, holder, token, bound_to);
    Version::new(format!("{token}.{bound_to:x}.{check:016x}"))
}

/// The etcd lease of this tenure, if the version that came with it was made for just this
/// key, holder and token. Somebody else's lease must not be kept alive by mistake.
pub(crate) fn bound_to(lease: &Lease) -> Option<i64> {
    let mut parts = lease.version.as_str().split('.').skip(1);
    let bound_to = i64::from_str_radix(parts.next()?, 16).ok()?;
    let expected = version(&lease.key, &lease.holder, lease.token, bound_to);
    (expected == lease.version).then_some(bound_to)
}

/// FNV-1a: no secret, only a guard against mistakes.
fn check(key: &Key, holder: &Holder, token: Token, bound_to: i64) -> u64 {
    let numbers = [token.0.to_be_bytes(), bound_to.to_be_bytes()].concat();
    let parts = [
        key.as_str().as_bytes(),
        b"\0",
        holder.as_str().as_bytes(),
        b"\0",
        &numbers,
    ];
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn kv(value: &[u8], lease: i64) -> KeyValue {
        KeyValue {
            key: b"k".to_vec(),
            create_revision: 7,
            mod_revision: 9,
            value: value.to_vec(),
            lease,
        }
    }

    fn read(main: &KeyValue, note: Option<&KeyValue>) -> Record {
        Record::read(&key(), Some(main), note).unwrap().unwrap()
    }

    #[test]
    fn a_note_counts_only_with_the_lease_of_its_record() {
        let note = Note::new(
            Some(Attempt::from_u64(5)),
            Duration::from_millis(2500),
            SystemTime::UNIX_EPOCH,
        );
        let text = note.to_json();
        let ours = read(&kv(b"a", 3), Some(&kv(&text, 3)));
        assert_eq!(ours.note, Some(note));
        assert_eq!(ours.attempt(), Some(Attempt::from_u64(5)));
        let stale = read(&kv(b"a", 4), Some(&kv(&text, 3)));
        assert_eq!(
            (stale.note, stale.note_unreadable, stale.note_revision),
            (None, false, 9)
        );
        let foreign = read(&kv(b"a", 4), None);
        assert_eq!((foreign.attempt(), foreign.token), (None, Token(7)));
    }

    #[test]
    fn a_newer_note_is_read_and_an_unreadable_one_is_noted() {
        let newer = br#"{"attempt":1,"ttl_ns":2000000000,"request":"pause","more":[1]}"#;
        let record = read(&kv(b"a", 3), Some(&kv(newer, 3)));
        assert_eq!(record.request(), None, "a word that we do not know");
        assert_eq!(record.note.unwrap().request.as_deref(), Some("pause"));
        let broken = read(&kv(b"a", 3), Some(&kv(b"{", 3)));
        assert!(broken.note.is_none() && broken.note_unreadable);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_corrupt() {
        let long = "x".repeat(513);
        for (value, lease) in [
            (&b""[..], 3),
            (b"\xff", 3),
            (b"a\nb", 3),
            (long.as_bytes(), 3),
            (b"a", 0),
        ] {
            let error = Record::read(&key(), Some(&kv(value, lease)), None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("\"k\""), "{error}");
        }
        assert!(
            Record::read(&key(), None, Some(&kv(b"{", 3)))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_version_is_of_one_key_holder_and_token() {
        let record = read(&kv(b"a", 0x7fff_0000_1234), None);
        let lease = record.lease(&key(), Duration::from_secs(3), None);
        assert_eq!(bound_to(&lease), Some(0x7fff_0000_1234));
        let changed: [fn(&mut Lease); 4] = [
            |lease| lease.key = Key::new("l").unwrap(),
            |lease| lease.holder = Holder::new("b").unwrap(),
            |lease| lease.token = Token(8),
            |lease| lease.version = Version::new("7.12.0"),
        ];
        for change in changed {
            let mut other = lease.clone();
            change(&mut other);
            assert_eq!(bound_to(&other), None, "{other:?}");
        }
    }
}
