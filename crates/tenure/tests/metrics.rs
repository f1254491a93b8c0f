//! The metrics, by the names that dashboards rest on. One test, since the recorder is
//! one for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use support::{Fault, FaultyStore, soon, until};
use tenure::{Elector, MemoryStore, Settings, Timing, metric_names as names};

/// All metrics as `name{label=value,…}`.
fn snapshot(snapshotter: &Snapshotter) -> HashMap<String, DebugValue> {
    let all = snapshotter.snapshot().into_vec();
    let named = all.into_iter().map(|(key, _, _, value)| {
        let mut labels: Vec<String> = key
            .key()
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        labels.sort();
        (
            format!("{}{{{}}}", key.key().name(), labels.join(",")),
            value,
        )
    });
    named.collect()
}

#[tokio::test]
async fn every_metric_has_its_name_and_its_value() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();

    let store = FaultyStore::new(MemoryStore::new());
    let timing = Timing::with_ttl(Duration::from_millis(900));
    let settings = Settings::new("k").unwrap().timing(timing);
    let elector = Elector::start(store.clone(), settings).unwrap();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    until("a renewal", || store.calls() >= 2).await;
    let leading = snapshot(&snapshotter);
    let gauge = |all: &HashMap<String, DebugValue>, name: &str| match all.get(name) {
        Some(DebugValue::Gauge(value)) => value.into_inner(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(gauge(&leading, "tenure_is_leader{key=k}"), 1.0);
    assert_eq!(
        gauge(&leading, "leader_election_master_status{name=k}"),
        1.0
    );
    assert_eq!(gauge(&leading, "tenure_elector_up{key=k}"), 1.0);
    let rest = gauge(&leading, "tenure_seconds_until_expiry{key=k}");
    assert!(rest > 0.0 && rest < 0.9, "{rest}");
    assert!(matches!(
        leading.get("tenure_elections_won_total{key=k}"),
        Some(DebugValue::Counter(1))
    ));

    store.renew_fault(Fault::Fail);
    soon("the end", tenure.ended()).await;
    store.renew_fault(Fault::None);
    soon("the stop", elector.stop()).await;
    let stopped = snapshot(&snapshotter);
    assert_eq!(gauge(&stopped, "tenure_is_leader{key=k}"), 0.0);
    assert_eq!(
        gauge(&stopped, "leader_election_master_status{name=k}"),
        0.0
    );
    assert_eq!(gauge(&stopped, "tenure_elector_up{key=k}"), 0.0);
    let has = |name: &str, labels: &str| {
        let all = leading.keys().chain(stopped.keys());
        let mut found = all.filter(|full| full.starts_with(name) && full.contains(labels));
        assert!(found.next().is_some(), "{name} with {labels}");
    };
    has(names::RENEW_FAILURES, "key=k");
    has(
        names::STORE_CALL_SECONDS,
        "operation=acquire,outcome=granted,store=memory",
    );
    has(
        names::STORE_CALL_SECONDS,
        "operation=renew,outcome=renewed,store=memory",
    );
    has(
        names::STORE_CALL_SECONDS,
        "operation=renew,outcome=unknown,store=memory",
    );
    has(names::TENURE_SECONDS, "reason=expired");
    // It may have led once more, for a moment, before it was stopped.
    let tenures = stopped.iter().filter(|(name, _)| {
        name.starts_with(names::TENURE_SECONDS) && name.contains("reason=expired")
    });
    for (name, value) in tenures {
        let DebugValue::Histogram(lengths) = value else {
            panic!("{name} is {value:?}");
        };
        assert!(
            lengths.iter().all(|length| length.into_inner() > 0.1),
            "{lengths:?}"
        );
    }
}
