//! No two machines' clocks are compared; the service's own clock is.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure::{Acquired, BootClock, Clock, Moment, Sleep, Store};
use tenure_object::{BucketStore, MARGIN, ObjectOptions};
use tenure_testbed::{Minio, unique};

use crate::support::{get, granted, held, key, request, store};

/// A machine whose wall clock is wrong.
#[derive(Debug)]
struct Off(i64);

impl Clock for Off {
    fn now(&self) -> Moment {
        BootClock.now()
    }

    fn wall(&self) -> SystemTime {
        let by = Duration::from_secs(self.0.unsigned_abs());
        match self.0 < 0 {
            true => BootClock.wall() - by,
            false => BootClock.wall() + by,
        }
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        BootClock.sleep_until(moment)
    }
}

fn off(minio: &Minio, prefix: &str, seconds: i64) -> BucketStore {
    let options = ObjectOptions::from_url(&minio.url(prefix)).unwrap();
    BucketStore::open_with_clock(options, Arc::new(Off(seconds))).unwrap()
}

#[tokio::test]
async fn clocks_an_hour_off_either_way_change_nothing() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("off");
    for (holder, candidate) in [(-3600, 3600), (3600, -3600), (-3600, 0), (3600, 0)] {
        let (one, two) = (off(minio, &prefix, holder), off(minio, &prefix, candidate));
        let key = key(&format!("{holder}/{candidate}"));
        let lease = granted(&one, &request(&key, "a", 1)).await;
        let seen = held(&two, &request(&key, "b", 2)).await;
        assert_eq!((seen.token, seen.ttl), (lease.token, lease.ttl));
        one.renew(&lease, lease.ttl).await.unwrap();
        held(&two, &request(&key, "b", 2)).await;
        // A peer that compares clocks reads the service's time, not that of the machine.
        let record: serde_json::Value =
            serde_json::from_str(&get(minio, &prefix, &key).await).unwrap();
        let until = record["leaseUntilUtc"].as_str().unwrap();
        let until: SystemTime = chrono::DateTime::parse_from_rfc3339(until)
            .unwrap()
            .to_utc()
            .into();
        let rest = until.duration_since(BootClock.wall()).unwrap();
        assert!(rest < Duration::from_secs(60), "{rest:?}");
        // Tokens come from the service's clock too.
        let now = BootClock
            .wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let apart = now.as_micros().abs_diff(u128::from(lease.token.0));
        assert!(apart < 60_000_000, "{} at {now:?}", lease.token);
    }
}

/// By asking again and again: not before its time, and then at once, in two requests.
#[tokio::test]
async fn a_lease_that_ended_long_ago_is_taken_without_watching_it() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("dead");
    let key = key("k");
    let mut asked = request(&key, "a", 1);
    asked.ttl = Duration::from_secs(1);
    let sent = BootClock.now();
    let first = granted(&store(minio, &prefix), &asked).await;
    let next = loop {
        // Each time two other processes, which have watched nothing, at the same instant.
        let candidates = [store(minio, &prefix), store(minio, &prefix)];
        let seen = candidates[0].read(&key).await.unwrap();
        let requests = [request(&key, "b", 2), request(&key, "c", 3)];
        let (one, two) = tokio::join!(
            candidates[0].acquire(&requests[0]),
            candidates[1].acquire(&requests[1])
        );
        match (one.unwrap(), two.unwrap()) {
            (Acquired::Held(held), Acquired::Held(_)) => {
                assert_eq!(seen.map(|lease| lease.token), Some(held.token));
            }
            (Acquired::Granted(next), Acquired::Held(held))
            | (Acquired::Held(held), Acquired::Granted(next)) => {
                // The one who was held may have looked just before.
                assert!(held.token == next.token || held.token == first.token);
                break next;
            }
            both => panic!("two hold one lease: {both:?}"),
        }
        let age = BootClock.now() - sent;
        assert!(age < MARGIN * 6, "it is never taken");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let age = BootClock.now() - sent;
    assert!(age > MARGIN, "taken after {age:?}, before the margin");
    assert!(next.token > first.token);
}
