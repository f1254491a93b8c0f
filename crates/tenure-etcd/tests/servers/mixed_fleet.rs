//! One fleet of ours and of MaksIT.HAMode's: each excludes the other.

use std::time::Duration;

use tenure::{Acquired, Asked, ErrorKind, HolderRequest, Loss, Released, Renewed, Store};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testbed::{Etcd, unique};

use crate::bare::{Bare, HaMode};
use crate::support::{PATIENCE, TTL, aside, granted, held, key, renewed, request, take, until};

/// A store and a HAMode under a prefix of their own.
async fn fleet() -> Option<(EtcdStore, HaMode)> {
    let etcd = aside(Etcd::shared).await?;
    let prefix = unique("fleet/");
    let options = EtcdOptions::from_url(&etcd.url()).unwrap().prefix(&prefix);
    let bare = Bare::to(etcd.server().address());
    Some((EtcdStore::open(options).unwrap(), HaMode { bare, prefix }))
}

#[tokio::test]
async fn the_default_prefix_is_hamodes() {
    let Some(etcd) = aside(Etcd::shared).await else {
        return;
    };
    let store = crate::support::open(&etcd.url());
    let name = unique("default");
    let lease = take(&store, &key(&name), "ours").await;
    let bare = Bare::to(etcd.server().address());
    let kv = bare
        .get(&format!("app_runtime_leases/{name}"))
        .await
        .unwrap();
    assert_eq!(kv.value, b"ours", "exactly the holder");
    assert_eq!(
        kv.create_revision.unsigned_abs(),
        lease.token.0,
        "the token is a revision"
    );
    assert_ne!(kv.lease, 0, "bound to an etcd lease");
}

#[tokio::test]
async fn what_hamode_holds_is_not_ours() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let name = key("theirs");
    assert!(hamode.try_acquire("theirs", "hamode_1", 60).await);
    let ours = request(&name, "ours", TTL);
    let seen = held(store.acquire(&ours).await);
    assert_eq!(seen.holder.as_str(), "hamode_1");
    assert_eq!((seen.attempt, seen.ttl), (None, Duration::from_secs(60)));
    assert!(seen.rest.is_some_and(|rest| rest <= seen.ttl));
    // It renews by acquiring again, with another etcd lease: the same tenure to us.
    assert!(hamode.try_acquire("theirs", "hamode_1", 30).await);
    let again = store.read(&name).await.unwrap().unwrap();
    assert_eq!(
        (again.token, again.ttl),
        (seen.token, Duration::from_secs(30))
    );
    // Whoever knows only the name frees nothing, and renews nothing.
    let mut stolen = again.clone();
    stolen.holder = tenure::Holder::new("ours").unwrap();
    assert_eq!(store.release(&stolen).await.unwrap(), Released::NotHeld);
    let answer = store.renew(&stolen, TTL).await.unwrap();
    assert!(
        matches!(answer, Renewed::Lost(Loss::Superseded { .. })),
        "{answer:?}"
    );
    let refused = store.ask(&name, HolderRequest::StepDown).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    hamode.release("theirs", "hamode_1").await;
    let lease = granted(store.acquire(&ours).await);
    assert!(lease.token > seen.token);
    assert!(!hamode.try_acquire("theirs", "hamode_1", 60).await);
}

#[tokio::test]
async fn what_is_ours_is_not_hamodes() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let name = key("ours");
    let lease = take(&store, &name, "ours").await;
    for _ in 0..2 {
        assert!(!hamode.try_acquire("ours", "hamode_1", 60).await);
        hamode.release("ours", "hamode_1").await;
        renewed(store.renew(&lease, TTL).await);
    }
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert!(hamode.try_acquire("ours", "hamode_1", 60).await);
    let seen = held(store.acquire(&request(&name, "ours", TTL)).await);
    assert!(seen.token > lease.token, "tokens grow over all of them");
    let answer = store.renew(&lease, TTL).await.unwrap();
    let (holder, token) = (seen.holder, seen.token);
    assert_eq!(answer, Renewed::Lost(Loss::Superseded { holder, token }));
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn each_takes_over_when_the_other_has_ended() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let name = key("ends");
    let short = request(&name, "ours", Duration::from_secs(2));
    let first = granted(store.acquire(&short).await);
    until("HAMode's turn", PATIENCE, async || {
        hamode
            .try_acquire("ends", "hamode_1", 2)
            .await
            .then_some(())
    })
    .await;
    let next = request(&name, "ours", TTL);
    let last = until("our turn", PATIENCE, async || {
        match store.acquire(&next).await.unwrap() {
            Acquired::Granted(lease) => Some(lease),
            Acquired::Held(_) => None,
        }
    })
    .await;
    assert!(last.token > first.token);
}

#[tokio::test]
async fn a_note_of_ours_never_counts_beside_a_record_of_theirs() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let name = key("stale");
    let asked = request(&name, "same name", TTL);
    let lease = granted(store.acquire(&asked).await);
    let left = store.ask(&name, HolderRequest::StepDown).await.unwrap();
    assert!(matches!(left, Asked::Left { .. }));
    // HAMode frees by the name alone, so it frees ours; our note stays, and lives.
    hamode.release("stale", "same name").await;
    let note = format!("tenure/{}stale", hamode.prefix);
    assert!(hamode.bare.get(&note).await.is_some());
    assert_eq!(
        store.renew(&lease, TTL).await.unwrap(),
        Renewed::Lost(Loss::Deleted)
    );
    assert!(hamode.try_acquire("stale", "same name", 60).await);
    let seen = store.read(&name).await.unwrap().unwrap();
    assert_eq!((seen.attempt, seen.ttl), (None, Duration::from_secs(60)));
    let again = held(store.acquire(&asked).await);
    assert_eq!(again.token, seen.token, "our attempt is not that record's");
    let answer = store.renew(&seen, Duration::from_secs(60)).await.unwrap();
    let Renewed::Renewed(_, request) = answer else {
        panic!("holder and token are the record's: {answer:?}");
    };
    assert_eq!(request, None, "a request to the tenure before");
}

#[tokio::test]
async fn a_renewal_finds_its_record_bound_to_another_lease() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let lease = take(&store, &key("moved"), "same name").await;
    // HAMode of the same name renews our record: holder and token are still ours.
    assert!(hamode.try_acquire("moved", "same name", 30).await);
    let again = renewed(store.renew(&lease, TTL).await);
    assert_eq!(again.token, lease.token);
    assert_ne!(again.version, lease.version);
    renewed(store.renew(&again, Duration::from_secs(90)).await);
    let seen = store.read(&lease.key).await.unwrap().unwrap();
    assert_eq!(
        (seen.token, seen.ttl),
        (lease.token, Duration::from_secs(90))
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
}

/// Somebody's etcd lease may have other keys: a release of one leaves them alone.
#[tokio::test]
async fn a_release_frees_one_key_and_not_the_lease_of_others() {
    let Some((store, hamode)) = fleet().await else {
        return;
    };
    let bare = &hamode.bare;
    let session = bare.grant(60).await;
    for name in ["one", "two"] {
        let at = format!("{}{name}", hamode.prefix);
        bare.put(&at, b"somebody", session).await;
    }
    let one = store.read(&key("one")).await.unwrap().unwrap();
    assert_eq!(store.release(&one).await.unwrap(), Released::Released);
    // Longer than tidying up behind a tenure of ours takes.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(store.read(&key("two")).await.unwrap().is_some());
    assert!(bare.keep(session).await > 0);
}
