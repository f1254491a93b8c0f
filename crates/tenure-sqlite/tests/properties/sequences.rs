//! Any sequence of operations on a file has the answers of the memory store.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rusqlite::Connection;
use tenure::{
    AcquireRequest, Acquired, Asked, Attempt, ErrorKind, Holder, HolderRequest, Lease, ManualClock,
    MemoryStore, Released, Renewed, Result, Store, Version,
};
use tenure_sqlite::Calls;

use crate::support::{self, key};
use crate::{cases, open, runtime};

const KEYS: [&str; 3] = ["a", "a/b", "b"];

/// One operation. A lease is named by its place among all that were ever handed out, so
/// that renewals and releases also come late.
#[derive(Clone, Debug)]
enum Op {
    Acquire {
        key: usize,
        holder: u8,
        attempt: u64,
        ttl_ms: u64,
    },
    Renew(usize, u64),
    RenewMany(Vec<usize>, u64),
    Release(usize),
    Read(usize),
    List(&'static str, usize),
    Ask(usize),
    Delete(usize),
    Advance(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS.len();
    // A ttl of zero is one that both refuse.
    let acquire = (key.clone(), 0..3_u8, 0..2_u64, 0..40_u64);
    prop_oneof![
        6 => acquire.prop_map(|(key, holder, attempt, ttl_ms)| Op::Acquire { key, holder, attempt, ttl_ms }),
        4 => (0..64_usize, 0..40_u64).prop_map(|(lease, ttl)| Op::Renew(lease, ttl)),
        1 => (proptest::collection::vec(0..64_usize, 0..4), 1..40_u64)
            .prop_map(|(leases, ttl)| Op::RenewMany(leases, ttl)),
        2 => (0..64_usize).prop_map(Op::Release),
        1 => key.clone().prop_map(Op::Read),
        1 => (proptest::sample::select(vec!["", "a", "a/", "c"]), 0..4_usize)
            .prop_map(|(prefix, limit)| Op::List(prefix, limit)),
        1 => key.clone().prop_map(Op::Ask),
        1 => key.prop_map(Op::Delete),
        3 => (0..30_u64).prop_map(Op::Advance),
    ]
}

/// What one store answered, but for the versions, which are its own.
#[derive(Debug, PartialEq)]
enum Said {
    Acquired(Acquired),
    Renewed(Vec<Renewed>),
    Released(Released),
    Leases(Vec<Lease>),
    Asked(Asked),
    Refused(ErrorKind),
    Nothing,
}

fn plain(lease: Lease) -> Lease {
    let version = Version::new("");
    Lease { version, ..lease }
}

fn plain_renewed(renewed: Renewed) -> Renewed {
    match renewed {
        Renewed::Renewed(lease, request) => Renewed::Renewed(plain(lease), request),
        lost => lost,
    }
}

/// One of the two that are compared, with the leases that it has handed out.
struct Side {
    store: Arc<dyn Store>,
    leases: Vec<Lease>,
}

impl Side {
    fn new(store: Arc<dyn Store>) -> Self {
        let leases = Vec::new();
        Self { store, leases }
    }

    fn lease(&self, place: usize) -> Option<Lease> {
        let count = self.leases.len();
        (count > 0).then(|| self.leases[place % count].clone())
    }

    async fn say(&mut self, op: &Op) -> Said {
        let said = self.try_say(op).await;
        said.unwrap_or_else(|error| Said::Refused(error.kind()))
    }

    async fn try_say(&mut self, op: &Op) -> Result<Said> {
        let store = self.store.clone();
        Ok(match op {
            Op::Acquire {
                key,
                holder,
                attempt,
                ttl_ms,
            } => {
                let request = AcquireRequest {
                    key: support::key(KEYS[*key]),
                    holder: Holder::new(format!("holder {holder}"))?,
                    ttl: Duration::from_millis(*ttl_ms),
                    attempt: Attempt::from_u64(*attempt),
                    ended: None,
                };
                Said::Acquired(match store.acquire(&request).await? {
                    Acquired::Granted(lease) => {
                        self.leases.push(lease.clone());
                        Acquired::Granted(plain(lease))
                    }
                    Acquired::Held(lease) => Acquired::Held(plain(lease)),
                })
            }
            Op::Renew(place, ttl_ms) => match self.lease(*place) {
                Some(lease) => {
                    let ttl = Duration::from_millis(*ttl_ms);
                    Said::Renewed(vec![plain_renewed(store.renew(&lease, ttl).await?)])
                }
                None => Said::Nothing,
            },
            Op::RenewMany(places, ttl_ms) => {
                let leases = places.iter().filter_map(|place| self.lease(*place));
                let ttl = Duration::from_millis(*ttl_ms);
                let leases: Vec<_> = leases.map(|lease| (lease, ttl)).collect();
                let renewed = store.renew_many(&leases).await.into_iter();
                let renewed: Result<Vec<_>> = renewed.collect();
                Said::Renewed(renewed?.into_iter().map(plain_renewed).collect())
            }
            Op::Release(place) => match self.lease(*place) {
                Some(lease) => Said::Released(store.release(&lease).await?),
                None => Said::Nothing,
            },
            Op::Read(place) => {
                let found = store.read(&key(KEYS[*place])).await?;
                Said::Leases(found.into_iter().map(plain).collect())
            }
            Op::List(prefix, limit) => {
                let found = store.list(prefix, *limit).await?;
                Said::Leases(found.into_iter().map(plain).collect())
            }
            Op::Ask(place) => {
                let step_down = HolderRequest::StepDown;
                Said::Asked(store.ask(&key(KEYS[*place]), step_down).await?)
            }
            Op::Delete(_) | Op::Advance(_) => Said::Nothing,
        })
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// Two openings of one file in turn, and the memory store, which has a model of its own.
    #[test]
    fn answers_as_the_memory_store(
        ops in proptest::collection::vec((any_op(), any::<bool>()), 1..60),
        inline in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let clock = ManualClock::new();
        let calls = if inline { Calls::Inline } else { Calls::OnOwnThread };
        let files: [Arc<dyn Store>; 2] =
            [Arc::new(open(&path, &clock, calls)), Arc::new(open(&path, &clock, calls))];
        let memory = MemoryStore::with_clock(Arc::new(clock.clone()));
        let by_hand = Connection::open(&path).unwrap();
        let mut file = Side::new(files[0].clone());
        let mut expected = Side::new(Arc::new(memory.clone()));
        let runtime = runtime();
        for (op, second) in ops {
            file.store = files[usize::from(second)].clone();
            match op {
                Op::Delete(place) => {
                    memory.delete(&key(KEYS[place]));
                    by_hand.execute("DELETE FROM leases WHERE key = ?1", [KEYS[place]]).unwrap();
                    // Nobody deletes a record in the microsecond that it was made in.
                    clock.advance(Duration::from_millis(1));
                }
                Op::Advance(ms) => clock.advance(Duration::from_millis(ms)),
                op => {
                    let (said, expected) = runtime.block_on(async {
                        (file.say(&op).await, expected.say(&op).await)
                    });
                    prop_assert_eq!(said, expected, "{:?}", op);
                }
            }
        }
    }
}
