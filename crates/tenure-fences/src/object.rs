//! Objects: the token is the first line of the object itself, and a write names the version
//! that it replaces.
//!
//! A bucket compares one thing, the version of the object. So the fence is in two steps that
//! are one by that compare: the writer knows which token the version had that it replaces,
//! and the bucket takes the write only if that version is still there. A writer that has
//! written last knows its version, and needs one request, as without a fence.
//!
//! The token is in the content and not in the metadata, because on S3 the version is a sum
//! of the content alone: a leader that writes what its predecessor has written, with
//! another token in the metadata, makes the version that the predecessor knows.
//!
//! The bucket has to compare (`If-Match`, `If-None-Match`), which `tenure init`
//! proves. Keep what is fenced small, such as the manifest of a log, and name large objects in
//! it: a new leader rewrites it to raise its fence.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attributes, Error as ObjectError, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use tenure::{Tenure, Token};

use crate::error::{FenceError, Result};
use crate::token::{check, read_token, sendable};

/// What the first line of a fenced object begins with; the token is the rest of that line.
pub const FIRST_LINE: &str = "tenure-token: ";

/// How often a write looks again after somebody else's write came first.
const TRIES_MAX: usize = 10;
const TOKEN_BYTES_MAX: usize = 16;

/// The fence of one object.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use object_store::memory::InMemory;
/// use tenure::{Elector, MemoryStore, Settings};
/// use tenure_fences::object::ObjectFence;
///
/// let bucket = Arc::new(InMemory::new());
/// let manifest = ObjectFence::new(bucket, "log/manifest.json");
/// let elector = Elector::start(MemoryStore::new(), Settings::new("log")?)?;
/// let tenure = elector.elected().await?;
/// let mut writer = manifest.writer(&tenure).await?; // raises the fence
/// assert!(writer.content().is_empty());
/// writer.put("{}").await?; // one request
/// assert_eq!(manifest.read().await?.as_deref(), Some(b"{}".as_slice()));
/// assert_eq!(manifest.seen().await?, tenure.token());
/// # elector.stop().await; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ObjectFence {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

/// What one leader writes with, for as long as its tenure lasts.
#[derive(Debug)]
pub struct ObjectWriter {
    fence: ObjectFence,
    tenure: Tenure,
    /// None if there is no object.
    version: Option<UpdateVersion>,
    attributes: Attributes,
    content: Bytes,
}

/// The object as it is.
struct Found {
    version: UpdateVersion,
    attributes: Attributes,
    /// None if nobody has fenced it.
    token: Option<Token>,
    content: Bytes,
}

impl ObjectFence {
    /// The fence of the object at this path.
    pub fn new(store: Arc<dyn ObjectStore>, path: impl Into<Path>) -> Self {
        let path = path.into();
        Self { store, path }
    }

    /// Takes the object over: reads it, and writes it again with the token of this tenure,
    /// so that older leaders are locked out. If there is none, an empty one is made.
    pub async fn writer(&self, tenure: &Tenure) -> Result<ObjectWriter> {
        for _ in 0..TRIES_MAX {
            sendable(tenure)?;
            let found = self.look().await?;
            // After the read, which may have taken long.
            let token = sendable(tenure)?;
            let seen = found.as_ref().and_then(|found| found.token);
            check(token, seen.unwrap_or_default())?;
            let mut writer = ObjectWriter {
                fence: self.clone(),
                tenure: tenure.clone(),
                version: None,
                attributes: Attributes::new(),
                content: Bytes::new(),
            };
            if let Some(found) = found {
                writer.version = Some(found.version);
                writer.attributes = found.attributes;
                writer.content = found.content;
            }
            let content = writer.content.clone();
            if seen == Some(token) || writer.try_put(&content, token).await? {
                return Ok(writer);
            }
        }
        Err(self.busy())
    }

    /// Raises the fence and nothing else: [`writer`](Self::writer) does it too.
    pub async fn raise(&self, tenure: &Tenure) -> Result<()> {
        self.writer(tenure).await.map(drop)
    }

    /// The content without its first line, for readers; None if there is no object.
    pub async fn read(&self) -> Result<Option<Bytes>> {
        Ok(self.look().await?.map(|found| found.content))
    }

    /// The greatest token that has been here.
    pub async fn seen(&self) -> Result<Token> {
        let found = self.look().await?;
        let token = found.and_then(|found| found.token);
        token.ok_or_else(|| FenceError::NeverFenced {
            resource: self.path.to_string(),
        })
    }

    async fn look(&self) -> Result<Option<Found>> {
        let got = self.store.get_opts(&self.path, GetOptions::default()).await;
        let got = match got {
            Ok(got) => got,
            Err(ObjectError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(FenceError::resource(error)),
        };
        let version = UpdateVersion {
            e_tag: got.meta.e_tag.clone(),
            version: got.meta.version.clone(),
        };
        if version.e_tag.is_none() && version.version.is_none() {
            return Err(FenceError::Invalid(
                "this bucket gives its objects no version, so that nothing can be fenced in it"
                    .to_owned(),
            ));
        }
        let attributes = got.attributes.clone();
        let bytes = got.bytes().await.map_err(FenceError::resource)?;
        let (token, content) = self.split(bytes)?;
        Ok(Some(Found {
            version,
            attributes,
            token,
            content,
        }))
    }

    /// Token and content; no token if the first line is none of a fence.
    fn split(&self, bytes: Bytes) -> Result<(Option<Token>, Bytes)> {
        if !bytes.starts_with(FIRST_LINE.as_bytes()) {
            return Ok((None, bytes));
        }
        let rest = bytes.slice(FIRST_LINE.len()..);
        let end = rest
            .iter()
            .take(TOKEN_BYTES_MAX + 1)
            .position(|byte| *byte == b'\n');
        let line = String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len().min(64))]).into_owned();
        match (end, read_token(&line)) {
            (Some(end), Ok(token)) => Ok((Some(token), rest.slice(end + 1..))),
            _ => Err(FenceError::unreadable(self.path.as_ref(), &line)),
        }
    }

    fn busy(&self) -> FenceError {
        FenceError::Busy {
            resource: self.path.to_string(),
        }
    }
}

impl ObjectWriter {
    /// What stood in the object when it was taken over, or what was put last.
    pub fn content(&self) -> &Bytes {
        &self.content
    }

    /// The attributes that the object keeps with every put: its content type, for example.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        &mut self.attributes
    }

    /// Replaces the object: one request, as long as nobody else has written. After an
    /// error other than a refusal the write may have taken place; putting again finds out.
    pub async fn put(&mut self, content: impl Into<Bytes>) -> Result<()> {
        let content = content.into();
        for _ in 0..TRIES_MAX {
            let token = sendable(&self.tenure)?;
            if self.try_put(&content, token).await? {
                self.content = content;
                return Ok(());
            }
            // Somebody else's write, an own one whose answer was lost, or a deletion.
            self.version = match self.fence.look().await? {
                Some(found) => {
                    check(token, found.token.unwrap_or_default())?;
                    Some(found.version)
                }
                None => None,
            };
        }
        Err(self.fence.busy())
    }

    /// Writes in place of the known version; false if that is no longer there.
    async fn try_put(&mut self, content: &Bytes, token: Token) -> Result<bool> {
        let mode = match &self.version {
            Some(version) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let options = PutOptions {
            mode,
            attributes: self.attributes.clone(),
            ..PutOptions::default()
        };
        let first = Bytes::from(format!("{FIRST_LINE}{token}\n"));
        let payload = PutPayload::from_iter([first, content.clone()]);
        let fence = &self.fence;
        match fence.store.put_opts(&fence.path, payload, options).await {
            Ok(put) => {
                self.version = Some(put.into());
                Ok(true)
            }
            Err(
                ObjectError::Precondition { .. }
                | ObjectError::AlreadyExists { .. }
                | ObjectError::NotFound { .. },
            ) => Ok(false),
            Err(error) => Err(FenceError::resource(error)),
        }
    }
}
