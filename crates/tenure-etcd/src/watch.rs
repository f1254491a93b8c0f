//! Pushed changes: one stream per watched key, over the connection that all calls share.
//!
//! The watch begins with the revision after the present one. That is never behind, so etcd
//! pushes at once; a watch from an earlier revision may wait for 100 ms to catch up. What
//! changed before the watch began is for the caller to look at, as the contract says.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tenure::{Error, Key, Notice, Result};

use crate::link::Answers;
use crate::proto::{Event, WatchCreateRequest, WatchRequest, WatchResponse, WatchUnion};
use crate::record::Note;
use crate::store::EtcdStore;

const DELETED: i32 = 1;

/// A watch that has begun.
struct Watch {
    store: EtcdStore,
    key: Key,
    stream: Answers<WatchResponse>,
    events: VecDeque<Change>,
}

/// What an event is to those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Freed,
    Written,
    /// Somebody asks something of the holder.
    Asked,
}

impl EtcdStore {
    pub(crate) async fn watch_key(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let places = [self.keys().main(key), self.keys().note(key)];
        let requests = places.map(|key| WatchRequest {
            request: Some(WatchUnion::Create(WatchCreateRequest {
                key,
                start_revision: 0,
            })),
        });
        let mut watch = Watch {
            stream: self.client().watch(requests.to_vec()).await?,
            store: self.clone(),
            key: key.clone(),
            events: VecDeque::new(),
        };
        let mut created = 0;
        while created < requests.len() {
            let next = self.client().next_watched(&mut watch.stream).await?;
            match next {
                Some(answer) if !answer.canceled => {
                    created += usize::from(answer.created);
                    watch.take(answer);
                }
                refused => return Err(self.refused(refused.as_ref())),
            }
        }
        let notices = stream::unfold(watch, |mut watch| async {
            let notice = watch.next().await?;
            Some((notice, watch))
        });
        Ok(notices.boxed())
    }

    fn refused(&self, answer: Option<&WatchResponse>) -> Error {
        let whose = self.client().whose();
        let reason = answer.map_or("the stream ended", |answer| &answer.cancel_reason);
        if reason.contains("permission denied") {
            return Error::misconfigured(format!(
                "{whose} refuses this user to watch the keys: `tenure schema --store URL` prints the role that it needs, for an administrator to run"
            ));
        }
        Error::unreachable(format!("{whose} does not watch the key: {reason}"))
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Notice> {
        loop {
            while let Some(change) = self.events.pop_front() {
                // Only the last write counts if there are several.
                if change == Change::Written && self.events.contains(&Change::Written) {
                    continue;
                }
                return Some(self.notice(change).await);
            }
            let next = self.store.client().next_watched(&mut self.stream).await;
            match next {
                Ok(Some(answer)) if !answer.canceled => self.take(answer),
                // Compacted away, no leader, no right any more: the caller begins anew.
                Ok(Some(answer)) => {
                    tracing::debug!(key = %self.key, compacted = answer.compact_revision, "etcd ended the watch: {}", answer.cancel_reason);
                    return None;
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn take(&mut self, answer: WatchResponse) {
        let main = self.store.keys().main(&self.key);
        let changes = answer
            .events
            .iter()
            .filter_map(|event| change(&main, event));
        self.events.extend(changes);
    }

    async fn notice(&self, change: Change) -> Notice {
        match change {
            Change::Freed => Notice::Free,
            Change::Asked => Notice::Look,
            Change::Written => self.held().await,
        }
    }

    async fn held(&self) -> Notice {
        let Ok(record) = self.store.record(&self.key).await else {
            return Notice::Look;
        };
        let Some(record) = record else {
            return Notice::Free;
        };
        let ttl = record.note.as_ref().map(Note::ttl);
        if let Some(ttl) = ttl {
            return Notice::Held(record.lease(&self.key, ttl, Some(ttl)));
        }
        match self.store.told(&self.key, &record).await {
            Ok(Some(lease)) => Notice::Held(lease),
            Ok(None) => Notice::Free,
            Err(_) => Notice::Look,
        }
    }
}

fn change(main: &[u8], event: &Event) -> Option<Change> {
    let kv = event.kv.as_ref()?;
    let deleted = event.kind == DELETED;
    if kv.key == main {
        return Some(if deleted {
            Change::Freed
        } else {
            Change::Written
        });
    }
    let note: Note = serde_json::from_slice(&kv.value)
        .ok()
        .filter(|_| !deleted)?;
    note.request.map(|_| Change::Asked)
}
