//! Renew: it begins the term anew for the tenure that it names, and for no other (promise 6).

use std::time::Duration;

use tenure::{Acquired, ErrorKind, Lease, Loss, Released, Renewed, Token};

use crate::stage::{Stage, holder, key, ok};

/// A renewal is of the same tenure: holder, token, and when it began.
pub(crate) async fn renewal_keeps_the_tenure(stage: &Stage) {
    let key = key("kept");
    let lease = stage.take(&key, "a").await;
    let before = stage.live(&key).await;
    stage.harness.pass_time(Duration::from_millis(5)).await;
    let mut last = lease.clone();
    for _ in 0..3 {
        (last, _) = stage.renewed(&last).await;
        assert_eq!(last.key, key);
        assert_eq!(last.holder, lease.holder);
        assert_eq!(last.token, lease.token);
        assert_eq!(last.ttl, lease.ttl);
    }
    let after = stage.live(&key).await;
    assert_eq!(after.holder, lease.holder);
    assert_eq!(after.token, lease.token);
    assert_eq!(
        after.acquired_at, before.acquired_at,
        "the tenure began when it began"
    );
}

/// The term that begins anew is the one that the renewal asks for.
pub(crate) async fn renewal_sets_the_new_term(stage: &Stage) {
    let key = key("term");
    let (half, long) = (stage.long() / 2, stage.long());
    let mut request = stage.request(&key, "a");
    request.ttl = half;
    let lease = stage.granted(&request).await;
    for ttl in [long, half] {
        let answer = stage.renew(&lease, ttl).await;
        let Renewed::Renewed(renewed, _) = answer else {
            panic!("the holder's own renewal: {answer:?}");
        };
        let seen = stage.live(&key).await;
        assert_eq!((renewed.ttl, seen.ttl), (ttl, ttl));
        if stage.traits.own_clock {
            let rest = seen.rest.unwrap_or_default();
            let fits = rest <= ttl && rest > ttl / 2;
            assert!(fits, "the new term is {ttl:?}, but {rest:?} is left");
        }
    }
}

/// A lease that is renewed in time is live for longer than its first term.
pub(crate) async fn renewed_lease_outlives_its_first_term(stage: &Stage) {
    for doubling in 0..6 {
        let ttl = stage.short() * 2_u32.pow(doubling);
        let key = key(&format!("outlives/{doubling}"));
        let request = stage.request_for(&key, &holder("a"), ttl);
        let sent = stage.now();
        let lease = stage.granted(&request).await;
        stage.harness.pass_time(ttl * 6 / 10).await;
        let sent_again = stage.now();
        let answer = stage.renew(&lease, ttl).await;
        // If the machine stood still for so long that the term may have ended, nothing
        // was measured: a longer term can be.
        if stage.now() - sent >= ttl * 98 / 100 {
            continue;
        }
        assert!(matches!(answer, Renewed::Renewed(..)), "{answer:?}");
        stage.harness.pass_time(ttl * 6 / 10).await;
        let contender = stage.request(&key, "b");
        let answer = ok("acquire", stage.store().acquire(&contender).await);
        if stage.now() - sent_again >= ttl * 98 / 100 {
            continue;
        }
        assert!(
            matches!(answer, Acquired::Held(_)),
            "renewed, but: {answer:?}"
        );
        return;
    }
    panic!("this machine stands still for too long at a time to measure anything");
}

/// Whoever lost to another is told to whom, and with which token (promise 11).
pub(crate) async fn renewal_of_a_superseded_lease_names_the_successor(stage: &Stage) {
    let lease = stage.take_briefly(&key("superseded"), "a").await;
    let next = stage.succeed(&lease, "b").await;
    let loss = stage.lost(&lease).await;
    let (holder, token) = (next.holder.clone(), next.token);
    assert_eq!(loss, Loss::Superseded { holder, token });
    stage.renewed(&next).await;
}

/// A deleted record is lost, and a renewal does not bring it back.
pub(crate) async fn renewal_after_deletion_is_lost(stage: &Stage) {
    let lease = stage.take(&key("deleted"), "a").await;
    stage.harness.delete_record(&lease.key).await;
    let loss = stage.lost(&lease).await;
    assert!(matches!(loss, Loss::Deleted | Loss::Expired), "{loss:?}");
    assert_eq!(
        stage.read(&lease.key).await,
        None,
        "a renewal made a record anew"
    );
    stage.take(&lease.key, "b").await;
}

/// A released lease is lost, and a renewal does not bring it back.
pub(crate) async fn renewal_after_release_is_lost(stage: &Stage) {
    let lease = stage.take(&key("released"), "a").await;
    assert_eq!(stage.release(&lease).await, Released::Released);
    let loss = stage.lost(&lease).await;
    assert!(matches!(loss, Loss::Deleted | Loss::Expired), "{loss:?}");
    stage.take(&lease.key, "b").await;
}

/// The holder's earlier tenure has ended for good, although the holder is the same.
pub(crate) async fn late_renewal_of_an_earlier_tenure_changes_nothing(stage: &Stage) {
    let key = key("late");
    let first = stage.take(&key, "a").await;
    assert_eq!(stage.release(&first).await, Released::Released);
    let second = stage.take(&key, "a").await;
    let loss = stage.lost(&first).await;
    let (holder, token) = (second.holder.clone(), second.token);
    assert_eq!(loss, Loss::Superseded { holder, token });
    stage.renewed(&second).await;
}

/// The right token in the wrong hands is worth nothing.
pub(crate) async fn renewal_by_another_holder_is_lost(stage: &Stage) {
    let lease = stage.take(&key("stolen"), "a").await;
    let mut stolen = lease.clone();
    stolen.holder = holder("b");
    let loss = stage.lost(&stolen).await;
    let (holder, token) = (lease.holder.clone(), lease.token);
    assert_eq!(loss, Loss::Superseded { holder, token });
    stage.renewed(&lease).await;
}

/// The right holder with a wrong token has nothing, be it too small or too great.
pub(crate) async fn renewal_with_another_token_is_lost(stage: &Stage) {
    let lease = stage.take(&key("token"), "a").await;
    for token in [lease.token.0 - 1, lease.token.0 + 1] {
        let mut wrong = lease.clone();
        wrong.token = Token(token);
        stage.lost(&wrong).await;
    }
    stage.renewed(&lease).await;
}

/// A renewal whose answer was lost is repeated with what the holder knows: the version
/// before it. Holder and token are the record's, so it must succeed (promise 5).
pub(crate) async fn renewal_with_an_older_version_works(stage: &Stage) {
    let lease = stage.take(&key("older version"), "a").await;
    for _ in 0..3 {
        let (renewed, _) = stage.renewed(&lease).await;
        assert_eq!(renewed.token, lease.token);
    }
}

/// The answers stand in the order of the leases, and a failure of one harms no other.
pub(crate) async fn renew_many_answers_in_order(stage: &Stage) {
    let mut batch = Vec::new();
    for n in (0..12).rev() {
        let mut lease = stage.take(&key(&format!("many/{n}")), "a").await;
        let mut ttl = stage.long();
        match n % 4 {
            1 => lease.holder = holder("not the holder"),
            2 => assert_eq!(stage.release(&lease).await, Released::Released),
            3 => ttl = Duration::ZERO,
            _ => {}
        }
        batch.push((lease, ttl));
    }
    let answers = stage.store().renew_many(&batch).await;
    assert_eq!(answers.len(), batch.len(), "an answer for each lease");
    for ((lease, _), (answer, n)) in batch.iter().zip(answers.iter().zip((0..12).rev())) {
        let right = match (n % 4, answer) {
            (0, Ok(Renewed::Renewed(renewed, _))) => same_tenure(renewed, lease),
            (1, Ok(Renewed::Lost(Loss::Superseded { holder, token }))) => {
                *token == lease.token && holder.as_str() == "a"
            }
            (2, Ok(Renewed::Lost(_))) => true,
            (3, Err(e)) => e.kind() == ErrorKind::Invalid,
            _ => false,
        };
        assert!(right, "the answer for {:?}: {answer:?}", lease.key);
    }
}

fn same_tenure(one: &Lease, other: &Lease) -> bool {
    (&one.key, &one.holder, one.token) == (&other.key, &other.holder, other.token)
}

/// Each lease of a batch has really been renewed, with the ttl that stood beside it.
pub(crate) async fn renew_many_renews_each(stage: &Stage) {
    let mut batch = Vec::new();
    for n in 0..40_u64 {
        let mut request = stage.request(&key(&format!("each/{n}")), "a");
        request.ttl = stage.long() / 2;
        let lease = stage.granted(&request).await;
        batch.push((lease, stage.long() - Duration::from_secs(n)));
    }
    for answer in stage.store().renew_many(&batch).await {
        let answer = ok("renew_many", answer);
        assert!(matches!(answer, Renewed::Renewed(..)), "{answer:?}");
    }
    for (lease, ttl) in &batch {
        let seen = stage.live(&lease.key).await;
        assert_eq!(seen.ttl, *ttl, "the new term of {:?}", lease.key);
        if stage.traits.own_clock {
            let rest = seen.rest.unwrap_or_default();
            assert!(rest > lease.ttl, "{:?} has {rest:?} left", lease.key);
        }
    }
}

/// Nothing to renew is no error.
pub(crate) async fn renew_many_of_none_is_empty(stage: &Stage) {
    assert_eq!(stage.store().renew_many(&[]).await.len(), 0);
}
