//! Pushed changes: one connection for all watches of a store.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use redis::Msg;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tenure::{Error, Key, Notice, Result};
use tokio::sync::{mpsc, oneshot};

use crate::answer;
use crate::names::Names;
use crate::reach::Reach;

/// How many notices may wait for a watcher; more are dropped, since each is a hint.
const NOTICES_MAX: usize = 16;

/// How often the connection is tried while nothing comes, and how long an answer may take.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// All watches of a store.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    hub: Mutex<Option<mpsc::UnboundedSender<Order>>>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
enum Order {
    Watch {
        id: u64,
        key: Key,
        channel: String,
        /// Where the server tells what becomes of the record, if it does.
        events: Option<String>,
        notices: mpsc::Sender<Notice>,
        ready: oneshot::Sender<Result<()>>,
    },
    Leave(u64),
}

/// The notices of one watch.
struct Notices {
    id: u64,
    notices: mpsc::Receiver<Notice>,
    hub: mpsc::UnboundedSender<Order>,
}

impl Watches {
    /// Watches a key. When this returns, the server has confirmed that it pushes.
    pub(crate) async fn watch(
        &self,
        reach: &Arc<Reach>,
        key: &Key,
        names: Names,
        id: u64,
    ) -> Result<impl Stream<Item = Notice> + Send + use<>> {
        let hub = self.hub(reach).await?;
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        let (ready, confirmed) = oneshot::channel();
        let database = reach.database();
        let events = reach
            .tells_of_keys()
            .then(|| format!("__keyspace@{database}__:{}", names.record));
        let order = Order::Watch {
            id,
            key: key.clone(),
            channel: names.channel,
            events,
            notices: sender,
            ready,
        };
        let broken = || Error::unreachable("the connection for pushed changes broke: try again");
        // Leaves again if this is dropped before it is confirmed.
        let stream = Notices {
            id,
            notices,
            hub: hub.clone(),
        };
        hub.send(order).map_err(|_| broken())?;
        confirmed.await.map_err(|_| broken())??;
        Ok(stream)
    }

    async fn hub(&self, reach: &Arc<Reach>) -> Result<mpsc::UnboundedSender<Order>> {
        if let Some(hub) = self.present() {
            return Ok(hub);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(hub) = self.present() {
            return Ok(hub);
        }
        let pushes = reach.pushes().await?;
        let (hub, orders) = mpsc::unbounded_channel();
        tokio::spawn(Hub::new(pushes, orders).run());
        *self.slot() = Some(hub.clone());
        Ok(hub)
    }

    fn present(&self) -> Option<mpsc::UnboundedSender<Order>> {
        self.slot().clone().filter(|hub| !hub.is_closed())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Order>>> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Notices {
    type Item = Notice;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.notices.poll_recv(cx)
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        // If the hub is gone, so is the watch.
        let _ = self.hub.send(Order::Leave(self.id));
    }
}

/// The task that has the connection. It ends, and all streams with it, when the
/// connection does, or when the store and all of its watches are gone.
struct Hub {
    sink: PubSubSink,
    pushes: PubSubStream,
    orders: mpsc::UnboundedReceiver<Order>,
    watchers: HashMap<String, Vec<Watcher>>,
}

struct Watcher {
    id: u64,
    key: Key,
    notices: mpsc::Sender<Notice>,
    /// Whether this is the channel of the server's own events.
    events: bool,
}

impl Hub {
    fn new(pushes: PubSub, orders: mpsc::UnboundedReceiver<Order>) -> Self {
        let (sink, pushes) = pushes.split();
        Self {
            sink,
            pushes,
            orders,
            watchers: HashMap::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let going_on = tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => false,
                },
                push = self.pushes.next() => match push {
                    Some(push) => {
                        self.tell(&push);
                        true
                    }
                    None => false,
                },
                () = tokio::time::sleep(TRY_EVERY) => self.is_alive().await,
            };
            if !going_on {
                return;
            }
        }
    }

    async fn is_alive(&mut self) -> bool {
        let ping = self.sink.ping::<redis::Value>();
        // Whatever it answers, it answers.
        match tokio::time::timeout(TRY_EVERY, ping).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !error.is_io_error(),
            Err(_) => false,
        }
    }

    async fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Watch {
                id,
                key,
                channel,
                events,
                notices,
                ready,
            } => {
                let watcher = |events| Watcher {
                    id,
                    key: key.clone(),
                    notices: notices.clone(),
                    events,
                };
                let joined = self.join(channel, watcher(false)).await;
                // Only a server that was told to tells of its keys. Not being allowed to
                // hear that, or its being off, costs nothing but a hint.
                if let (Ok(()), Some(events)) = (&joined, events) {
                    let _ = self.join(events, watcher(true)).await;
                }
                let going_on = !matches!(&joined, Err(error) if error.may_have_worked());
                let _ = ready.send(joined);
                going_on
            }
            Order::Leave(id) => {
                self.leave(id).await;
                true
            }
        }
    }

    async fn join(&mut self, channel: String, watcher: Watcher) -> Result<()> {
        if !self.watchers.contains_key(&channel) {
            let joining = self.sink.subscribe(channel.as_str());
            match tokio::time::timeout(TRY_EVERY, joining).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.code().is_some() => {
                    return Err(Error::misconfigured(format!(
                        "the user may not subscribe to the Redis channel \"{channel}\": see what is needed with `tenure schema --store …`"
                    )));
                }
                Ok(Err(_)) | Err(_) => {
                    return Err(Error::unavailable(
                        "the connection for pushed changes broke: try again",
                    ));
                }
            }
        }
        self.watchers.entry(channel).or_default().push(watcher);
        Ok(())
    }

    async fn leave(&mut self, id: u64) {
        let mut empty = Vec::new();
        for (channel, watchers) in &mut self.watchers {
            watchers.retain(|watcher| watcher.id != id);
            if watchers.is_empty() {
                empty.push(channel.clone());
            }
        }
        if empty.is_empty() {
            return;
        }
        for channel in &empty {
            self.watchers.remove(channel);
        }
        // A message too many is dropped where it comes in.
        let leaving = self.sink.unsubscribe(empty);
        let _ = tokio::time::timeout(TRY_EVERY, leaving).await;
    }

    fn tell(&self, push: &Msg) {
        let Some(watchers) = self.watchers.get(push.get_channel_name()) else {
            return;
        };
        let message = std::str::from_utf8(push.get_payload_bytes()).unwrap_or_default();
        for watcher in watchers {
            let notice = match watcher.events {
                true => of_event(message),
                false => Some(of_message(&watcher.key, message)),
            };
            if let Some(notice) = notice {
                // Full or gone: a hint is lost, and nothing else.
                let _ = watcher.notices.try_send(notice);
            }
        }
    }
}

/// What a script of ours has published.
fn of_message(key: &Key, message: &str) -> Notice {
    match message {
        "free" => Notice::Free,
        message => answer::published(key, message).map_or(Notice::Look, Notice::Held),
    }
}

/// What the server tells of the record. Whoever shares it, but does not publish, is
/// noticed by this when it lets go. Renewals are no change.
fn of_event(event: &str) -> Option<Notice> {
    matches!(event, "del" | "unlink" | "expired" | "evicted").then_some(Notice::Free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_no_change() {
        for event in ["set", "expire", "pexpire", "rename_to"] {
            assert_eq!(of_event(event), None);
        }
        assert_eq!(of_event("del"), Some(Notice::Free));
        assert_eq!(of_event("expired"), Some(Notice::Free));
    }

    #[test]
    fn what_is_not_understood_is_a_reason_to_look() {
        let key = Key::new("k").unwrap();
        assert_eq!(of_message(&key, "free"), Notice::Free);
        assert_eq!(of_message(&key, "look"), Notice::Look);
        assert_eq!(of_message(&key, "held\nby whom?"), Notice::Look);
    }
}
