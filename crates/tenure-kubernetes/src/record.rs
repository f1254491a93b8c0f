//! A Lease object as the API server gave it, read with care and changed in place.
//!
//! It is kept as JSON, so that whatever else stands in it goes back word for word.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tenure::{AcquireRequest, Error, Holder, HolderRequest, Key, Lease, Result, Token, Version};

use crate::names;
use crate::note::{self, Note};

/// Every language can hold a smaller one.
const TOKEN_LIMIT: u64 = 1 << 53;

/// A Lease object whose parts have been checked.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    key: Key,
    object: Map<String, Value>,
    version: u64,
    /// None: nobody has it.
    holder: Option<Holder>,
    ttl: Duration,
    transitions: Option<i32>,
    note: Option<Note>,
}

impl Record {
    /// Reads the object that lies there for this key.
    pub(crate) fn read(key: &Key, object: Map<String, Value>) -> Result<Self> {
        let wrong = |what: &str| corrupt(key, &object, what);
        let version = text(&object, "/metadata/resourceVersion");
        let version = version.and_then(|text| text.parse().ok());
        let version = version.filter(|number| *number > 0 && *number < TOKEN_LIMIT);
        let version = version.ok_or_else(|| {
            wrong("has a resourceVersion that is no number below 2^53, so it gives no token")
        })?;
        let holder = match text(&object, "/spec/holderIdentity") {
            None | Some("") => None,
            Some(name) => Some(Holder::new(name).map_err(|_| {
                wrong("has a holderIdentity that no holder can have: it is too long or has a control character")
            })?),
        };
        let seconds = number(&object, "/spec/leaseDurationSeconds");
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let ttl = match seconds.filter(|seconds| *seconds > 0) {
            Some(seconds) => Duration::from_secs(seconds),
            None if holder.is_none() => Duration::from_secs(1),
            None => {
                return Err(wrong(
                    "has a holderIdentity and no leaseDurationSeconds, so it would never end",
                ));
            }
        };
        let transitions = number(&object, "/spec/leaseTransitions");
        let transitions = transitions.and_then(|number| i32::try_from(number).ok());
        let note = match annotation(&object) {
            None => None,
            Some(text) => Some(read_note(key, text).map_err(wrong)?),
        };
        Ok(Self {
            key: key.clone(),
            version,
            holder,
            ttl,
            transitions,
            note,
            object,
        })
    }

    /// The object of a key that nobody ever had, to be created.
    pub(crate) fn empty(key: &Key, namespace: &str) -> Map<String, Value> {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": names::name(key), "namespace": namespace },
            "spec": {},
        });
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }

    pub(crate) fn version(&self) -> Version {
        Version::new(self.version.to_string())
    }

    /// The whole object, to be sent back.
    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// The note, if it is of the present tenure.
    pub(crate) fn own_note(&self) -> Option<&Note> {
        let holder = self.holder.as_ref()?;
        self.note.as_ref().filter(|note| {
            note.holder == holder.as_str()
                && Some(note.transitions) == self.transitions
                && Some(note.acquired.as_str()) == text(&self.object, "/spec/acquireTime")
        })
    }

    /// The token of the present tenure, or of the last one if nobody has it.
    ///
    /// One that tenure did not write has no token of its own: it counts as one more than
    /// the last for each change of hands, which is never more than its resourceVersion.
    pub(crate) fn token(&self) -> Token {
        if let Some(note) = self.own_note() {
            return note.token();
        }
        let (last, at) = match &self.note {
            Some(note) => (note.token, note.transitions),
            None => (0, -1),
        };
        if self.holder.is_none() && self.note.is_some() && self.transitions == Some(at) {
            return Token(last);
        }
        let changes = i64::from(self.transitions.unwrap_or(0)) - i64::from(at);
        let changes = u64::try_from(changes.max(1)).unwrap_or(1);
        Token(last.saturating_add(changes).min(self.version.max(last + 1)))
    }

    /// The token of the tenure that is written over this state: the resourceVersion of the
    /// state that it replaces. That grows with every write to the cluster, also when the
    /// Lease is deleted in between.
    fn next_token(&self) -> Token {
        Token(self.version.max(self.token().0.saturating_add(1)))
    }

    /// The lease of the present holder.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let acquired_at = text(&self.object, "/spec/acquireTime");
        Some(Lease {
            key: self.key.clone(),
            holder: self.holder.clone()?,
            token: self.token(),
            attempt: self.own_note().map(Note::attempt),
            ttl: self.ttl,
            rest: None,
            acquired_at: acquired_at.and_then(|text| humantime::parse_rfc3339(text).ok()),
            version: self.version(),
        })
    }

    /// Whether the present tenure was granted to this attempt.
    pub(crate) fn is_of(&self, request: &AcquireRequest) -> bool {
        self.holder.as_ref() == Some(&request.holder)
            && self
                .own_note()
                .is_some_and(|note| note.attempt() == request.attempt)
    }

    /// Whether this is the tenure of this lease.
    pub(crate) fn is_tenure(&self, lease: &Lease) -> bool {
        self.holder.as_ref() == Some(&lease.holder) && self.token() == lease.token
    }

    /// The object in which the caller has taken the Lease.
    pub(crate) fn taken(&self, request: &AcquireRequest, now: SystemTime) -> Result<Self> {
        let token = self.next_token();
        if token.0 >= TOKEN_LIMIT {
            return Err(corrupt(
                &self.key,
                &self.object,
                "has come to the greatest token that can be",
            ));
        }
        // As client-go counts: a Lease that nobody had before begins at 0.
        let transitions = match self.transitions {
            Some(number) => number.checked_add(1).unwrap_or(0),
            None => 0,
        };
        let now = time(now);
        let note = Note {
            key: self.key.as_str().to_owned(),
            holder: request.holder.as_str().to_owned(),
            token: token.0,
            attempt: request.attempt.as_u64(),
            transitions,
            acquired: now.clone(),
            request: None,
        };
        let mut object = self.object.clone();
        let spec = part(&mut object, "spec");
        spec.insert("holderIdentity".into(), request.holder.as_str().into());
        spec.insert("leaseDurationSeconds".into(), request.ttl.as_secs().into());
        spec.insert("acquireTime".into(), now.clone().into());
        spec.insert("renewTime".into(), now.into());
        spec.insert("leaseTransitions".into(), transitions.into());
        write_note(&mut object, &note)?;
        self.with(object)
    }

    /// The object whose term has begun anew.
    pub(crate) fn renewed(&self, ttl: Duration, now: SystemTime) -> Result<Self> {
        let mut object = self.object.clone();
        let before = text(&object, "/spec/renewTime");
        let mut now_text = time(now);
        if before == Some(now_text.as_str()) {
            // A renewal has to be seen, also if our clock stands still.
            now_text = time(now + Duration::from_micros(1));
        }
        let spec = part(&mut object, "spec");
        spec.insert("leaseDurationSeconds".into(), ttl.as_secs().into());
        spec.insert("renewTime".into(), now_text.into());
        self.with(object)
    }

    /// The object that nobody has, as client-go leaves it.
    pub(crate) fn freed(&self, now: SystemTime) -> Result<Self> {
        let mut object = self.object.clone();
        let now = time(now);
        let spec = part(&mut object, "spec");
        spec.insert("holderIdentity".into(), "".into());
        spec.insert("leaseDurationSeconds".into(), 1.into());
        spec.insert("acquireTime".into(), now.clone().into());
        spec.insert("renewTime".into(), now.into());
        let mut note = self.note.clone();
        if let Some(note) = &mut note {
            note.request = None;
            write_note(&mut object, note)?;
        }
        self.with(object)
    }

    /// The object with a request to its holder; none if the holder's program reads none.
    pub(crate) fn asked(&self, request: &HolderRequest) -> Result<Option<Self>> {
        let Some(note) = self.own_note() else {
            return Ok(None);
        };
        let mut note = note.clone();
        note.request = Some(request.clone());
        let mut object = self.object.clone();
        write_note(&mut object, &note)?;
        self.with(object).map(Some)
    }

    /// The request to the present holder.
    pub(crate) fn request(&self) -> Option<HolderRequest> {
        self.own_note()?.request.clone()
    }

    fn with(&self, object: Map<String, Value>) -> Result<Self> {
        Self::read(&self.key, object)
    }
}

/// Microseconds, as Kubernetes writes them.
pub(crate) fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(time).to_string()
}

fn corrupt(key: &Key, object: &Map<String, Value>, what: &str) -> Error {
    let name = names::name(key);
    let namespace = text(object, "/metadata/namespace").unwrap_or("NAMESPACE");
    Error::corrupt(format!(
        "the Lease {namespace}/{name} of {key:?} {what}: look with `kubectl get lease -n {namespace} {name} -o yaml`, mend it or delete it"
    ))
}

fn pointer<'o>(object: &'o Map<String, Value>, path: &str) -> Option<&'o Value> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
    object.get(first)?.get(rest)
}

fn text<'o>(object: &'o Map<String, Value>, path: &str) -> Option<&'o str> {
    pointer(object, path)?.as_str()
}

fn number(object: &Map<String, Value>, path: &str) -> Option<i64> {
    pointer(object, path)?.as_i64()
}

fn annotation(object: &Map<String, Value>) -> Option<&str> {
    pointer(object, "/metadata/annotations")?
        .get(note::NAME)?
        .as_str()
}

fn read_note(key: &Key, text: &str) -> std::result::Result<Note, &'static str> {
    let note: Note = serde_json::from_str(text).map_err(
        |_| "has an annotation tenure/note that cannot be read, so its last token is unknown",
    )?;
    if note.key != key.as_str() {
        return Err("is another key's, by its annotation tenure/note");
    }
    if note.token >= TOKEN_LIMIT {
        return Err("has a token that cannot be, in its annotation tenure/note");
    }
    Ok(note)
}

/// A map inside the object, made if it is not there.
fn part<'o>(object: &'o mut Map<String, Value>, name: &str) -> &'o mut Map<String, Value> {
    let value = object.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

fn write_note(object: &mut Map<String, Value>, note: &Note) -> Result<()> {
    let text = serde_json::to_string(note)
        .map_err(|e| Error::invalid(format!("the note cannot be written as JSON: {e}")))?;
    let annotations = part(part(object, "metadata"), "annotations");
    annotations.insert(note::NAME.into(), text.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Attempt;

    fn record(version: &str) -> Record {
        let key = Key::new("a").unwrap();
        let mut object = Record::empty(&key, "ns");
        part(&mut object, "metadata").insert("resourceVersion".into(), version.into());
        Record::read(&key, object).unwrap()
    }

    fn request() -> AcquireRequest {
        AcquireRequest {
            key: Key::new("a").unwrap(),
            holder: Holder::new("me").unwrap(),
            ttl: Duration::from_secs(9),
            attempt: Attempt::first(1),
            ended: None,
        }
    }

    #[test]
    fn each_renewal_is_seen_even_if_the_clock_stands_still() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let taken = record("7").taken(&request(), now).unwrap();
        let once = taken.renewed(request().ttl, now).unwrap();
        let twice = once.renewed(request().ttl, now).unwrap();
        let shown = |record: &Record| text(&record.object, "/spec/renewTime").unwrap().to_owned();
        assert_ne!(shown(&taken), shown(&once));
        assert_ne!(shown(&once), shown(&twice));
        assert!(twice.is_of(&request()), "the tenure is the same");
    }

    #[test]
    fn a_token_is_the_version_that_was_replaced_and_never_less_than_the_last() {
        let now = SystemTime::UNIX_EPOCH;
        let taken = record("700").taken(&request(), now).unwrap();
        assert_eq!(taken.token(), Token(700));
        // A cluster that was restored from an old snapshot counts from less.
        let mut object = taken.freed(now).unwrap().object;
        part(&mut object, "metadata").insert("resourceVersion".into(), "12".into());
        let restored = Record::read(&request().key, object).unwrap();
        assert_eq!(restored.taken(&request(), now).unwrap().token(), Token(701));
    }

    #[test]
    fn transitions_come_to_their_end_without_harm() {
        let mut object = record("7").object;
        part(&mut object, "spec").insert("leaseTransitions".into(), i32::MAX.into());
        let full = Record::read(&request().key, object).unwrap();
        let taken = full.taken(&request(), SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(number(&taken.object, "/spec/leaseTransitions"), Some(0));
        assert!(taken.is_of(&request()));
    }

    #[test]
    fn a_version_that_is_no_number_gives_no_token() {
        let key = Key::new("a").unwrap();
        for version in ["", "abc", "0", "-1", "9007199254740992", "1.5"] {
            let mut object = Record::empty(&key, "ns");
            part(&mut object, "metadata").insert("resourceVersion".into(), version.into());
            let error = Record::read(&key, object).unwrap_err();
            assert_eq!(error.kind(), tenure::ErrorKind::Corrupt, "{version}");
        }
    }
}
