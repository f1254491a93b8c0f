//! Cancellation: a call that was given up on may or may not happen, and harms nothing.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tenure::{Acquired, Renewed, Store};

use crate::stage::{Stage, key, ok};

const ROUNDS: u32 = 24;

/// Polls a future and drops it: at once, or after a little while, longer each round.
async fn drop_after<T>(round: u32, future: impl Future<Output = T>) {
    let nap = async {
        // Each turn is one more step that a call may have got to.
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        if round >= ROUNDS / 2 {
            tokio::time::sleep(Duration::from_micros(u64::from(round) * 60)).await;
        }
    };
    match select(pin!(future), pin!(nap)).await {
        Either::Left(_) | Either::Right(_) => {}
    }
}

/// An acquire that was given up on is repeated, and gets the lease, whatever became of
/// the first.
pub(crate) async fn dropped_acquire_can_be_repeated(stage: &Stage) {
    for round in 0..ROUNDS {
        let request = stage.request(&key(&format!("acquire/{round}")), "a");
        drop_after(round, stage.store().acquire(&request)).await;
        let lease = stage.granted(&request).await;
        let again = stage.granted(&request).await;
        assert_eq!(again.token, lease.token, "one attempt, one tenure");
        let seen = stage.held(&stage.request(&request.key, "b")).await;
        assert_eq!(seen.token, lease.token);
    }
}

/// A renewal that was given up on is repeated, and keeps the lease.
pub(crate) async fn dropped_renewal_can_be_repeated(stage: &Stage) {
    let lease = stage.take(&key("renew"), "a").await;
    for round in 0..ROUNDS {
        drop_after(round, stage.store().renew(&lease, stage.long())).await;
        let (renewed, _) = stage.renewed(&lease).await;
        assert_eq!(renewed.token, lease.token);
    }
}

/// After many calls that were given up on, of every kind, on one store, that same store
/// answers each question with its own answer and not with an earlier one's.
pub(crate) async fn dropped_calls_leave_the_store_usable(stage: &Stage) {
    let store = stage.harness.store().await;
    for round in 0..ROUNDS {
        let mine = key(&format!("mine/{round}"));
        let other = key(&format!("other/{round}"));
        let lease = grant(&*store, stage, &mine).await;
        let request = stage.request(&other, "a");
        drop_after(round, store.acquire(&request)).await;
        drop_after(round, store.read(&other)).await;
        drop_after(round, store.renew(&lease, stage.long())).await;
        let gone = grant(&*store, stage, &key(&format!("gone/{round}"))).await;
        drop_after(round, store.release(&gone)).await;
        let seen = ok("read", store.read(&mine).await);
        let seen = seen.map(|l| (l.key, l.holder, l.token));
        let expected = (mine, lease.holder.clone(), lease.token);
        assert_eq!(seen, Some(expected), "the answer to the question");
        match ok("renew", store.renew(&lease, stage.long()).await) {
            Renewed::Renewed(renewed, _) => assert_eq!(renewed.key, lease.key),
            lost => panic!("nobody took it, but: {lost:?}"),
        }
    }
}

async fn grant(store: &dyn Store, stage: &Stage, key: &tenure::Key) -> tenure::Lease {
    let request = stage.request(key, "a");
    match ok("acquire", store.acquire(&request).await) {
        Acquired::Granted(lease) => lease,
        held => panic!("{key:?} is free, but: {held:?}"),
    }
}
