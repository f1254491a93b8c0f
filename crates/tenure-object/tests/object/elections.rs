//! Real electors: a crash, a release, and a leader that is cut off.

use std::time::Duration;

use tenure::{BootClock, Clock, Elector, EndReason, Event, Holder, Settings, Store, Timing};
use tenure_object::BucketStore;
use tenure_testbed::{Minio, unique};

use crate::support::{key, open, store};

fn elector(store: BucketStore, holder: &str) -> Elector {
    let settings = Settings::new("k").unwrap();
    let settings = settings.holder(Holder::new(holder).unwrap());
    let timing = Timing::with_ttl(Duration::from_secs(3));
    Elector::start(store, settings.timing(timing)).unwrap()
}

/// What takes longer does not happen.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    let answer = tokio::time::timeout(limit, future).await;
    answer.unwrap_or_else(|_| panic!("no {what} within {limit:?}"))
}

#[tokio::test]
async fn a_release_is_met_by_the_next_poll() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("released");
    let leader = elector(store(minio, &prefix), "one");
    let first = soon("leader", leader.elected()).await.unwrap();
    let waiter = elector(store(minio, &prefix), "two");
    leader.stop().await;
    let second = soon("next leader", waiter.elected()).await.unwrap();
    assert!(second.token() > first.token());
    waiter.stop().await;
    assert_eq!(store(minio, &prefix).read(&key("k")).await.unwrap(), None);
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_none_before_the_next_one_is() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("cut-off");
    let proxy = minio.proxy();
    let leader = elector(open(&minio.url_at(proxy.address(), &prefix)), "one");
    let mut events = leader.events();
    let first = soon("leader", leader.elected()).await.unwrap();
    let waiter = elector(store(minio, &prefix), "two");
    proxy.black_hole();
    let second = soon("next leader", waiter.elected()).await.unwrap();
    let elected_at = BootClock.now();
    assert!(!first.is_valid(), "two lead at {elected_at:?}");
    assert!(second.token() > first.token());
    let lost = async {
        loop {
            if let Some(Event::Lost { token, reason }) = events.next().await {
                return (token, reason);
            }
        }
    };
    assert_eq!(soon("end", lost).await, (first.token(), EndReason::Expired));
    // It comes back, and leaves its successor's lease alone.
    proxy.heal();
    leader.stop().await;
    assert!(second.is_valid());
    let lease = store(minio, &prefix)
        .read(&key("k"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(lease.token, second.token());
    waiter.stop().await;
}
