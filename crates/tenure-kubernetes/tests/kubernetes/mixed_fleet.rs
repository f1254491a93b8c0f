//! One election of client-go and ours, in both directions, with stops, kills and cuts.

use nix::sys::signal::Signal;
use tenure::{Acquired, Elector, EndReason, Event, Holder, Settings, Store, Timing};
use tokio::time::timeout;

use crate::go::{Go, QUICK, ttl};
use crate::support::{LONG, Place, request};

fn elector(place: &Place, key: &str, holder: &str) -> Elector {
    let settings = Settings::new(key)
        .unwrap()
        .holder(Holder::new(holder).unwrap())
        .timing(Timing::with_ttl(ttl()));
    Elector::start(place.store(), settings).unwrap()
}

/// Gracefully, there and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_go_replica_and_ours_hand_over_to_each_other() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let ours = elector(&place, "handover", "ours");
    let first = timeout(LONG, ours.elected()).await.unwrap().unwrap();
    let Some(mut go) = Go::on(&place, "handover", "go", QUICK) else {
        return;
    };
    go.says("sees ours").await;
    assert!(first.is_valid());
    ours.stop().await;
    go.says("leading").await;
    assert_eq!(place.lease("handover").await["spec"]["leaseTransitions"], 1);

    let again = elector(&place, "handover", "ours");
    let mut events = again.events();
    let seen = async {
        loop {
            match events.next().await {
                Some(Event::Following(lease)) => return lease,
                Some(Event::Elected(_)) => panic!("client-go leads and is alive"),
                _ => {}
            }
        }
    };
    let seen = timeout(LONG, seen).await.unwrap();
    assert_eq!(seen.holder.as_str(), "go");
    assert!(seen.token > first.token());
    // Longer than a term: it renews, and we watch.
    tokio::time::sleep(ttl() * 2).await;
    assert!(!again.is_leader(), "a living leader keeps its Lease");
    go.signal(Signal::SIGTERM);
    go.says("ended").await;
    let second = timeout(LONG, again.elected()).await.unwrap().unwrap();
    assert!(
        second.token() > seen.token,
        "tokens grow over tenures of others"
    );
    assert_eq!(place.lease("handover").await["spec"]["leaseTransitions"], 2);
    again.stop().await;
}

/// A crash of either is noticed by the other, after a term and not before.
#[tokio::test(flavor = "multi_thread")]
async fn a_go_replica_and_ours_take_over_after_a_crash() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let Some(mut go) = Go::on(&place, "crash", "go", QUICK) else {
        return;
    };
    go.says("leading").await;
    let ours = elector(&place, "crash", "ours");
    let mut events = ours.events();
    while !matches!(
        timeout(LONG, events.next()).await.unwrap(),
        Some(Event::Following(_))
    ) {}
    go.signal(Signal::SIGKILL);
    let tenure = timeout(LONG, ours.elected()).await.unwrap().unwrap();
    let taken = place.lease("crash").await;
    assert_eq!(taken["spec"]["holderIdentity"], "ours");
    let Some(mut next) = Go::on(&place, "crash", "go-2", QUICK) else {
        return;
    };
    next.says("sees ours").await;
    assert!(tenure.is_valid());
    ours.stop().await;
    next.says("leading").await;
    next.signal(Signal::SIGTERM);
    next.says("ended").await;
    // A crash of ours: it took the Lease, and nobody renews or releases it.
    let request = request("crash", "crashed", ttl().as_secs());
    let taken = place.store().acquire(&request).await.unwrap();
    assert!(matches!(taken, Acquired::Granted(_)), "{taken:?}");
    let Some(mut last) = Go::on(&place, "crash", "go-3", QUICK) else {
        return;
    };
    last.says("sees crashed").await;
    last.says("leading").await;
}

/// client-go 0.34 and later, cut off and back, frees the Lease of its living successor.
/// Then our tenure ends at once, and never are two valid at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_go_replica_that_comes_back_from_a_cut_costs_no_promise() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let proxy = place.kubernetes.server().proxy();
    let kubeconfig = place.kubeconfig(proxy.address(), place.kubernetes.admin_token());
    let mut freed = 0;
    for round in 0..3 {
        let name = format!("cut-{round}");
        let started = Go::start(&place, &kubeconfig, &name, "go", QUICK);
        let Some(mut go) = started else { return };
        go.says("leading").await;
        let ours = elector(&place, &name, "ours");
        let mut events = ours.events();
        while !matches!(
            timeout(LONG, events.next()).await.unwrap(),
            Some(Event::Following(_))
        ) {}
        proxy.black_hole();
        let tenure = timeout(LONG, ours.elected()).await.unwrap().unwrap();
        proxy.heal();
        go.says("ended").await;
        // Whatever it did to our record: either we still lead by it, or we have noticed.
        let record = place.lease(&name).await;
        let transitions = record["spec"]["leaseTransitions"].as_u64().unwrap();
        let holder = record["spec"]["holderIdentity"].as_str().unwrap_or("");
        if holder == "ours" && transitions == 1 {
            assert!(tenure.is_valid() || tenure.end_reason().is_some());
        } else {
            freed += 1;
            let reason = timeout(LONG, tenure.ended()).await.unwrap();
            assert_eq!(reason, EndReason::RecordDeleted, "freed by somebody");
            let next = timeout(LONG, ours.elected()).await.unwrap().unwrap();
            assert!(next.token() > tenure.token());
        }
        ours.stop().await;
    }
    eprintln!("client-go freed its living successor's Lease in {freed} of 3 cuts");
}
