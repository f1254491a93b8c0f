//! The stage on which a clause plays: a harness, two stores on it, and what clauses often ask.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{
    AcquireRequest, Acquired, Attempt, Holder, HolderRequest, Key, Lease, Loss, Moment, Released,
    Renewed, Result, Store, StoreTraits, Token, Version,
};
use tokio::sync::Barrier;

use crate::harness::Harness;

/// How late after the end of its term a lease may still be shown: some servers sweep
/// now and then.
const ENDING_LATE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Stage {
    pub harness: Box<dyn Harness>,
    pub traits: StoreTraits,
    stores: [Arc<dyn Store>; 2],
    calls: AtomicU64,
    attempts: AtomicU64,
}

/// What of a record must stay the same when nothing has happened to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub holder: Holder,
    pub token: Token,
    pub ttl: Duration,
    pub version: Version,
}

impl Stage {
    pub async fn on(harness: Box<dyn Harness>) -> Self {
        let stores = [harness.store().await, harness.store().await];
        Self {
            traits: stores[0].traits(),
            harness,
            stores,
            calls: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
        }
    }

    /// One of the two stores. They take turns, two calls each, so that whatever one of
    /// them might remember of its callers goes wrong.
    pub fn store(&self) -> &dyn Store {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.stores[usize::from(call / 2 % 2 == 1)]
    }

    /// Says what the backend lacks, so that the test's output does.
    pub fn lacks(&self, what: &str) {
        eprintln!(
            "nothing to test here: the {} store's {what}",
            self.traits.name
        );
    }

    pub fn now(&self) -> Moment {
        self.harness.clock().now()
    }

    /// A term that does not end during any test.
    pub fn long(&self) -> Duration {
        Duration::from_secs(600).clamp(self.traits.ttl_min, self.traits.ttl_max)
    }

    /// A term whose end can be waited for.
    pub fn short(&self) -> Duration {
        Duration::from_millis(300).clamp(self.traits.ttl_min, self.traits.ttl_max)
    }

    /// A request for a long term, as the first try of a new attempt.
    pub fn request(&self, key: &Key, holder: &str) -> AcquireRequest {
        self.request_for(key, &self::holder(holder), self.long())
    }

    pub fn request_for(&self, key: &Key, holder: &Holder, ttl: Duration) -> AcquireRequest {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        AcquireRequest {
            key: key.clone(),
            holder: holder.clone(),
            ttl,
            attempt: Attempt::first(number + 1),
            ended: None,
        }
    }

    /// The lease that an acquire must give.
    pub async fn granted(&self, request: &AcquireRequest) -> Lease {
        match self.store().acquire(request).await {
            Ok(Acquired::Granted(lease)) => lease,
            other => panic!(
                "{:?} asks for {:?} and must get it, but: {other:?}",
                request.holder, request.key
            ),
        }
    }

    /// The lease because of which an acquire must be refused.
    pub async fn held(&self, request: &AcquireRequest) -> Lease {
        match self.store().acquire(request).await {
            Ok(Acquired::Held(lease)) => lease,
            other => panic!(
                "{:?} asks for {:?}, which somebody has, but: {other:?}",
                request.holder, request.key
            ),
        }
    }

    /// Takes a free key for a long term.
    pub async fn take(&self, key: &Key, holder: &str) -> Lease {
        self.granted(&self.request(key, holder)).await
    }

    /// Takes a free key for a term that [`succeed`](Self::succeed) need not wait for long.
    pub async fn take_briefly(&self, key: &Key, holder: &str) -> Lease {
        let ttl = if self.traits.own_clock {
            self.short()
        } else {
            self.long()
        };
        let request = self.request_for(key, &self::holder(holder), ttl);
        self.granted(&request).await
    }

    /// The request of somebody who takes over from `lease` without its having been
    /// released: when its term has ended, or, without a clock, by naming its version.
    pub async fn succession(&self, lease: &Lease, holder: &str) -> AcquireRequest {
        let mut request = self.request(&lease.key, holder);
        if self.traits.own_clock {
            self.wait_ended(lease).await;
        } else {
            request.ended = Some(self.live(&lease.key).await.version);
        }
        request
    }

    /// Takes over from `lease` without its having been released.
    pub async fn succeed(&self, lease: &Lease, holder: &str) -> Lease {
        let request = self.succession(lease, holder).await;
        self.granted(&request).await
    }

    /// Waits until the term of a lease has ended, on a store with a clock.
    pub async fn wait_ended(&self, lease: &Lease) {
        self.harness.pass_time(lease.ttl).await;
        let limit = self.now() + ENDING_LATE_MAX;
        while self
            .read(&lease.key)
            .await
            .is_some_and(|l| l.token == lease.token)
        {
            assert!(
                self.now() < limit,
                "a lease of {:?} is still live {ENDING_LATE_MAX:?} after its end",
                lease.ttl
            );
            self.harness.pass_time(Duration::from_millis(20)).await;
        }
    }

    pub async fn renew(&self, lease: &Lease, ttl: Duration) -> Renewed {
        ok("renew", self.store().renew(lease, ttl).await)
    }

    /// The lease and the request that a renewal must give.
    pub async fn renewed(&self, lease: &Lease) -> (Lease, Option<HolderRequest>) {
        match self.renew(lease, lease.ttl).await {
            Renewed::Renewed(renewed, asked) => (renewed, asked),
            lost => panic!(
                "{:?} has {:?} and must be able to renew, but: {lost:?}",
                lease.holder, lease.key
            ),
        }
    }

    /// How a renewal must find the lease lost; and that it changed nothing.
    pub async fn lost(&self, lease: &Lease) -> Loss {
        let before = self.snapshot(&lease.key).await;
        let answer = self.renew(lease, self.long()).await;
        let Renewed::Lost(loss) = answer else {
            panic!("{lease:?} is not the holder's any more, but its renewal: {answer:?}");
        };
        let after = self.snapshot(&lease.key).await;
        assert_eq!(before, after, "a renewal that was lost changed the record");
        loss
    }

    pub async fn release(&self, lease: &Lease) -> Released {
        ok("release", self.store().release(lease).await)
    }

    /// Releases what must not be releasable, and looks that nothing has changed.
    pub async fn release_in_vain(&self, lease: &Lease) {
        let before = self.snapshot(&lease.key).await;
        let answer = self.release(lease).await;
        let after = self.snapshot(&lease.key).await;
        assert_eq!(before, after, "the release of {lease:?} changed the record");
        assert_eq!(answer, Released::NotHeld, "the release of {lease:?}");
    }

    pub async fn read(&self, key: &Key) -> Option<Lease> {
        ok("read", self.store().read(key).await)
    }

    /// The lease that must be there.
    pub async fn live(&self, key: &Key) -> Lease {
        let lease = self.read(key).await;
        lease.unwrap_or_else(|| panic!("{key:?} is held, but read shows nobody"))
    }

    pub async fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        self.read(key).await.map(|lease| Snapshot {
            holder: lease.holder,
            token: lease.token,
            ttl: lease.ttl,
            version: lease.version,
        })
    }

    /// Runs one future per store at the same time, each with a store of its own.
    pub async fn at_once<T, F>(&self, many: Vec<impl FnOnce(Arc<dyn Store>) -> F>) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let gate = Arc::new(Barrier::new(many.len()));
        let mut tasks = Vec::with_capacity(many.len());
        for one in many {
            let work = one(self.harness.store().await);
            let gate = Arc::clone(&gate);
            tasks.push(tokio::spawn(async move {
                gate.wait().await;
                work.await
            }));
        }
        let mut results = Vec::with_capacity(tasks.len());
        for task in tasks {
            results.push(task.await.expect("a contender must not panic"));
        }
        results
    }

    /// Sends all requests at the same time; exactly one must be granted, and the others
    /// be told who has it. Returns the winner's lease.
    pub async fn race(&self, requests: Vec<AcquireRequest>) -> Lease {
        let contenders = requests
            .into_iter()
            .map(|request| |store: Arc<dyn Store>| async move { store.acquire(&request).await });
        let answers = self.at_once(contenders.collect()).await;
        let mut winner = None;
        let mut seen = Vec::new();
        for answer in answers {
            match ok("acquire", answer) {
                Acquired::Granted(lease) => {
                    let first = winner.replace(lease);
                    assert_eq!(first, None, "two were granted: also {winner:?}");
                }
                Acquired::Held(lease) => seen.push(lease),
            }
        }
        let winner = winner.expect("one of the contenders must be granted the lease");
        for lease in seen {
            let told = (lease.holder, lease.token);
            assert_eq!(told, (winner.holder.clone(), winner.token), "told of");
        }
        winner
    }
}

/// The answer of a store that must not fail.
pub(crate) fn ok<T>(what: &str, answer: Result<T>) -> T {
    answer.unwrap_or_else(|e| panic!("{what} must not fail, but is {}: {e}", e.kind()))
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("the suite's keys are valid")
}

pub(crate) fn holder(name: &str) -> Holder {
    Holder::new(name).expect("the suite's holders are valid")
}
