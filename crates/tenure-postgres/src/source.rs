//! Where a statement's connection comes from, and where it goes when a call is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{HookError, Object, Pool, PoolError, TimeoutType};
use tenure::{Error, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::failure::{Place, is_usable_after};

/// A parameter and its type: so that the server need not be asked first.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections for statements.
#[derive(Clone)]
pub(crate) enum Source {
    /// A pool, and how it may be used.
    Pool {
        pool: Pool,
        /// Whether what is idle in it may be thrown away.
        own: bool,
        /// Whether statements may be prepared: each connection was looked at before.
        prepare: Arc<AtomicBool>,
    },
    /// The caller's one connection, and whether a call on it was given up.
    Client(Arc<Client>, Arc<AtomicBool>),
}

/// A connection in use. If it is dropped before the answer was there, it is not used again.
#[allow(
    clippy::large_enum_variant,
    reason = "one of them stands on the stack for the time of a call"
)]
enum Used {
    Pooled {
        object: Option<Object>,
        own: Option<Pool>,
    },
    Client {
        client: Arc<Client>,
        given_up: Arc<AtomicBool>,
        done: bool,
    },
}

impl Source {
    /// Sends one statement and reads its whole answer, in one round trip. It is either
    /// prepared once for each connection, or parsed, bound and run without a name, so
    /// that a pooler may hand the connection to another client right after.
    pub(crate) async fn run(
        &self,
        place: &Place,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let mut used = self.take(place).await?;
        let answer = match (self, used.object()) {
            (Self::Pool { prepare, .. }, Some(object)) if prepare.load(Ordering::Acquire) => {
                let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
                match object.prepare_typed_cached(statement, &types).await {
                    Ok(prepared) => {
                        let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
                        let answer = object.query(&prepared, &values).await;
                        // Somebody made the session forget it: a pooler after all?
                        if let Err(error) = &answer
                            && error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
                        {
                            prepare.store(false, Ordering::Release);
                            object.statement_cache.clear();
                        }
                        answer
                    }
                    Err(error) => {
                        used.give_back_after(&error);
                        return Err(place.of_preparing(&error));
                    }
                }
            }
            _ => used.client()?.query_typed(statement, parameters).await,
        };
        match &answer {
            Ok(_) => used.give_back(),
            Err(error) => used.give_back_after(error),
        }
        answer.map_err(|error| place.of_statement(&error))
    }

    /// Runs several statements, for setting up.
    pub(crate) async fn run_batch(&self, place: &Place, statements: &str) -> Result<()> {
        let mut used = self.take(place).await?;
        let answer = used.client()?.batch_execute(statements).await;
        if answer.is_ok() {
            used.give_back();
        }
        answer.map_err(|error| place.of_statement(&error))
    }

    async fn take(&self, place: &Place) -> Result<Used> {
        let (pool, own) = match self {
            Self::Pool { pool, own, .. } => (pool, own.then(|| pool.clone())),
            Self::Client(client, given_up) => return take_client(place, client, given_up),
        };
        let object = pool.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => place.exhausted(),
            PoolError::Timeout(_) => place.unreachable("no connection in time"),
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                place.of_connect(&error)
            }
            error => place.unreachable(&error.to_string()),
        })?;
        Ok(Used::Pooled {
            object: Some(object),
            own,
        })
    }
}

fn take_client(place: &Place, client: &Arc<Client>, given_up: &Arc<AtomicBool>) -> Result<Used> {
    if client.is_closed() || given_up.load(Ordering::Acquire) {
        return Err(place.unreachable(
            "the one connection that the store was given has ended or hung: give it a new one, or a pool",
        ));
    }
    Ok(Used::Client {
        client: client.clone(),
        given_up: given_up.clone(),
        done: false,
    })
}

impl Used {
    fn client(&self) -> Result<&Client> {
        match self {
            Self::Pooled {
                object: Some(object),
                ..
            } => Ok(object),
            Self::Pooled { object: None, .. } => Err(Error::unreachable("the connection is gone")),
            Self::Client { client, .. } => Ok(client),
        }
    }

    fn object(&self) -> Option<&Object> {
        match self {
            Self::Pooled { object, .. } => object.as_ref(),
            Self::Client { .. } => None,
        }
    }

    fn give_back_after(&mut self, error: &tokio_postgres::Error) {
        if is_usable_after(error) {
            self.give_back();
        }
    }

    /// The whole answer was read: the connection is fit for the next.
    fn give_back(&mut self) {
        match self {
            Self::Pooled { object, .. } => drop(object.take()),
            Self::Client { done, .. } => *done = true,
        }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        match self {
            Self::Pooled { object, own } => {
                let Some(object) = object.take() else {
                    return;
                };
                // Out of the pool, and closed.
                drop(Object::take(object));
                // What hung here may hang on every idle connection too, and each would
                // cost another call its time.
                if let Some(pool) = own {
                    pool.retain(|_, _| false);
                }
            }
            Self::Client { given_up, done, .. } => {
                if !*done {
                    given_up.store(true, Ordering::Release);
                }
            }
        }
    }
}
