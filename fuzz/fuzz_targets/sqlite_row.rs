//! Any values in a record of the SQLite store, then every operation: an answer, or an
//! error that says so and a record that is as it was.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{Arbitrary, Result as Drawn, Unstructured};
use libfuzzer_sys::fuzz_target;
use rusqlite::Connection;
use rusqlite::types::Value;
use tenure::{
    AcquireRequest, Acquired, Attempt, ErrorKind, Holder, HolderRequest, Key, Lease, ManualClock,
    Store, Token, Version,
};
use tenure_sqlite::{Calls, Liveness, SqliteStore};
use tokio::runtime::Runtime;

const BOOT: &str = "this boot";
const TTL: Duration = Duration::from_secs(60);
const COLUMNS: [&str; 10] = [
    "holder",
    "token",
    "attempt",
    "ttl_ns",
    "ends_at",
    "boot",
    "acquired_at",
    "version",
    "request",
    "liveness",
];

/// A record as SQLite may have it: text need not be UTF-8.
#[derive(Debug)]
struct Record {
    cells: Vec<(Value, bool)>,
}

impl<'a> Arbitrary<'a> for Record {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Drawn<Self> {
        // One bit for each column says whether it is replaced: most records are nearly good.
        let replaced: u16 = bytes.arbitrary()?;
        let live: bool = bytes.arbitrary()?;
        let ends_at = if live { 7_200_000_000_000 } else { 1 };
        let good = [
            Value::Text("holder".into()),
            Value::Integer(7),
            Value::Integer(7),
            Value::Integer(1_000),
            Value::Integer(ends_at),
            Value::Text(BOOT.into()),
            Value::Integer(5),
            Value::Integer(3),
            Value::Null,
            Value::Null,
        ];
        let mut cells = Vec::new();
        for (place, good) in good.into_iter().enumerate() {
            let cell = match replaced >> place & 1 {
                1 => cell(bytes)?,
                _ => (good, false),
            };
            cells.push(cell);
        }
        Ok(Self { cells })
    }
}

/// A value, and whether it is to be stored as text whatever its bytes are.
fn cell(bytes: &mut Unstructured<'_>) -> Drawn<(Value, bool)> {
    Ok(match bytes.int_in_range(0..=5)? {
        0 => (Value::Null, false),
        1 => (Value::Integer(bytes.arbitrary()?), false),
        2 => (Value::Real(bytes.arbitrary()?), false),
        3 => (Value::Text(bytes.arbitrary()?), false),
        4 => (Value::Blob(bytes.arbitrary()?), false),
        _ => (Value::Blob(bytes.arbitrary()?), true),
    })
}

/// One database for all inputs of a run: what one leaves behind is replaced by the next.
struct Bed {
    store: SqliteStore,
    by_hand: Connection,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

thread_local! {
    static BED: RefCell<Bed> = RefCell::new(Bed::new());
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("leases.db");
        let options = || {
            SqliteStore::options(&path)
                .clock(Arc::new(ManualClock::new()))
                .boot_id(BOOT)
                .liveness(Liveness::None)
                .calls(Calls::Inline)
        };
        drop(options().open().expect("a new database"));
        let by_hand = Connection::open(&path).expect("the database");
        // Tables that take any value, as a careless copy of ours would.
        let columns = COLUMNS.join(", ");
        let tables = format!(
            "DROP TABLE leases;
             CREATE TABLE leases (key NOT NULL PRIMARY KEY, {columns}) WITHOUT ROWID;"
        );
        by_hand.execute_batch(&tables).expect("other tables");
        let fast = by_hand.pragma_update(None, "synchronous", "OFF");
        fast.expect("a pragma");
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            store: options().open().expect("the database again"),
            by_hand,
            runtime: runtime.expect("a runtime"),
            _folder: folder,
        }
    }

    fn put(&self, record: &Record) {
        let mut places = String::new();
        for (place, (_, as_text)) in record.cells.iter().enumerate() {
            let number = place + 1;
            places += &match as_text {
                true => format!(", CAST(?{number} AS TEXT)"),
                false => format!(", ?{number}"),
            };
        }
        let put = format!("INSERT OR REPLACE INTO leases VALUES ('k'{places})");
        let values = record.cells.iter().map(|(value, _)| value);
        let put = self.by_hand.prepare_cached(&put);
        put.expect("a statement")
            .execute(rusqlite::params_from_iter(values))
            .expect("a table that takes any value");
    }

    /// Every value of the record with its type, to the byte.
    fn dump(&self) -> String {
        let columns = COLUMNS
            .map(|c| format!("typeof({c}) || ' ' || hex(CAST(coalesce({c}, '') AS BLOB))"))
            .join(" || ' ' || ");
        let select = format!("SELECT {columns} FROM leases WHERE key = 'k'");
        let select = self.by_hand.prepare_cached(&select);
        let found = select.expect("a statement").query_row([], |row| row.get(0));
        found.expect("the record")
    }

    async fn call(&self, call: usize, lease: &Lease) -> tenure::Result<Option<Token>> {
        let request = AcquireRequest {
            key: lease.key.clone(),
            holder: match call {
                0 => lease.holder.clone(),
                _ => Holder::new("other")?,
            },
            ttl: TTL,
            attempt: Attempt::from_u64(7),
            ended: None,
        };
        let store = &self.store;
        match call {
            0 | 1 => {
                return Ok(match store.acquire(&request).await? {
                    Acquired::Granted(lease) => Some(lease.token),
                    Acquired::Held(_) => None,
                });
            }
            2 => drop(store.renew(lease, TTL).await?),
            3 => {
                for answer in store.renew_many(&[(lease.clone(), TTL)]).await {
                    answer?;
                }
            }
            4 => drop(store.release(lease).await?),
            5 => drop(store.read(&lease.key).await?),
            6 => drop(store.list("", 10).await?),
            _ => drop(store.ask(&lease.key, HolderRequest::StepDown).await?),
        }
        Ok(None)
    }

    fn check(&self, record: &Record) {
        let lease = lease_of(record);
        for call in 0..8 {
            self.put(record);
            let before = self.dump();
            match self.runtime.block_on(self.call(call, &lease)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "call {call}: {error}");
                    assert!(
                        error.to_string().contains("leases.db"),
                        "call {call}: {error}"
                    );
                    assert_eq!(self.dump(), before, "call {call}: {error}");
                }
                Ok(Some(token)) => {
                    let found = self.runtime.block_on(self.store.read(&lease.key));
                    let found = found.expect("a record").expect("a live one");
                    assert_eq!(found.token, token, "call {call}");
                    let again = call == 0 && token == lease.token;
                    assert!(again || token > lease.token, "call {call}: {token}");
                }
                Ok(None) => {}
            }
        }
    }
}

/// The lease that the holder of this record would have, as far as one can be named.
fn lease_of(record: &Record) -> Lease {
    let holder = match &record.cells[0].0 {
        Value::Text(name) => Holder::new(name).ok(),
        _ => None,
    };
    let token = match record.cells[1].0 {
        Value::Integer(token) => u64::try_from(token).ok(),
        _ => None,
    };
    Lease {
        key: Key::new("k").expect("a good key"),
        holder: holder.unwrap_or_else(|| Holder::new("holder").expect("a good holder")),
        token: Token(token.unwrap_or(7)),
        attempt: Some(Attempt::from_u64(7)),
        ttl: TTL,
        rest: Some(TTL),
        acquired_at: None,
        version: Version::new("7.3"),
    }
}

fuzz_target!(|record: Record| {
    BED.with_borrow(|bed| bed.check(&record));
});
