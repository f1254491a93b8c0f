//! What each operation costs in requests.

use std::time::Duration;

use tenure::{Acquired, Elector, Holder, Released, Renewed, Settings, Store, Timing};
use tenure_testbed::{Minio, unique};

use crate::support::{granted, held, key, request};
use crate::wrapped::Between;

#[tokio::test]
async fn each_operation_costs_what_the_docs_say() {
    let Some(minio) = Minio::shared() else { return };
    let between = Between::counting();
    let store = between.store(minio, &unique("requests"));
    let key = key("k");
    let lease = granted(&store, &request(&key, "a", 1)).await;
    assert_eq!(
        between.taken(),
        ["GET 404", "PUT 200"],
        "a key that never was"
    );
    let mut last = lease;
    for _ in 0..3 {
        let Renewed::Renewed(next, None) = store.renew(&last, last.ttl).await.unwrap() else {
            panic!("it was the holder's");
        };
        last = next;
    }
    assert_eq!(between.taken(), ["PUT 200"; 3], "one request per renewal");
    assert_eq!(store.release(&last).await.unwrap(), Released::Released);
    assert_eq!(between.taken(), ["PUT 200"], "a release");
    let lease = granted(&store, &request(&key, "b", 2)).await;
    assert_eq!(between.taken(), ["GET 200", "PUT 200"], "a released key");
    // The holder's own older version: one more look.
    store.renew(&lease, lease.ttl).await.unwrap();
    between.taken();
    store.renew(&lease, lease.ttl).await.unwrap();
    assert_eq!(
        between.taken(),
        ["PUT 412", "GET 200", "PUT 200"],
        "after a lost answer"
    );
}

#[tokio::test]
async fn a_follower_asks_whether_something_has_changed_and_writes_nothing() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("follower");
    let leader = Between::counting().store(minio, &prefix);
    let between = Between::counting();
    let store = between.store(minio, &prefix);
    let key = key("k");
    let lease = granted(&leader, &request(&key, "a", 1)).await;
    let mut asked = request(&key, "b", 2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(held(&store, &asked).await);
    }
    assert_eq!(between.taken(), ["GET 200", "GET 304", "GET 304"]);
    assert_eq!(seen[0], seen[2], "what was remembered is what was read");
    leader.renew(&lease, lease.ttl).await.unwrap();
    let seen = held(&store, &asked).await;
    assert_eq!(between.taken(), ["GET 200"], "it has changed");
    asked.ended = Some(seen.version);
    granted(&store, &asked).await;
    assert_eq!(between.taken(), ["GET 304", "PUT 200"], "a takeover");
}

#[tokio::test]
async fn a_leader_sends_one_write_per_renewal_and_nothing_else() {
    let Some(minio) = Minio::shared() else { return };
    let (leading, following) = (Between::counting(), Between::counting());
    let prefix = unique("hour");
    let elector = |between: &Between, holder: &str| {
        let settings = Settings::new("k").unwrap();
        let settings = settings.holder(Holder::new(holder).unwrap());
        let timing = Timing::with_ttl(Duration::from_secs(6));
        Elector::start(between.store(minio, &prefix), settings.timing(timing)).unwrap()
    };
    let leader = elector(&leading, "a");
    leader.elected().await.unwrap();
    let follower = elector(&following, "b");
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(leader.is_leader() && !follower.is_leader());
    let sent = leading.taken();
    assert_eq!(sent[..2], ["GET 404", "PUT 200"]);
    assert!(sent.len() > 4, "{sent:?}");
    assert!(
        sent[2..].iter().all(|request| request == "PUT 200"),
        "{sent:?}"
    );
    let sent = following.taken();
    assert!(
        sent.len() > 2 && sent.iter().all(|request| request.starts_with("GET")),
        "{sent:?}"
    );
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn of_two_at_a_free_key_the_loser_writes_once_at_most() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("two");
    let between = [Between::counting(), Between::counting()];
    let stores = [0, 1].map(|n: usize| between[n].store(minio, &prefix));
    for round in 0..10 {
        let key = key(&format!("k{round}"));
        let (one, two) = (request(&key, "a", 1), request(&key, "b", 2));
        let (one, two) = tokio::join!(stores[0].acquire(&one), stores[1].acquire(&two));
        let won = [one.unwrap(), two.unwrap()]
            .iter()
            .filter(|answer| matches!(answer, Acquired::Granted(_)))
            .count();
        assert_eq!(won, 1);
        for between in &between {
            let sent = between.taken();
            let writes = sent.iter().filter(|request| request.starts_with("PUT"));
            assert!(writes.count() <= 1 && sent.len() <= 3, "{sent:?}");
        }
    }
}
