//! Where a batch's connection comes from, and where it goes when a call is given up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::{Error, Result};
use tiberius::{Row, ToSql};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connect::{Connect, Connection};
use crate::failure::{Place, is_deadlock, is_usable_after};

/// A deadlock's victim was undone, so it is safe to ask again, so often.
const DEADLOCKS_MAX: usize = 5;

/// Connections for batches, made when they are needed.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    place: Arc<Place>,
    connect_timeout: Duration,
    command_timeout: Duration,
}

struct Shared {
    connect: Box<dyn Connect>,
    idle: Mutex<Vec<Connection>>,
}

/// A connection in use. If it is dropped before the answer was there, it is closed, and
/// so are the idle ones: what hung here may hang on each of them.
struct Used {
    connection: Option<Connection>,
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(
        connect: Box<dyn Connect>,
        place: Arc<Place>,
        connections_max: usize,
        connect_timeout: Duration,
        command_timeout: Duration,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                connect,
                idle: Mutex::new(Vec::new()),
            }),
            permits: Arc::new(Semaphore::new(connections_max)),
            place,
            connect_timeout,
            command_timeout,
        }
    }

    /// The caller's one connection, and none after it.
    pub(crate) fn of_one(
        connection: Connection,
        place: Arc<Place>,
        connect_timeout: Duration,
        command_timeout: Duration,
    ) -> Self {
        let spent = Box::new(Spent(place.clone()));
        let pool = Self::new(spent, place, 1, connect_timeout, command_timeout);
        pool.shared.idle().push(connection);
        pool
    }

    /// Sends one batch and reads its whole answer.
    pub(crate) async fn query(&self, batch: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
        let mut deadlocks = 0;
        loop {
            let mut used = self.take().await?;
            let answer = used.bounded(self.command_timeout, batch, Some(parameters));
            let answer = answer.await.ok_or_else(|| self.place.timed_out())?;
            match answer {
                Ok(rows) => return Ok(rows),
                Err(error) if is_deadlock(&error) && deadlocks < DEADLOCKS_MAX => {
                    deadlocks += 1;
                    tracing::debug!(deadlocks, "victim of a deadlock, undone: asking again");
                }
                Err(error) => return Err(self.place.of_batch(&error)),
            }
        }
    }

    /// Runs statements without parameters, for setting up.
    pub(crate) async fn run(&self, batch: &str) -> Result<()> {
        let mut used = self.take().await?;
        let answer = used.bounded(self.command_timeout, batch, None).await;
        let answer = answer.ok_or_else(|| self.place.timed_out())?;
        answer
            .map(drop)
            .map_err(|error| self.place.of_batch(&error))
    }

    async fn take(&self) -> Result<Used> {
        let permit = timeout(self.connect_timeout, self.permits.clone().acquire_owned());
        let permit = permit.await.map_err(|_| self.place.exhausted())?;
        let permit = permit.map_err(|_| self.place.exhausted())?;
        let idle = loop {
            match self.shared.idle().pop() {
                Some(connection) if !connection.is_quiet() => drop(connection),
                found => break found,
            }
        };
        let connection = match idle {
            Some(connection) => connection,
            None => timeout(self.connect_timeout, self.shared.connect.connect())
                .await
                .map_err(|_| self.place.unreachable("no connection in time"))??,
        };
        Ok(Used {
            connection: Some(connection),
            shared: self.shared.clone(),
            _permit: permit,
        })
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// The answer, if it came in time; the connection is given back if it can be used on.
    async fn bounded(
        &mut self,
        limit: Duration,
        batch: &str,
        parameters: Option<&[&dyn ToSql]>,
    ) -> Option<tiberius::Result<Vec<Row>>> {
        let connection = self.connection.as_mut()?;
        let asking = async {
            match parameters {
                Some(parameters) => connection.query(batch, parameters).await,
                None => connection.run(batch).await.map(|()| Vec::new()),
            }
        };
        let answer = timeout(limit, asking).await.ok()?;
        // Whatever was answered was read to its end, or the connection is closed here.
        let connection = self.connection.take();
        let usable = answer.as_ref().map_or_else(is_usable_after, |_| true);
        self.shared.idle().extend(connection.filter(|_| usable));
        Some(answer)
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if self.connection.take().is_some() {
            self.shared.idle().clear();
        }
    }
}

/// There was one connection, and it is gone.
struct Spent(Arc<Place>);

#[async_trait]
impl Connect for Spent {
    async fn connect(&self) -> Result<Connection> {
        Err(Error::unreachable(format!(
            "the one connection of {} has ended, or a call on it was given up: give the store a new one, or a way to connect",
            self.0.url()
        )))
    }
}
