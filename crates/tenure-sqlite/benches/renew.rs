//! A renewal through the store beside the same statement by hand, in one run.
//!
//! `cargo bench -p tenure-sqlite --bench renew` prints the times of both, and last the
//! quotient that docs/stores/sqlite.md speaks of.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]
#![expect(clippy::print_stdout, reason = "the quotient is what this prints")]

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, params};
use tenure::{AcquireRequest, Acquired, Attempt, BootClock, Clock, Holder, Key, Lease, Store};
use tenure_sqlite::{Calls, SqliteStore};
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(30);

/// As in `src/table.rs`.
const RENEW: &str = "
UPDATE leases SET ttl_ns = ?4, ends_at = boot_now() + ?4, version = version + 1, liveness = ?6
WHERE key = ?1 AND holder = ?2 AND token = ?3 AND boot = ?5 AND ends_at > boot_now()
RETURNING attempt, acquired_at, version, request";

struct ByHand {
    connection: Connection,
    boot: String,
    liveness: String,
}

impl ByHand {
    fn new(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .unwrap();
        connection
            .pragma_update(None, "synchronous", "NORMAL")
            .unwrap();
        let now =
            |_: &rusqlite::functions::Context<'_>| Ok(BootClock.now().as_nanos().cast_signed());
        connection
            .create_scalar_function("boot_now", 0, FunctionFlags::SQLITE_UTF8, now)
            .unwrap();
        let named = connection.query_row("SELECT boot, liveness FROM leases", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        let (boot, liveness) = named.unwrap();
        Self {
            connection,
            boot,
            liveness,
        }
    }

    fn renew(&self, lease: &Lease) -> i64 {
        let mut renew = self.connection.prepare_cached(RENEW).unwrap();
        let parameters = params![
            lease.key.as_str(),
            lease.holder.as_str(),
            lease.token.0.cast_signed(),
            i64::try_from(TTL.as_nanos()).unwrap(),
            self.boot,
            self.liveness,
        ];
        let mut rows = renew.query(parameters).unwrap();
        let row = rows.next().unwrap().unwrap();
        let version = row.get(2).unwrap();
        assert!(rows.next().unwrap().is_none());
        version
    }
}

struct Bench {
    _folder: tempfile::TempDir,
    runtime: Runtime,
    store: SqliteStore,
    lease: Lease,
    by_hand: ByHand,
}

impl Bench {
    fn new(calls: Calls) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let store = SqliteStore::options(&path).calls(calls).open().unwrap();
        let request = AcquireRequest {
            key: Key::new("billing/nightly").unwrap(),
            holder: Holder::generate(),
            ttl: TTL,
            attempt: Attempt::first(1),
            ended: None,
        };
        let acquired = runtime.block_on(store.acquire(&request)).unwrap();
        let Acquired::Granted(lease) = acquired else {
            panic!("the file is new");
        };
        let by_hand = ByHand::new(&path);
        Self {
            _folder: folder,
            runtime,
            store,
            lease,
            by_hand,
        }
    }

    fn renew(&self) {
        let renewed = self.runtime.block_on(self.store.renew(&self.lease, TTL));
        assert!(matches!(renewed.unwrap(), tenure::Renewed::Renewed(..)));
    }
}

fn renew(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("renew");
    let bench = Bench::new(Calls::Inline);
    group.bench_function("by_hand", |b| b.iter(|| bench.by_hand.renew(&bench.lease)));
    group.bench_function("inline", |b| b.iter(|| bench.renew()));
    let bench = Bench::new(Calls::OnOwnThread);
    group.bench_function("on_own_thread", |b| b.iter(|| bench.renew()));
    group.finish();
}

/// The median of rounds that take turns, so that both see the same weather.
fn quotient(calls: Calls) {
    const ROUNDS: usize = 401;
    const EACH: u32 = 50;
    let bench = Bench::new(calls);
    let time = |work: &dyn Fn()| {
        let began = BootClock.now();
        for _ in 0..EACH {
            work();
        }
        (BootClock.now() - began) / EACH
    };
    let (mut by_hand, mut store) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        by_hand.push(time(&|| {
            bench.by_hand.renew(&bench.lease);
        }));
        // Wakes the worker, which sleeps after so long a pause: that is measured below.
        bench.renew();
        store.push(time(&|| bench.renew()));
    }
    let rested = |work: &dyn Fn()| {
        let once = |_| {
            std::thread::sleep(Duration::from_millis(2));
            let began = BootClock.now();
            work();
            BootClock.now() - began
        };
        median((0..ROUNDS).map(once).collect())
    };
    let by_hand_rested = rested(&|| {
        bench.by_hand.renew(&bench.lease);
    });
    let store_rested = rested(&|| bench.renew());
    let (by_hand, store) = (median(by_hand), median(store));
    let quotient = store.as_secs_f64() / by_hand.as_secs_f64();
    println!("{calls:?}");
    println!("renew by hand       {by_hand:>10.1?}, after a rest of 2 ms {by_hand_rested:>10.1?}");
    println!("renew by the store  {store:>10.1?}, after a rest of 2 ms {store_rested:>10.1?}");
    println!("quotient            {quotient:>10.3} (goal: at most 1.1)");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

criterion_group!(benches, renew);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    quotient(Calls::Inline);
    quotient(Calls::OnOwnThread);
}
