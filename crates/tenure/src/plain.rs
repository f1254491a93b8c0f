//! A plain lease object: acquire, release, check-alive, on-lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::elector::IntoStore;
use crate::error::Result;
use crate::events::Event;
use crate::owned::{Acquisition, OwnedTenure, try_acquire};
use crate::reason::EndReason;
use crate::settings::Settings;
use crate::store::Store;
use crate::words::Token;

/// A lease to be acquired and released by hand, for code that expects one object with
/// a few methods. Cheap to clone; all clones are the same lease.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// use tenure::{MemoryStore, PlainLease, Settings};
/// let lease = PlainLease::new(MemoryStore::new(), Settings::new("k")?);
/// let watch = lease.on_lost(|reason| println!("lost: {reason}"));
/// if let Some(token) = lease.acquire_with_token().await? {
///     assert!(lease.check_alive());
///     println!("token {token}");
///     lease.release().await;
/// }
/// assert!(!lease.check_alive());
/// watch.unsubscribe();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PlainLease {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    held: Mutex<Option<Held>>,
    handlers: Mutex<Handlers>,
}

#[derive(Debug)]
struct Held {
    tenure: OwnedTenure,
    /// Tells the handlers when it is lost; not when it is released.
    _watch: crate::events::Subscription,
}

type Handler = Arc<dyn Fn(&EndReason) + Send + Sync>;

#[derive(Default)]
struct Handlers {
    next_id: u64,
    all: Vec<(u64, Handler)>,
}

/// Keeps an on-lost handler subscribed; dropping it ends that.
#[derive(Debug)]
#[must_use = "the handler is unsubscribed when this is dropped"]
pub struct LostSubscription {
    id: u64,
    inner: std::sync::Weak<Inner>,
}

impl PlainLease {
    /// A lease that is not held yet.
    pub fn new(store: impl IntoStore, settings: Settings) -> Self {
        let inner = Inner {
            store: store.into_store(),
            settings,
            held: Mutex::default(),
            handlers: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Tries to acquire the lease; true if it is held afterwards.
    pub async fn acquire(&self) -> Result<bool> {
        Ok(self.acquire_with_token().await?.is_some())
    }

    /// Tries to acquire the lease and gives its fencing token; none if somebody else has
    /// it. While it is held, gives the same token again.
    pub async fn acquire_with_token(&self) -> Result<Option<Token>> {
        if let Some(held) = self.held().as_ref().filter(|held| held.tenure.is_valid()) {
            return Ok(Some(held.tenure.token()));
        }
        let acquisition = try_acquire(self.inner.store.clone(), self.inner.settings.clone());
        let Acquisition::Acquired(tenure) = acquisition.await? else {
            return Ok(None);
        };
        let token = tenure.token();
        let inner = Arc::downgrade(&self.inner);
        let watch = tenure.elector().on_event(move |event| {
            if let (Event::Lost { token: of, reason }, Some(inner)) = (event, inner.upgrade())
                && *of == token
                && *reason != EndReason::Stopped
            {
                inner.tell_lost(reason);
            }
        });
        let before = self.held().replace(Held {
            tenure,
            _watch: watch,
        });
        drop(before); // Outside the lock: it frees a lease.
        Ok(Some(token))
    }

    /// Frees the lease and waits for that; does nothing if it is not held.
    pub async fn release(&self) {
        let held = self.held().take();
        if let Some(held) = held {
            held.tenure.release().await;
        }
    }

    /// Whether the lease is held now. Purely local: no I/O.
    pub fn check_alive(&self) -> bool {
        self.held().as_ref().is_some_and(|h| h.tenure.is_valid())
    }

    /// Calls `handler` each time that the lease is lost, but not when it is released,
    /// until the subscription is dropped. It is called on a thread of its own.
    pub fn on_lost(
        &self,
        handler: impl Fn(&EndReason) + Send + Sync + 'static,
    ) -> LostSubscription {
        let mut handlers = self.inner.handlers();
        let id = handlers.next_id;
        handlers.next_id += 1;
        handlers.all.push((id, Arc::new(handler)));
        LostSubscription {
            id,
            inner: Arc::downgrade(&self.inner),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // One value that is replaced as a whole: whole even after a panic.
        self.inner
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn handlers(&self) -> MutexGuard<'_, Handlers> {
        // No code of others runs under this lock, so it is whole even after a panic.
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_lost(&self, reason: &EndReason) {
        let handlers: Vec<Handler> = self.handlers().all.iter().map(|(_, h)| h.clone()).collect();
        for handler in handlers {
            let call = std::panic::AssertUnwindSafe(|| handler(reason));
            if std::panic::catch_unwind(call).is_err() {
                tracing::error!("an on-lost handler panicked; it stays subscribed");
            }
        }
    }
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} handlers", self.all.len())
    }
}

impl LostSubscription {
    /// Ends the subscription, as dropping does.
    pub fn unsubscribe(self) {}
}

impl Drop for LostSubscription {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.handlers().all.retain(|(id, _)| *id != self.id);
        }
    }
}
