//! The in-memory store against a tiny model, over any sequence of operations by several
//! holders: the same answers, and tokens that only grow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use proptest::prelude::*;
use tenure::{
    AcquireRequest, Acquired, Asked, Attempt, Clock, Holder, HolderRequest, Key, Lease, Loss,
    ManualClock, MemoryStore, Released, Renewed, Store, Token, Version,
};

use crate::cases;

const KEYS: [&str; 3] = ["a", "a/b", "b"];

/// One operation. A lease is named by its place among all that were ever handed out, so
/// that renewals and releases also come late, and from holders that lost it.
#[derive(Clone, Debug)]
enum Op {
    Acquire {
        key: usize,
        holder: u8,
        attempt: u64,
        ttl_ms: u64,
        ended: Option<usize>,
    },
    Renew(usize, u64),
    Release(usize),
    Read(usize),
    List(&'static str, usize),
    Ask(usize),
    Delete(usize),
    Advance(u64),
    SetClockBack(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS.len();
    let acquire = (
        key.clone(),
        0..3_u8,
        0..2_u64,
        1..40_u64,
        any::<Option<u8>>(),
    )
        .prop_map(|(key, holder, attempt, ttl_ms, ended)| Op::Acquire {
            key,
            holder,
            attempt,
            ttl_ms,
            ended: ended.map(usize::from),
        });
    prop_oneof![
        6 => acquire,
        4 => (0..64_usize, 1..40_u64).prop_map(|(lease, ttl)| Op::Renew(lease, ttl)),
        2 => (0..64_usize).prop_map(Op::Release),
        1 => key.clone().prop_map(Op::Read),
        1 => (proptest::sample::select(vec!["", "a", "a/", "c"]), 0..4_usize)
            .prop_map(|(prefix, limit)| Op::List(prefix, limit)),
        1 => key.clone().prop_map(Op::Ask),
        1 => key.prop_map(Op::Delete),
        3 => (0..30_u64).prop_map(Op::Advance),
        1 => (1..1000_u64).prop_map(Op::SetClockBack),
    ]
}

/// What the contract says that a record is.
#[derive(Clone)]
struct Record {
    holder: Option<u8>,
    token: u64,
    attempt: u64,
    ttl: Duration,
    ends_at: Duration,
    acquired_at: SystemTime,
    version: Version,
    asked: bool,
}

struct Model {
    own_clock: bool,
    now: Duration,
    wall: SystemTime,
    records: BTreeMap<&'static str, Record>,
}

impl Model {
    fn clock_us(&self) -> u64 {
        let since = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        u64::try_from(since.as_micros()).unwrap()
    }

    fn live(&self, key: &str) -> Option<(u8, Record)> {
        let record = self.records.get(key)?.clone();
        let runs = !self.own_clock || self.now < record.ends_at;
        Some((record.holder.filter(|_| runs)?, record))
    }

    fn lease(&self, key: &str, holder: u8, record: &Record) -> Lease {
        Lease {
            key: Key::new(key).unwrap(),
            holder: name(holder),
            token: Token(record.token),
            attempt: Some(Attempt::from_u64(record.attempt)),
            ttl: record.ttl,
            rest: self
                .own_clock
                .then(|| record.ends_at.saturating_sub(self.now)),
            acquired_at: Some(record.acquired_at),
            version: record.version.clone(),
        }
    }

    fn read(&self, key: &str) -> Option<Lease> {
        let (holder, record) = self.live(key)?;
        Some(self.lease(key, holder, &record))
    }

    /// The record of a grant, if it is to be one; its version is the store's to choose.
    fn acquire(&mut self, key: &'static str, request: &AcquireRequest, holder: u8) -> bool {
        let last = self.records.get(key).map_or(0, |record| record.token);
        let mut granted = Record {
            holder: Some(holder),
            token: self.clock_us().max(last + 1),
            attempt: request.attempt.as_u64(),
            ttl: request.ttl,
            ends_at: self.now + request.ttl,
            acquired_at: self.wall,
            version: Version::new(""),
            asked: false,
        };
        if let Some((present, record)) = self.live(key) {
            if present == holder && record.attempt == granted.attempt {
                granted.token = record.token;
                granted.acquired_at = record.acquired_at;
                granted.asked = record.asked;
            } else if self.own_clock || request.ended.as_ref() != Some(&record.version) {
                return false;
            }
        }
        self.records.insert(key, granted);
        true
    }

    fn loss(&self, lease: &Lease) -> Option<Loss> {
        let key = lease.key.as_str();
        match (self.live(key), self.records.get(key)) {
            (Some((holder, record)), _) => {
                let ours = name(holder) == lease.holder && record.token == lease.token.0;
                (!ours).then(|| Loss::Superseded {
                    holder: name(holder),
                    token: Token(record.token),
                })
            }
            (None, Some(record)) if record.holder.is_some() && record.token == lease.token.0 => {
                Some(Loss::Expired)
            }
            (None, _) => Some(Loss::Deleted),
        }
    }
}

fn name(holder: u8) -> Holder {
    Holder::new(format!("holder {holder}")).unwrap()
}

fn key(place: usize) -> (&'static str, Key) {
    (KEYS[place], Key::new(KEYS[place]).unwrap())
}

/// The answer of a call that has nothing to wait for.
fn now<T>(answer: impl Future<Output = tenure::Result<T>>) -> T {
    answer.now_or_never().unwrap().unwrap()
}

struct Run {
    store: MemoryStore,
    clock: ManualClock,
    model: Model,
    leases: Vec<Lease>,
    /// The greatest token of each key, and whether the clock has gone back since.
    tokens: BTreeMap<Key, Token>,
    clock_went_back: bool,
}

impl Run {
    fn new(own_clock: bool) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = match own_clock {
            true => MemoryStore::with_clock(shared),
            false => MemoryStore::watched_with_clock(shared),
        };
        let model = Model {
            own_clock,
            now: Duration::ZERO,
            wall: clock.wall(),
            records: BTreeMap::new(),
        };
        Self {
            store,
            clock,
            model,
            leases: Vec::new(),
            tokens: BTreeMap::new(),
            clock_went_back: false,
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Acquire { .. } => self.acquire(op)?,
            Op::Renew(place, ttl_ms) => self.renew(*place, Duration::from_millis(*ttl_ms))?,
            Op::Release(place) => self.release(*place)?,
            Op::Read(place) => {
                let (text, key) = key(*place);
                prop_assert_eq!(now(self.store.read(&key)), self.model.read(text));
            }
            Op::List(prefix, limit) => {
                let keys = KEYS.iter().filter(|key| key.starts_with(prefix));
                let live: Vec<_> = keys.filter_map(|key| self.model.read(key)).collect();
                let live = &live[..live.len().min(*limit)];
                prop_assert_eq!(now(self.store.list(prefix, *limit)), live);
            }
            Op::Ask(place) => self.ask(*place)?,
            Op::Delete(place) => {
                let (text, key) = key(*place);
                self.store.delete(&key);
                self.model.records.remove(text);
                // Nobody deletes a record in the microsecond that it was made in.
                self.advance(Duration::from_millis(1));
            }
            Op::Advance(ms) => self.advance(Duration::from_millis(*ms)),
            Op::SetClockBack(ms) => {
                self.model.wall -= Duration::from_millis(*ms);
                self.clock.set_wall(self.model.wall);
                self.clock_went_back = true;
            }
        }
        Ok(())
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.model.now += by;
        self.model.wall += by;
    }

    fn lease(&self, place: usize) -> Option<Lease> {
        let count = self.leases.len();
        (count > 0).then(|| self.leases[place % count].clone())
    }

    fn acquire(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let Op::Acquire {
            key: place,
            holder,
            attempt,
            ttl_ms,
            ended,
        } = op
        else {
            return Ok(());
        };
        let (text, key) = key(*place);
        let request = AcquireRequest {
            key: key.clone(),
            holder: name(*holder),
            ttl: Duration::from_millis(*ttl_ms),
            attempt: Attempt::from_u64(*attempt),
            ended: ended.and_then(|place| Some(self.lease(place)?.version)),
        };
        let before = self.model.records.get(text).map(|record| record.token);
        let held = self.model.read(text);
        let grant = self.model.acquire(text, &request, *holder);
        match now(self.store.acquire(&request)) {
            Acquired::Granted(lease) => {
                prop_assert!(grant, "granted, but held: {:?}", held);
                self.seen(text, &lease)?;
                let last = self.tokens.insert(key, lease.token);
                // A new tenure; after a deletion by the clock alone, if it has not gone back.
                let again = before == Some(lease.token.0);
                if !again && (before.is_some() || !self.clock_went_back) {
                    prop_assert!(last.is_none_or(|last| last < lease.token), "{:?}", last);
                }
                self.leases.push(lease);
            }
            Acquired::Held(lease) => {
                prop_assert!(!grant, "held, but free: {:?}", lease);
                prop_assert_eq!(Some(lease), held);
            }
        }
        Ok(())
    }

    fn renew(&mut self, place: usize, ttl: Duration) -> Result<(), TestCaseError> {
        let Some(lease) = self.lease(place) else {
            return Ok(());
        };
        let text = *KEYS.iter().find(|key| **key == lease.key.as_str()).unwrap();
        match (now(self.store.renew(&lease, ttl)), self.model.loss(&lease)) {
            (Renewed::Renewed(renewed, request), None) => {
                let ends_at = self.model.now + ttl;
                let record = self.model.records.get_mut(text).unwrap();
                (record.ttl, record.ends_at) = (ttl, ends_at);
                prop_assert_eq!(request.is_some(), record.asked);
                self.seen(text, &renewed)?;
            }
            (Renewed::Lost(loss), expected) => prop_assert_eq!(Some(loss), expected),
            (renewed, expected) => prop_assert!(false, "{:?}, not {:?}", renewed, expected),
        }
        Ok(())
    }

    fn release(&mut self, place: usize) -> Result<(), TestCaseError> {
        let Some(lease) = self.lease(place) else {
            return Ok(());
        };
        let released = now(self.store.release(&lease));
        if self.model.loss(&lease).is_some() {
            prop_assert_eq!(released, Released::NotHeld);
            return Ok(());
        }
        prop_assert_eq!(released, Released::Released);
        let record = self.model.records.get_mut(lease.key.as_str()).unwrap();
        record.holder = None;
        Ok(())
    }

    fn ask(&mut self, place: usize) -> Result<(), TestCaseError> {
        let (text, key) = key(place);
        let expected = match self.model.read(text) {
            Some(Lease { holder, token, .. }) => {
                self.model.records.get_mut(text).unwrap().asked = true;
                Asked::Left { holder, token }
            }
            None => Asked::NotHeld,
        };
        let asked = now(self.store.ask(&key, HolderRequest::StepDown));
        prop_assert_eq!(asked, expected);
        Ok(())
    }

    /// What the store has written: all that the model says, and a version that is new.
    fn seen(&mut self, text: &'static str, lease: &Lease) -> Result<(), TestCaseError> {
        let record = self.model.records.get_mut(text).unwrap();
        prop_assert_ne!(&record.version, &lease.version);
        record.version = lease.version.clone();
        let expected = self.model.read(text);
        prop_assert_eq!(Some(lease), expected.as_ref());
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn the_memory_store_is_the_model(
        own_clock in any::<bool>(),
        ops in proptest::collection::vec(any_op(), 1..120),
    ) {
        let mut run = Run::new(own_clock);
        for op in &ops {
            run.step(op)?;
        }
    }
}
