//! Properties of the store, for any values in a record, and any sequence of operations.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod sequences;
#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;
use tenure::{
    AcquireRequest, Acquired, Attempt, ErrorKind, Holder, HolderRequest, Key, Lease, ManualClock,
    Result, Store, Token, Version,
};
use tenure_sqlite::{Calls, Liveness, SqliteStore};

use support::{LONG, key};

const BOOT: &str = "this boot";

/// So many cases; the input that fails is printed in its smallest form.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn open(path: &Path, clock: &ManualClock, calls: Calls) -> SqliteStore {
    SqliteStore::options(path)
        .clock(Arc::new(clock.clone()))
        .boot_id(BOOT)
        .liveness(Liveness::None)
        .calls(calls)
        .open()
        .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

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
const TOKEN: usize = 1;

type TestResult = std::result::Result<(), TestCaseError>;

/// A value as SQLite may have it; text may be no UTF-8.
#[derive(Clone, Debug)]
enum Cell {
    Plain(Value),
    BadText(Vec<u8>),
}

fn any_cell() -> impl Strategy<Value = Cell> {
    let numbers = vec![
        i64::MIN,
        -1,
        0,
        1,
        (1 << 53) - 1,
        1 << 53,
        i64::MAX - 1,
        i64::MAX,
    ];
    let texts = vec![
        "",
        "holder 1",
        BOOT,
        "step-down",
        "0",
        "../..",
        "a\nb",
        "\0",
    ];
    let plain = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<i64>().prop_map(Value::Integer),
        4 => proptest::sample::select(numbers).prop_map(Value::Integer),
        1 => proptest::num::f64::ANY.prop_map(Value::Real),
        1 => any::<String>().prop_map(Value::Text),
        1 => proptest::sample::select(texts).prop_map(|text| Value::Text(text.into())),
        1 => any::<Vec<u8>>().prop_map(Value::Blob),
    ];
    let bad = proptest::collection::vec(0x80..=0xff_u8, 1..4);
    prop_oneof![8 => plain.prop_map(Cell::Plain), 1 => bad.prop_map(Cell::BadText)]
}

/// A record as the store writes it, live or ended, with some of its values replaced.
fn any_record() -> impl Strategy<Value = Vec<Cell>> {
    let replaced = proptest::collection::vec((0..COLUMNS.len(), any_cell()), 0..3);
    let all = proptest::collection::vec(any_cell(), COLUMNS.len());
    let most = (any::<bool>(), replaced).prop_map(|(live, replaced)| {
        // The clock shows an hour since boot.
        let ends_at = if live { 7_200_000_000_000 } else { 1 };
        let record = [
            Value::Text("holder 1".into()),
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
        let mut record = record.map(Cell::Plain).to_vec();
        for (column, cell) in replaced {
            record[column] = cell;
        }
        record
    });
    prop_oneof![6 => most, 1 => all]
}

/// A database whose tables take any value, as a careless copy of ours would; or ours.
struct Bed {
    path: PathBuf,
    store: SqliteStore,
    by_hand: Connection,
    _folder: tempfile::TempDir,
}

impl Bed {
    fn new(strict: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("the leases.db");
        let clock = ManualClock::new();
        drop(open(&path, &clock, Calls::Inline));
        let by_hand = Connection::open(&path).unwrap();
        by_hand.busy_timeout(Duration::from_secs(5)).unwrap();
        by_hand.pragma_update(None, "synchronous", "OFF").unwrap();
        if !strict {
            let columns = COLUMNS.join(", ");
            let tables = format!(
                "DROP TABLE leases;
                 CREATE TABLE leases (key NOT NULL PRIMARY KEY, {columns}) WITHOUT ROWID;
                 CREATE TRIGGER leases_floor AFTER DELETE ON leases BEGIN
                   UPDATE meta SET floor = max(floor, OLD.token);
                 END;"
            );
            by_hand.execute_batch(&tables).unwrap();
        }
        Self {
            store: open(&path, &clock, Calls::OnOwnThread),
            path,
            by_hand,
            _folder: folder,
        }
    }

    /// One that is used again, empty: to make one takes longer than all that is done in it.
    fn with(strict: bool, test: impl FnOnce(&Bed) -> TestResult) -> TestResult {
        thread_local! {
            static BEDS: [RefCell<Option<Bed>>; 2] = const { [RefCell::new(None), RefCell::new(None)] };
        }
        BEDS.with(|beds| {
            let mut place = beds[usize::from(strict)].borrow_mut();
            let bed = place.take().unwrap_or_else(|| Bed::new(strict));
            bed.empty();
            test(&bed)?;
            // Not after a failure: its thread may have ended.
            *place = Some(bed);
            Ok(())
        })
    }

    fn empty(&self) {
        // The trigger cannot do with any value in the place of a token.
        let empty = "UPDATE leases SET token = 0; DELETE FROM leases;
                     UPDATE meta SET floor = 0, swept_at = 0, boot = '';";
        self.by_hand.execute_batch(empty).unwrap();
    }

    /// Writes the record; gives whether the table took it.
    fn put(&self, key: &str, record: &[Cell]) -> bool {
        let values: Vec<_> = record
            .iter()
            .enumerate()
            .map(|(place, cell)| match cell {
                Cell::Plain(_) => format!("?{}", place + 2),
                Cell::BadText(_) => format!("CAST(?{} AS TEXT)", place + 2),
            })
            .collect();
        let put = format!(
            "INSERT OR REPLACE INTO leases VALUES (?1, {})",
            values.join(", ")
        );
        let cells = record.iter().map(|cell| match cell {
            Cell::Plain(value) => value.clone(),
            Cell::BadText(bytes) => Value::Blob(bytes.clone()),
        });
        let values = std::iter::once(Value::Text(key.into())).chain(cells);
        let put = self
            .by_hand
            .execute(&put, rusqlite::params_from_iter(values));
        put.is_ok()
    }

    /// Every value of the record with its type, to the byte.
    fn dump(&self, key: &str) -> String {
        let columns =
            COLUMNS.map(|c| format!("typeof({c}) || ' ' || hex(CAST(coalesce({c}, '') AS BLOB))"));
        let select = format!(
            "SELECT {} FROM leases WHERE key = ?1",
            columns.join(" || ' ' || ")
        );
        let found = self
            .by_hand
            .query_row(&select, [key], |row| row.get::<_, String>(0));
        found.unwrap_or_else(|_| "gone".into())
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    List,
    Watch,
    Ask,
    AcquireOther,
    AcquireAgain,
    Renew,
    RenewMany,
    Release,
}

const CALLS: [Call; 9] = [
    Call::Read,
    Call::List,
    Call::Watch,
    Call::Ask,
    Call::AcquireOther,
    Call::AcquireAgain,
    Call::Renew,
    Call::RenewMany,
    Call::Release,
];

/// The lease that the holder of this record would have, as far as one can be named.
fn lease_of(record: &[Cell]) -> Lease {
    let holder = match &record[0] {
        Cell::Plain(Value::Text(name)) => Holder::new(name).ok(),
        _ => None,
    };
    Lease {
        key: key("k"),
        holder: holder.unwrap_or_else(|| Holder::new("holder 1").unwrap()),
        token: Token(token_of(record).unwrap_or(7)),
        attempt: Some(Attempt::from_u64(7)),
        ttl: LONG,
        rest: Some(LONG),
        acquired_at: None,
        version: Version::new("7.3"),
    }
}

fn token_of(record: &[Cell]) -> Option<u64> {
    match record[TOKEN] {
        Cell::Plain(Value::Integer(token)) => u64::try_from(token).ok(),
        _ => None,
    }
}

/// Makes the call; gives the token that it was granted, if it was.
async fn make(store: &SqliteStore, call: Call, lease: &Lease) -> Result<Option<Token>> {
    let acquire = async |holder: &Holder| {
        let request = AcquireRequest {
            key: lease.key.clone(),
            holder: holder.clone(),
            ttl: LONG,
            attempt: Attempt::from_u64(7),
            ended: None,
        };
        match store.acquire(&request).await? {
            Acquired::Granted(lease) => Ok(Some(lease.token)),
            Acquired::Held(_) => Ok(None),
        }
    };
    match call {
        Call::Read => store.read(&lease.key).await.map(|_| None),
        Call::List => store.list("", 10).await.map(|_| None),
        Call::Watch => store.watch(&lease.key).await.map(|_| None),
        Call::Ask => store
            .ask(&lease.key, HolderRequest::StepDown)
            .await
            .map(|_| None),
        Call::AcquireOther => acquire(&Holder::new("other").unwrap()).await,
        Call::AcquireAgain => acquire(&lease.holder).await,
        Call::Renew => store.renew(lease, LONG).await.map(|_| None),
        Call::RenewMany => {
            let answers = store.renew_many(&[(lease.clone(), LONG)]).await;
            answers.into_iter().next().unwrap().map(|_| None)
        }
        Call::Release => store.release(lease).await.map(|_| None),
    }
}

proptest! {
    #![proptest_config(cases(128))]

    /// A record that cannot be read is an error that names the file, and stays as it is.
    #[test]
    fn any_values_in_a_record(record in any_record(), strict in any::<bool>()) {
        Bed::with(strict, |bed| every_call(bed, &record, strict))?;
    }

    /// A record that cannot be read does no harm to others, nor others to it.
    #[test]
    fn any_values_in_a_neighbour(record in any_record(), name in any::<String>()) {
        prop_assume!(name != "k");
        Bed::with(false, |bed| beside(bed, &name, &record))?;
    }
}

fn every_call(bed: &Bed, record: &[Cell], strict: bool) -> TestResult {
    let lease = lease_of(record);
    let runtime = runtime();
    for call in CALLS {
        if !bed.put("k", record) {
            prop_assert!(strict);
            return Ok(());
        }
        let before = bed.dump("k");
        match runtime.block_on(make(&bed.store, call, &lease)) {
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Corrupt, "{:?}: {}", call, error);
                let file = bed.path.file_name().unwrap().to_str().unwrap();
                prop_assert!(error.to_string().contains(file), "{:?}: {}", call, error);
                prop_assert_eq!(bed.dump("k"), before, "{:?}", call);
            }
            Ok(Some(token)) => {
                // What was granted is what stands there.
                let found = runtime.block_on(bed.store.read(&key("k")));
                let found = found.unwrap().unwrap();
                prop_assert_eq!(found.token, token, "{:?}", call);
                let again = matches!(call, Call::AcquireAgain) && token == lease.token;
                prop_assert!(again || token > lease.token, "{:?}: {}", call, token);
            }
            Ok(None) => {
                let writes = matches!(
                    call,
                    Call::Renew | Call::RenewMany | Call::Release | Call::Ask
                );
                prop_assert!(writes || bed.dump("k") == before, "{:?}", call);
            }
        }
    }
    Ok(())
}

fn beside(bed: &Bed, name: &str, record: &[Cell]) -> TestResult {
    prop_assert!(bed.put(name, record));
    let before = bed.dump(name);
    let runtime = runtime();
    let readable = Key::new(name).is_ok_and(|key| runtime.block_on(bed.store.read(&key)).is_ok());
    // The first new record also sweeps out what ended long ago.
    let granted = runtime.block_on(make(&bed.store, Call::AcquireOther, &lease_of(record)));
    let token = granted.unwrap().unwrap();
    let found = runtime.block_on(bed.store.read(&key("k")));
    prop_assert_eq!(found.unwrap().unwrap().token, token);
    if !readable {
        prop_assert_eq!(bed.dump(name), before);
    }
    Ok(())
}
