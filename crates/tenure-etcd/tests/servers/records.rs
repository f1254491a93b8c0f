//! Records that somebody else has written, changed or taken away by hand.

use std::time::Duration;

use tenure::{
    Acquired, BootClock, Clock, Error, ErrorKind, HolderRequest, Loss, Released, Renewed, Store,
};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testbed::{Etcd, unique};

use crate::bare::Bare;
use crate::support::{
    PATIENCE, TTL, aside, granted, held, key, open, renewed, request, take, until,
};

async fn bed() -> Option<(EtcdStore, Bare, String)> {
    let etcd = aside(Etcd::shared).await?;
    let prefix = unique("records/");
    let options = EtcdOptions::from_url(&etcd.url()).unwrap().prefix(&prefix);
    let bare = Bare::to(etcd.server().address());
    Some((EtcdStore::open(options).unwrap(), bare, prefix))
}

fn corrupt(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_never_overwritten() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let lease = bare.grant(60).await;
    for (name, value, lease) in [
        ("empty", &b""[..], lease),
        ("bytes", b"\xff\xfe", lease),
        ("forever", b"somebody", 0),
    ] {
        let at = format!("{prefix}{name}");
        bare.put(&at, value, lease).await;
        let before = bare.get(&at).await;
        let asked = request(&key(name), "a", TTL);
        let error = store.acquire(&asked).await.unwrap_err();
        corrupt(&error);
        assert!(error.to_string().contains(name), "{error}");
        corrupt(&store.read(&asked.key).await.unwrap_err());
        corrupt(
            &store
                .ask(&asked.key, HolderRequest::StepDown)
                .await
                .unwrap_err(),
        );
        assert_eq!(bare.get(&at).await, before, "it was changed");
    }
    corrupt(&store.list("", 10).await.unwrap_err());
}

#[tokio::test]
async fn a_note_that_cannot_be_read_costs_the_holder_nothing() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let lease = take(&store, &key("scribbled"), "a").await;
    let note = format!("tenure/{prefix}scribbled");
    let bound = bare.get(&note).await.unwrap().lease;
    bare.put(&note, b"scribble", bound).await;
    renewed(store.renew(&lease, TTL).await);
    let seen = held(store.acquire(&request(&lease.key, "b", TTL)).await);
    assert_eq!((seen.token, seen.attempt), (lease.token, None));
    corrupt(
        &store
            .ask(&lease.key, HolderRequest::StepDown)
            .await
            .unwrap_err(),
    );
    renewed(store.renew(&lease, TTL * 2).await);
    assert_eq!(
        bare.get(&note).await.unwrap().value,
        b"scribble",
        "it was overwritten"
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
}

/// Lease not found: somebody has revoked it by hand.
#[tokio::test]
async fn a_lease_that_was_revoked_is_lost() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let lease = take(&store, &key("revoked"), "a").await;
    let bound = bare.get(&format!("{prefix}revoked")).await.unwrap().lease;
    bare.revoke(bound).await;
    assert_eq!(
        store.renew(&lease, TTL).await.unwrap(),
        Renewed::Lost(Loss::Expired)
    );
    assert_eq!(
        store
            .renew_many(&[(lease.clone(), TTL)])
            .await
            .pop()
            .unwrap()
            .unwrap(),
        Renewed::Lost(Loss::Expired)
    );
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    let next = take(&store, &lease.key, "b").await;
    assert!(next.token > lease.token);
}

/// Lease not found: the spare one that a waiter has kept is gone.
#[tokio::test]
async fn a_spare_lease_that_is_gone_costs_a_waiter_nothing() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let bare = Bare::to(etcd.server().address());
    let first = take(&other, &key("spare"), "b").await;
    let waiting = request(&first.key, "a", Duration::from_secs(45));
    held(store.acquire(&waiting).await);
    let bound = bare.get("app_runtime_leases/spare").await.unwrap().lease;
    let leases = aside({
        let etcd = etcd.clone();
        move || etcd.ctl(&["lease", "list"])
    })
    .await;
    let ids = leases
        .lines()
        .filter_map(|line| i64::from_str_radix(line.trim(), 16).ok());
    let spare: Vec<_> = ids.filter(|id| *id != bound).collect();
    assert_eq!(
        spare.len(),
        1,
        "one lease of the holder, one spare: {leases}"
    );
    bare.revoke(spare[0]).await;
    assert_eq!(other.release(&first).await.unwrap(), Released::Released);
    let lease = granted(store.acquire(&waiting).await);
    assert!(lease.token > first.token);
    renewed(store.renew(&lease, lease.ttl).await);
}

/// A waiter that polls for long leaves no more behind than the one spare lease.
#[tokio::test]
async fn etcd_leases_do_not_pile_up() {
    let Some(etcd) = aside(Etcd::start).await else {
        return;
    };
    let (store, other) = (open(&etcd.url()), open(&etcd.url()));
    let first = take(&other, &key("pile"), "b").await;
    for _ in 0..20 {
        held(store.acquire(&request(&first.key, "a", TTL)).await);
    }
    assert_eq!(other.release(&first).await.unwrap(), Released::Released);
    for _ in 0..20 {
        let lease = take(&store, &first.key, "a").await;
        assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    }
    until("tidying up", PATIENCE, async || {
        let etcd = etcd.clone();
        let leases = aside(move || etcd.ctl(&["lease", "list"])).await;
        leases
            .starts_with("found 0 ")
            .then_some(())
            .or_else(|| leases.starts_with("found 1 ").then_some(()))
    })
    .await;
}

/// The term of a record is that of its own tenure only: what one keeps alive says nothing
/// of its neighbour, though both are held over one store.
#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_beside_one_that_is() {
    let Some((store, ..)) = bed().await else {
        return;
    };
    let short = Duration::from_secs(2);
    let left = granted(store.acquire(&request(&key("left"), "a", short)).await);
    let kept = granted(store.acquire(&request(&key("kept"), "a", short)).await);
    until("the end of what is not renewed", PATIENCE, async || {
        renewed(store.renew(&kept, short).await);
        store.read(&left.key).await.unwrap().is_none().then_some(())
    })
    .await;
    renewed(store.renew(&kept, short).await);
}

/// A waiter has its etcd lease from an earlier, refused call; its term is whole all the same.
#[tokio::test]
async fn a_waiters_term_begins_with_its_acquire() {
    let Some((store, _, _)) = bed().await else {
        return;
    };
    let ttl = Duration::from_secs(3);
    let first = take(&store, &key("waited"), "a").await;
    let waiting = request(&first.key, "b", ttl);
    held(store.acquire(&waiting).await);
    tokio::time::sleep(Duration::from_millis(2_300)).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    let sent = BootClock.now();
    let lease = granted(store.acquire(&waiting).await);
    let next = request(&first.key, "c", TTL);
    until("the end of the term", PATIENCE, async || {
        match store.acquire(&next).await.unwrap() {
            Acquired::Granted(_) => Some(()),
            Acquired::Held(seen) => {
                assert_eq!(seen.token, lease.token);
                None
            }
        }
    })
    .await;
    let lived = BootClock.now() - sent;
    assert!(
        lived >= ttl * 99 / 100,
        "a term of {ttl:?} ended after {lived:?}"
    );
}

/// A renewal in other hands, or of another key, does not even lengthen the term.
#[tokio::test]
async fn a_renewal_that_is_lost_lengthens_nothing() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let short = Duration::from_secs(3);
    let lease = granted(store.acquire(&request(&key("mine"), "a", short)).await);
    let bound = bare.get(&format!("{prefix}mine")).await.unwrap().lease;
    let mut stolen = lease.clone();
    stolen.holder = tenure::Holder::new("b").unwrap();
    let mut elsewhere = lease.clone();
    elsewhere.key = key("yours");
    until("the end of the term", PATIENCE, async || {
        for wrong in [&stolen, &elsewhere] {
            let answer = store.renew(wrong, short).await.unwrap();
            assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
            store.renew_many(&[(wrong.clone(), short)]).await;
        }
        bare.get(&format!("{prefix}mine"))
            .await
            .is_none()
            .then_some(())
    })
    .await;
    assert!(bare.keep(bound).await <= 0, "the etcd lease has ended too");
}

/// Etcd counts whole seconds: what is asked for is rounded up, and told as it was asked.
#[tokio::test]
async fn a_ttl_with_a_fraction_is_never_cut() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let ttl = Duration::from_millis(2_001);
    let lease = granted(store.acquire(&request(&key("fraction"), "a", ttl)).await);
    assert_eq!(lease.ttl, ttl);
    let bound = bare.get(&format!("{prefix}fraction")).await.unwrap().lease;
    assert_eq!(bare.keep(bound).await, 3);
    let seen = store.read(&lease.key).await.unwrap().unwrap();
    assert_eq!(seen.ttl, ttl);
    assert!(seen.rest.is_some_and(|rest| rest <= ttl));
}

/// Many leases are renewed over one stream and one read for each 64.
#[tokio::test]
async fn renew_many_of_more_than_a_batch() {
    let Some((store, bare, prefix)) = bed().await else {
        return;
    };
    let mut batch = Vec::new();
    for n in 0..150 {
        batch.push((take(&store, &key(&format!("n/{n:03}")), "a").await, TTL));
    }
    // One is gone, one is in other hands, one comes with a version that means nothing.
    bare.revoke(bare.get(&format!("{prefix}n/070")).await.unwrap().lease)
        .await;
    batch[71].0.holder = tenure::Holder::new("b").unwrap();
    batch[72].0.version = tenure::Version::new("?");
    let answers = store.renew_many(&batch).await;
    assert_eq!(answers.len(), batch.len());
    for (n, (answer, (lease, _))) in answers.into_iter().zip(&batch).enumerate() {
        match (n, answer.unwrap()) {
            (70, answer) => assert_eq!(answer, Renewed::Lost(Loss::Expired)),
            (71, answer) => assert!(matches!(answer, Renewed::Lost(Loss::Superseded { .. }))),
            (_, Renewed::Renewed(renewed, _)) => {
                assert_eq!((&renewed.key, renewed.token), (&lease.key, lease.token));
            }
            (n, answer) => panic!("{n}: {answer:?}"),
        }
    }
    assert_eq!(store.list("n/", 1000).await.unwrap().len(), 149);
    assert_eq!(store.list("n/", 120).await.unwrap().len(), 120);
}
