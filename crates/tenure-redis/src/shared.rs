//! One connection that many calls share, made when it is needed, given up when a call is.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tenure::Result;

use crate::connect::Line;

/// The place of one connection.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    line: Mutex<Option<Arc<Line>>>,
    /// So that many calls at once make one connection and not many.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection in use by one call. If that call is dropped before its answer, nobody
/// uses the connection again: it may be dead, which no later call should have to find
/// out anew. Calls that are under way on it go on.
#[derive(Debug)]
pub(crate) struct Used {
    shared: Arc<Shared>,
    line: Arc<Line>,
    answered: bool,
}

impl Shared {
    /// The connection, made by `open` if there is none.
    pub(crate) async fn get<F>(self: &Arc<Self>, open: impl FnOnce() -> F) -> Result<Used>
    where
        F: Future<Output = Result<Line>>,
    {
        let line = match self.present() {
            Some(line) => line,
            None => self.make(open).await?,
        };
        Ok(Used {
            shared: self.clone(),
            line,
            answered: false,
        })
    }

    async fn make<F>(&self, open: impl FnOnce() -> F) -> Result<Arc<Line>>
    where
        F: Future<Output = Result<Line>>,
    {
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(line) = self.present() {
            return Ok(line);
        }
        let line = Arc::new(open().await?);
        *self.slot() = Some(line.clone());
        Ok(line)
    }

    /// The connection, unless the server is known to have closed it: what is not sent on
    /// a dead connection need not be wondered about.
    fn present(&self) -> Option<Arc<Line>> {
        self.slot().clone().filter(|line| !line.is_closed())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Line>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, line: &Arc<Line>) {
        let mut slot = self.slot();
        if slot
            .as_ref()
            .is_some_and(|present| Arc::ptr_eq(present, line))
        {
            *slot = None;
        }
    }
}

impl Used {
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// The answer came: the connection is as good as before.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.forget(&self.line);
        }
    }
}
