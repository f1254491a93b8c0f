//! The suite that every store passes, with its calls on either thread.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure::{Key, Store};
use tenure_conformance::{Harness, Restart, async_trait};
use tenure_sqlite::{Calls, SqliteStore};

struct Sqlite<const INLINE: bool> {
    folder: TempDir,
}

impl<const INLINE: bool> Sqlite<INLINE> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }

    /// A connection as an operator has it with the `sqlite3` command.
    fn by_hand(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }
}

#[async_trait]
impl<const INLINE: bool> Harness for Sqlite<INLINE> {
    async fn start() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        let calls = match INLINE {
            true => Calls::Inline,
            false => Calls::OnOwnThread,
        };
        let options = SqliteStore::options(self.path()).calls(calls);
        Arc::new(options.open().unwrap())
    }

    async fn delete_record(&self, key: &Key) {
        self.by_hand()
            .execute("DELETE FROM leases WHERE key = ?1", [key.as_str()])
            .unwrap();
    }

    /// Everything that was written moves into the file that a new store then opens.
    async fn restart(&self) -> Restart {
        self.by_hand()
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        Restart::Done
    }
}

mod on_own_thread {
    tenure_conformance::conformance!(super::Sqlite<false>);
}

mod inline {
    tenure_conformance::conformance!(super::Sqlite<true>);
}
