//! The objects: a record is read, or written under a condition. One request each.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use futures_util::StreamExt;
use http::StatusCode;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tenure::{Error, ErrorKind, Key, Result};

use crate::exchange::{Seen, watched};
use crate::failure::{Failed, Wanted, failed, is_busy, status};
use crate::names;
use crate::place::Place;
use crate::record::{BYTES_MAX, Record, no_lease};
use crate::version::Mark;

/// How many records are remembered for the question "has it changed?".
const REMEMBERED_MAX: usize = 1024;

/// The objects of one bucket below one prefix.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Arc<dyn ObjectStore>,
    pub(crate) place: Place,
    /// All keys have this one object, without the prefix before it.
    object: Option<String>,
    /// Records as they were last read. Not a memory of callers: each is shown only after
    /// the service has said that it is still the one.
    remembered: Arc<Mutex<HashMap<Path, Arc<Found>>>>,
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) mark: Mark,
    /// When it was written, by the service's clock.
    pub(crate) written_at: DateTime<Utc>,
}

/// The answer to a read, with the service's clock if it was seen.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) found: Option<Arc<Found>>,
    pub(crate) date: Option<DateTime<Utc>>,
}

/// Under which condition a record is written.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Absent,
    Is(Mark),
}

/// The answer to a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// Written, and the service's clock if it was seen.
    Done(Mark, Option<DateTime<Utc>>),
    /// The condition did not hold, or two writes met: look what is there now.
    Conflict,
    /// Nobody knows: look whether it is there.
    Unknown(Error),
}

impl Objects {
    pub(crate) fn new(client: Arc<dyn ObjectStore>, place: Place, object: Option<String>) -> Self {
        Self {
            client,
            place,
            object,
            remembered: Arc::default(),
        }
    }

    pub(crate) fn client(&self) -> &Arc<dyn ObjectStore> {
        &self.client
    }

    /// Where the record of this key lies.
    pub(crate) fn path(&self, key: &Key) -> Result<Path> {
        match &self.object {
            Some(object) => self.path_of(object),
            None => self.path_of(&names::name(key)),
        }
    }

    /// Where an object of this name lies.
    pub(crate) fn path_of(&self, name: &str) -> Result<Path> {
        let path = format!("{}{name}", self.place.prefix);
        Path::parse(&path).map_err(|_| {
            Error::invalid("the prefix or the object's name has an empty part, a part of dots or a control character: choose another")
        })
    }

    /// Whether all keys have one object.
    pub(crate) fn only_object(&self) -> Option<&str> {
        self.object.as_deref()
    }

    pub(crate) async fn read(&self, path: &Path, key: &Key) -> Result<Read> {
        let known = self.remembered().get(path).cloned();
        let options = GetOptions {
            if_none_match: known.as_ref().and_then(|known| known.mark.e_tag.clone()),
            ..GetOptions::default()
        };
        let get = async {
            let answer = self.client.get_opts(path, options).await?;
            let meta = answer.meta.clone();
            let body = first_bytes(answer.into_stream()).await?;
            Ok((meta, body))
        };
        let (answer, seen) = watched(path.as_ref(), get).await;
        let date = seen.date;
        let (meta, body) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                return match failed(&self.place, Wanted::Read, &error, &seen) {
                    Failed::NotModified if known.is_some() => Ok(Read { found: known, date }),
                    Failed::Absent => {
                        self.remembered().remove(path);
                        Ok(Read { found: None, date })
                    }
                    Failed::Error(error) => Err(error),
                    Failed::NotModified | Failed::Conflict => Err(Error::unavailable(format!(
                        "{} gave an answer to a read that belongs to a write: try again",
                        self.place
                    ))),
                };
            }
        };
        if meta.size > BYTES_MAX as u64 {
            return Err(no_lease(path.as_ref(), "it is too long for one", &body));
        }
        let found = Arc::new(Found {
            record: Record::from_json(path.as_ref(), key, &body)?,
            mark: Mark {
                e_tag: meta.e_tag,
                version: meta.version,
            },
            written_at: meta.last_modified,
        });
        self.remember(path, &found);
        let found = Some(found);
        Ok(Read { found, date })
    }

    pub(crate) async fn write(
        &self,
        path: &Path,
        record: &Record,
        condition: &Condition,
    ) -> Result<Written> {
        let body = PutPayload::from(record.to_json());
        self.write_bytes(path, body, condition).await
    }

    pub(crate) async fn write_bytes(
        &self,
        path: &Path,
        body: PutPayload,
        condition: &Condition,
    ) -> Result<Written> {
        let mode = match condition {
            Condition::Absent => PutMode::Create,
            Condition::Is(mark) => PutMode::Update(mark.update()),
        };
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "application/json".into());
        // Whatever lies between must not answer from memory.
        attributes.insert(Attribute::CacheControl, "no-store".into());
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        let put = self.client.put_opts(path, body, options);
        let (answer, seen) = watched(path.as_ref(), put).await;
        let error = match answer {
            Ok(done) => {
                let mark = Mark {
                    e_tag: done.e_tag,
                    version: done.version,
                };
                return Ok(Written::Done(mark, seen.date));
            }
            Err(error) => error,
        };
        match failed(&self.place, Wanted::Write, &error, &seen) {
            Failed::Conflict | Failed::Absent | Failed::NotModified => Ok(Written::Conflict),
            Failed::Error(failure) => {
                let status = status(&error, &error.to_string(), &seen);
                match worth_a_look(&failure, status) {
                    true => Ok(Written::Unknown(failure)),
                    false => Err(failure),
                }
            }
        }
    }

    /// The names below the prefix that are leases, with their keys, in the order of the keys.
    pub(crate) async fn keys(&self, begins: &str) -> Result<Vec<Key>> {
        let folder = self.place.prefix.trim_end_matches('/');
        let folder = (!folder.is_empty())
            .then(|| Path::parse(folder))
            .transpose();
        let folder = folder.map_err(|_| Error::invalid("the prefix is no path: choose another"))?;
        let mut names = self.client.list(folder.as_ref());
        let mut keys = Vec::new();
        while let Some(meta) = names.next().await {
            let meta = meta.map_err(|error| self.error(Wanted::List, &error))?;
            let name = meta.location.as_ref().strip_prefix(&self.place.prefix);
            let key = name.and_then(names::key);
            keys.extend(key.filter(|key| key.as_str().starts_with(begins)));
        }
        keys.sort_unstable();
        Ok(keys)
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        let delete = self.client.delete(path);
        let (answer, seen) = watched(path.as_ref(), delete).await;
        match answer {
            Ok(()) => Ok(()),
            Err(error) => match failed(&self.place, Wanted::Delete, &error, &seen) {
                Failed::Error(error) => Err(error),
                _ => Ok(()),
            },
        }
    }

    fn error(&self, wanted: Wanted, error: &object_store::Error) -> Error {
        match failed(&self.place, wanted, error, &Seen::default()) {
            Failed::Error(error) => error,
            other => Error::unavailable(format!(
                "{} gave an answer to a list that makes no sense ({other:?}): try again",
                self.place
            )),
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<Path, Arc<Found>>> {
        // Each entry is replaced as a whole: a panic cannot have left half of one.
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, path: &Path, found: &Arc<Found>) {
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX && !remembered.contains_key(path) {
            remembered.clear();
        }
        remembered.insert(path.clone(), found.clone());
    }
}

/// Whether the write may be there although no answer said so. A service that is too busy
/// is not asked more.
fn worth_a_look(error: &Error, status: Option<StatusCode>) -> bool {
    let busy = status.is_some_and(is_busy);
    error.kind() == ErrorKind::Unavailable && error.may_have_worked() && !busy
}

/// The bytes of a record, or the first ones of something longer.
async fn first_bytes(
    mut stream: futures_util::stream::BoxStream<'static, object_store::Result<bytes::Bytes>>,
) -> object_store::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = stream.next().await {
        body.extend_from_slice(&piece?);
        if body.len() > BYTES_MAX {
            break; // The connection is given up with the stream.
        }
    }
    Ok(body)
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client may hold credentials.
        f.debug_struct("Objects")
            .field("place", &self.place.to_string())
            .field("object", &self.object)
            .finish_non_exhaustive()
    }
}
