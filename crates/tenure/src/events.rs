//! Events of an elector: a stream, and handlers that can be unsubscribed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use tokio::sync::broadcast;

use crate::clock::Moment;
use crate::election::Operation;
use crate::error::Error;
use crate::held::Tenure;
use crate::reason::EndReason;
use crate::store::Lease;
use crate::words::Token;

/// What happened to an elector.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This elector leads.
    Elected(Tenure),
    /// The store confirmed a renewal.
    Renewed {
        /// The token of the tenure.
        token: Token,
        /// When it now ends by itself.
        deadline: Moment,
    },
    /// Work was told to stop, and the tenure will end.
    Stopping {
        /// The token of the tenure.
        token: Token,
        /// Why.
        reason: EndReason,
    },
    /// The tenure has ended.
    Lost {
        /// The token of the tenure.
        token: Token,
        /// Why.
        reason: EndReason,
    },
    /// Somebody else leads.
    Following(Lease),
    /// A store call failed. If it is [unavailable](crate::ErrorKind::Unavailable), what
    /// was asked for may have happened.
    StoreError {
        /// Which call.
        operation: Operation,
        /// What went wrong.
        error: Error,
    },
    /// A store call has worked after others failed.
    Recovered,
    /// This many events were missed, because the listener was too slow.
    Missed(u64),
    /// The elector has stopped; this is the last event.
    Stopped,
}

/// The events of an elector from some moment on, as a stream.
pub struct Events(BoxStream<'static, Event>);

/// How many events a slow listener may lie behind.
const BACKLOG: usize = 256;

/// Keeps a handler subscribed; dropping it ends that.
#[derive(Debug)]
#[must_use = "the handler is unsubscribed when this is dropped"]
pub struct Subscription {
    id: u64,
    hub: Weak<Hub>,
}

#[derive(Debug)]
pub(crate) struct Hub {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    next_id: u64,
    closed: bool,
    /// Made for the first stream: its backlog is most of an elector's memory.
    stream: Option<broadcast::Sender<Event>>,
    senders: Vec<(u64, SyncSender<Event>)>,
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            listeners: Mutex::default(),
        })
    }

    pub(crate) fn tell(&self, event: &Event) {
        let mut listeners = self.listeners();
        if let Some(stream) = &listeners.stream {
            // No listener is no error.
            let _ = stream.send(event.clone());
        }
        listeners
            .senders
            .retain(|(_, sender)| match sender.try_send(event.clone()) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    tracing::warn!("an event handler is too slow: it misses an event");
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            });
        if matches!(event, Event::Stopped) {
            listeners.closed = true;
            listeners.stream = None;
            listeners.senders.clear();
        }
    }

    pub(crate) fn stream(&self) -> Events {
        let mut listeners = self.listeners();
        let receiver = (!listeners.closed).then(|| {
            let stream = &mut listeners.stream;
            let stream = stream.get_or_insert_with(|| broadcast::channel(BACKLOG).0);
            stream.subscribe()
        });
        let events = stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Ok(Event::Stopped) => Some((Event::Stopped, None)),
                Ok(event) => Some((event, Some(receiver))),
                Err(broadcast::error::RecvError::Lagged(n)) => {
                    Some((Event::Missed(n), Some(receiver)))
                }
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        Events(events.boxed())
    }

    /// Each handler has a thread of its own, so that one that blocks or panics harms nobody.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        handler: impl Fn(&Event) + Send + 'static,
    ) -> Subscription {
        let (sender, receiver) = sync_channel::<Event>(BACKLOG);
        let run = move || {
            for event in receiver {
                if catch_unwind(AssertUnwindSafe(|| handler(&event))).is_err() {
                    tracing::error!(?event, "an event handler panicked; it stays subscribed");
                }
            }
        };
        let thread = std::thread::Builder::new().name("tenure-handler".into());
        let mut listeners = self.listeners();
        let id = listeners.next_id;
        listeners.next_id += 1;
        if !listeners.closed {
            match thread.spawn(run) {
                Ok(_) => listeners.senders.push((id, sender)),
                Err(error) => tracing::error!(%error, "no thread for an event handler"),
            }
        }
        Subscription {
            id,
            hub: Arc::downgrade(self),
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // No code of others runs under this lock, so it is whole even after a panic.
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Events {
    /// Waits for the next event; none after [`Event::Stopped`].
    pub async fn next(&mut self) -> Option<Event> {
        self.0.next().await
    }
}

impl Stream for Events {
    type Item = Event;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Subscription {
    /// Ends the subscription, as dropping does.
    pub fn unsubscribe(self) {}

    /// Keeps the handler subscribed for as long as the elector lives.
    pub fn forever(mut self) {
        self.hub = Weak::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.listeners().senders.retain(|(id, _)| *id != self.id);
        }
    }
}
