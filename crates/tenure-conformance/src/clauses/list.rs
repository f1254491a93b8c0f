//! List: the live leases by prefix; or the right refusal.

use tenure::{ErrorKind, Lease, Released};

use super::names::AWKWARD;
use crate::stage::{Stage, holder, key, ok};

/// Whether the store can list; if it says that it cannot, it must refuse.
async fn can_list(stage: &Stage) -> bool {
    if stage.traits.list {
        return true;
    }
    match stage.store().list("", 10).await {
        Err(e) if e.kind() == ErrorKind::Unsupported => false,
        other => panic!("the store says that it cannot list, but: {other:?}"),
    }
}

async fn list(stage: &Stage, prefix: &str, limit: usize) -> Vec<Lease> {
    ok("list", stage.store().list(prefix, limit).await)
}

async fn keys(stage: &Stage, prefix: &str, limit: usize) -> Vec<String> {
    let leases = list(stage, prefix, limit).await;
    leases.into_iter().map(|lease| lease.key.into()).collect()
}

/// The order is that of the keys' bytes, not of any language.
pub(crate) async fn list_is_ordered_by_key(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    let mut names = vec![
        "é", "b", "B", "a", "A", "aa", "a b", "a/b", "10", "9", "я", "🔑", "_", "~", "｡",
    ];
    for name in &names {
        stage.take(&key(name), "a").await;
    }
    names.sort_unstable();
    assert_eq!(keys(stage, "", 100).await, names);
}

/// Each lease stands there as read shows it.
pub(crate) async fn list_shows_what_read_shows(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    for n in 0..3 {
        let name = format!("shown/{n}");
        stage.take(&key(&name), &format!("holder {n}")).await;
    }
    let listed = list(stage, "shown/", 10).await;
    assert_eq!(listed.len(), 3);
    for lease in listed {
        let read = stage.live(&lease.key).await;
        assert_eq!(
            (lease.holder, lease.token, lease.ttl, lease.version),
            (read.holder, read.token, read.ttl, read.version)
        );
        assert_eq!(lease.rest.is_some(), stage.traits.own_clock);
        assert_eq!(lease.attempt, read.attempt);
    }
}

/// At most so many, the first ones; zero and the greatest limit are limits too.
pub(crate) async fn list_keeps_the_limit(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    for n in [4, 2, 5, 1, 3] {
        stage.take(&key(&format!("limit/{n}")), "a").await;
    }
    // What is not live must not use up the limit.
    let gone = stage.take(&key("limit/0"), "a").await;
    assert_eq!(stage.release(&gone).await, Released::Released);
    assert_eq!(keys(stage, "limit/", 2).await, ["limit/1", "limit/2"]);
    assert_eq!(keys(stage, "limit/", 1).await, ["limit/1"]);
    assert_eq!(keys(stage, "limit/", 0).await.len(), 0);
    assert_eq!(keys(stage, "limit/", 5).await.len(), 5);
    assert_eq!(keys(stage, "limit/", usize::MAX).await.len(), 5);
}

/// What was released, deleted or has ended is not listed; nor is a free key.
pub(crate) async fn list_is_of_live_leases_only(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    assert_eq!(keys(stage, "", 10).await.len(), 0, "an empty store");
    stage.take(&key("live"), "a").await;
    let released = stage.take(&key("released"), "a").await;
    assert_eq!(stage.release(&released).await, Released::Released);
    let deleted = stage.take(&key("deleted"), "a").await;
    stage.harness.delete_record(&deleted.key).await;
    if stage.traits.own_clock {
        let request = stage.request_for(&key("ended"), &holder("a"), stage.short());
        let ended = stage.granted(&request).await;
        stage.wait_ended(&ended).await;
    }
    assert_eq!(keys(stage, "", 10).await, ["live"]);
}

/// A prefix is text: no wildcard, no pattern, and its case counts.
pub(crate) async fn list_takes_the_prefix_literally(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    let names = [
        "a%b",
        "a*d",
        "a?f",
        "a[e",
        "a[e]",
        "a\\g",
        "a_c",
        "axb",
        "axc",
        "Axe",
        "case/a",
        "CASE/b",
        "z",
        "z\u{10ffff}",
        "z\u{10ffff}y",
        "caf\u{e9}",
        "cafe\u{301}",
    ];
    for name in names {
        stage.take(&key(name), "a").await;
    }
    for prefix in [
        "",
        "a",
        "A",
        "a%",
        "a*",
        "a?",
        "a[",
        "a[e",
        "a[e]",
        "a\\",
        "a_",
        "ax",
        "%",
        "_",
        "*",
        "?",
        "case/",
        "CASE/",
        "Case/",
        "z",
        "z\u{10ffff}",
        "z\u{10ffff}y",
        "z\u{10ffff}yy",
        "caf",
        "cafe",
        "caf\u{e9}",
        "'",
        "\\",
        "a%b",
        "a%b ",
        " a",
    ] {
        let mut expected: Vec<_> = names
            .into_iter()
            .filter(|n| n.starts_with(prefix))
            .collect();
        expected.sort_unstable();
        assert_eq!(
            keys(stage, prefix, 100).await,
            expected,
            "prefix {prefix:?}"
        );
    }
}

/// Every awkward key is found by itself as prefix, together with what it begins.
pub(crate) async fn list_of_every_awkward_prefix(stage: &Stage) {
    if !can_list(stage).await {
        return;
    }
    for name in AWKWARD {
        stage.take(&key(name), "a").await;
    }
    for prefix in AWKWARD {
        let mut expected: Vec<_> = AWKWARD.iter().filter(|n| n.starts_with(prefix)).collect();
        expected.sort_unstable();
        let listed = keys(stage, prefix, 1_000).await;
        assert!(listed.iter().eq(expected), "prefix {prefix:?}: {listed:?}");
    }
}
