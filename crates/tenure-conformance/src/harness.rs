//! What the suite needs to know of a backend: how to start it, reach it, and age it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{BootClock, Clock, Key, Store};

/// One private backend of a store, as the suite sees it.
///
/// Each test starts a harness of its own and drops it when it is over, also when it
/// failed. The first three methods are enough for most stores.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// Starts a backend that is empty and that nobody else uses.
    async fn start() -> Self
    where
        Self: Sized;

    /// A store on this backend, as another process would have it: a client of its own,
    /// if clients there are. The suite mixes the stores that it gets, so a store that
    /// remembers something of its callers is found out.
    async fn store(&self) -> Arc<dyn Store>;

    /// Deletes the record of this key, as an operator would do by hand: the row, the
    /// object, the Redis key. Whatever else the store has put down stays.
    async fn delete_record(&self, key: &Key);

    /// Stops the backend and starts it again with its data. A store that was handed out
    /// before need not work any more.
    async fn restart(&self) -> Restart {
        Restart::Cannot
    }

    /// The clock by which time passes for this backend: the machine's, unless the
    /// harness turns a clock of its own.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(BootClock)
    }

    /// Lets time pass for the backend. Really waiting is right for a real server.
    async fn pass_time(&self, time: Duration) {
        let clock = self.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// How long after an acquire a deleted record can be followed by a greater token for
    /// sure: one step of the clock that tokens are taken from. A store whose clock shows
    /// whole seconds only says so here, and in its docs.
    fn token_step(&self) -> Duration {
        Duration::from_millis(2)
    }
}

/// The answer to [`Harness::restart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The backend was stopped and has started again with its data.
    Done,
    /// This backend has no life apart from its process: there is nothing to restart.
    Cannot,
}
