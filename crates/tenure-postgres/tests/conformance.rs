//! The suite that every store passes: directly, and through a pooler in transaction mode.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;

use tenure::{Key, MemoryStore, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_testbed::{PgBouncer, Postgres};

use tokio_postgres::types::Type;

use support::{Bed, blocking};

/// A table of its own on the server of all tests; the clauses about a restart have a
/// server of their own.
struct Direct {
    bed: Option<Bed>,
    own: Option<Postgres>,
    /// Where there is no PostgreSQL, which the testbed has then said (and with CI=true
    /// has failed for), there is nothing else to run the clauses on.
    none: MemoryStore,
}

fn restarts() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| name.contains("restart"))
}

#[async_trait]
impl Harness for Direct {
    async fn start() -> Self {
        let own = match restarts() {
            true => blocking(Postgres::start).await,
            false => None,
        };
        let bed = match &own {
            Some(server) => Some(Bed::on(server).await),
            None => Bed::shared().await,
        };
        Self {
            bed,
            own,
            none: MemoryStore::new(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        match &self.bed {
            Some(bed) => Arc::new(bed.store()),
            None => Arc::new(self.none.clone()),
        }
    }

    async fn delete_record(&self, key: &Key) {
        let Some(bed) = &self.bed else {
            return self.none.delete(key);
        };
        let delete = format!("DELETE FROM public.\"{}\" WHERE lease_name = $1", bed.table);
        let client = bed.by_hand().await;
        let name = (&key.as_str() as _, Type::TEXT);
        client.query_typed(&delete, &[name]).await.unwrap();
    }

    async fn restart(&self) -> Restart {
        let Some(server) = self.own.clone() else {
            return Restart::Cannot;
        };
        blocking(move || server.restart()).await;
        Restart::Done
    }
}

/// The same through PgBouncer in transaction mode, one for all tests. It passes no words
/// on, so the store is told not to listen, and says so.
struct Pooled(Direct);

async fn pooler() -> Option<String> {
    static POOLER: std::sync::OnceLock<Option<PgBouncer>> = std::sync::OnceLock::new();
    let start = || {
        POOLER
            .get_or_init(|| Postgres::shared()?.pgbouncer())
            .as_ref()
    };
    blocking(move || start().map(PgBouncer::url)).await
}

#[async_trait]
impl Harness for Pooled {
    async fn start() -> Self {
        let bed = match pooler().await {
            Some(url) => Some(Bed::at(&url).await),
            None => None,
        };
        Self(Direct {
            bed,
            own: None,
            none: MemoryStore::new(),
        })
    }

    async fn store(&self) -> Arc<dyn Store> {
        match &self.0.bed {
            Some(bed) => Arc::new(bed.store_with("&listen=off")),
            None => self.0.store().await,
        }
    }

    async fn delete_record(&self, key: &Key) {
        self.0.delete_record(key).await;
    }
}

mod pooled {
    tenure_conformance::conformance!(super::Pooled);
}

mod direct {
    tenure_conformance::conformance!(super::Direct);
}
