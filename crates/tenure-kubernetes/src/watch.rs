//! Pushed changes: one stream per watched key, with what there is as its first event.
//!
//! The watch begins with any state that the server has at hand (resourceVersion 0), so it is
//! never too old to begin (410). That state may be a little old itself, but every change
//! after it is pushed. It asks for no bookmarks: with them the server wants an etcd of 3.4.31
//! or later. So a silent watch cannot be told from a dead connection, and is begun again now
//! and then, as is one that the server ends.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http_body_util::BodyStream;
use kube::client::Body;
use serde_json::{Map, Value};
use tenure::{Key, Notice, Result, Token};

use crate::names;
use crate::record::Record;
use crate::store::KubernetesStore;

/// A living leader is seen more often than that, as a rule.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A line that is longer is no event of a Lease.
const LINE_BYTES_MAX: usize = 4 << 20;

struct Watch {
    store: KubernetesStore,
    key: Key,
    body: BodyStream<Body>,
    /// What has come and is not a whole line yet.
    rest: Vec<u8>,
    /// The greatest token that was pushed.
    last: Token,
    /// Whether this connection has brought anything yet.
    fresh: bool,
}

/// What the next line says.
enum Line {
    Event(Map<String, Value>),
    /// The server has ended the stream, as it does after half an hour or more.
    Ended,
    /// Nothing came for long.
    Silence,
    /// It broke.
    Broken,
}

impl KubernetesStore {
    pub(crate) async fn watch_key(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let watch = Watch {
            body: self.begin_watch(key).await?,
            store: self.clone(),
            key: key.clone(),
            rest: Vec::new(),
            last: Token(0),
            fresh: true,
        };
        let notices = stream::unfold(watch, |mut watch| async {
            let notice = watch.next().await?;
            Some((notice, watch))
        });
        Ok(notices.boxed())
    }

    async fn begin_watch(&self, key: &Key) -> Result<BodyStream<Body>> {
        let response = self.link().watch(&names::name(key)).await?;
        Ok(BodyStream::new(response.into_body()))
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.line().await {
                Line::Event(event) => {
                    self.fresh = false;
                    if let Some(notice) = self.notice(event)? {
                        return Some(notice);
                    }
                }
                // One that ends before it has said anything would end again and again.
                Line::Ended if self.fresh => return None,
                Line::Broken => return None,
                Line::Ended | Line::Silence => {
                    self.body = self.store.begin_watch(&self.key).await.ok()?;
                    self.rest.clear();
                    self.fresh = true;
                }
            }
        }
    }

    /// What an event is to those who watch: None in it if nothing, None of it if the watch
    /// is over.
    fn notice(&mut self, mut event: Map<String, Value>) -> Option<Option<Notice>> {
        let object = match event.remove("object") {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        match event.get("type").and_then(Value::as_str)? {
            "ADDED" | "MODIFIED" => Some(Some(self.changed(object))),
            "DELETED" => Some(Some(Notice::Free)),
            "BOOKMARK" => Some(None),
            // 410 and whatever else: the caller begins anew.
            kind => {
                let message = object.get("message").and_then(Value::as_str);
                let message = message.unwrap_or_default();
                tracing::debug!(key = %self.key, kind, "the API server ended the watch: {message}");
                None
            }
        }
    }

    fn changed(&mut self, object: Map<String, Value>) -> Notice {
        let Ok(record) = Record::read(&self.key, object) else {
            return Notice::Look;
        };
        let Some(lease) = record.lease() else {
            return Notice::Free;
        };
        // Somebody asks something of the holder; or the record was deleted and made again
        // by one who counts from the beginning.
        if record.request().is_some() || lease.token < self.last {
            self.last = lease.token;
            return Notice::Look;
        }
        self.last = lease.token;
        Notice::Held(lease)
    }

    async fn line(&mut self) -> Line {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(event) => return Line::Event(event),
                    Err(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
                    Err(_) => return Line::Broken,
                }
            }
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.next()).await;
            match frame {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                Ok(None) if self.rest.is_empty() => return Line::Ended,
                Ok(None | Some(Err(_))) => return Line::Broken,
                Err(_) => return Line::Silence,
            }
            if self.rest.len() > LINE_BYTES_MAX {
                return Line::Broken;
            }
        }
    }
}
