//! Properties of names, tokens, attempts, timings and their text forms, for any input.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod memory;

use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure::{
    Attempt, EndReason, ErrorKind, Holder, HolderRequest, Key, Moment, NAME_BYTES_MAX, Settings,
    Timing, Token,
};

/// So many cases; the input that fails is printed in its smallest form.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Any text, with many that lie near the rules: control characters, the greatest length.
fn any_name() -> impl Strategy<Value = String> {
    let near_rules = proptest::sample::select(vec![
        "\0", "\n", "\u{7f}", "\u{80}", "\u{9f}", "\u{a0}", " ", "/", "\u{2028}", "\u{feff}", "é",
        "鍵", "🔑", "\"", "\\",
    ]);
    let long = (any::<char>(), 120_usize..=600).prop_map(|(c, n)| c.to_string().repeat(n));
    prop_oneof![
        any::<String>(),
        "[a-z0-9/ é鍵🔑\u{7}]{0,9}",
        (any::<String>(), near_rules, any::<String>()).prop_map(|(a, b, c)| format!("{a}{b}{c}")),
        long,
        (NAME_BYTES_MAX - 4..=NAME_BYTES_MAX + 4).prop_map(|n| "k".repeat(n)),
    ]
}

fn good_name() -> impl Strategy<Value = String> {
    any_name().prop_filter("a name by the rules", |name| is_good(name))
}

/// The rule as the design states it. Control characters are Unicode's category Cc.
fn is_good(name: &str) -> bool {
    let control = |c: char| matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(control)
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
        (0..100_000_u64).prop_map(Duration::from_millis),
        (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        (0..4_000_000_000_u64).prop_map(Duration::from_secs),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

fn any_part() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0..1.0_f64,
        0.0..0.05_f64,
        proptest::num::f64::ANY,
        Just(0.0),
        Just(-0.0)
    ]
}

fn any_timing() -> impl Strategy<Value = Timing> {
    let wild = (
        [any_duration(), any_duration(), any_duration()],
        [any_duration(), any_duration()],
        [any_part(), any_part()],
    )
        .prop_map(
            |([ttl, renew_every, call_timeout], [grace, poll_every], [drift, jitter])| Timing {
                ttl,
                renew_every,
                call_timeout,
                grace,
                poll_every,
                drift,
                jitter,
            },
        );
    // Around where the sum just fits or just does not.
    let near = (any_duration(), [0.0..0.6_f64, 0.0..0.4, 0.0..0.4, 0.0..0.1]).prop_map(
        |(ttl, [renew, call, grace, drift])| {
            let ttl = ttl.min(Duration::from_secs(4_000_000_000));
            Timing {
                renew_every: ttl.mul_f64(renew),
                call_timeout: ttl.mul_f64(call),
                grace: ttl.mul_f64(grace),
                drift,
                ..Timing::with_ttl(ttl)
            }
        },
    );
    prop_oneof![wild, near]
}

/// JSON knows no NaN and no infinity; both are refused by the check.
fn finite_timing() -> impl Strategy<Value = Timing> {
    any_timing().prop_filter("fractions that JSON can hold", |timing| {
        timing.drift.is_finite() && timing.jitter.is_finite()
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let names = (good_name(), proptest::option::of(good_name()));
    let times = proptest::collection::vec(proptest::option::of(any_duration()), 2);
    let flags = [any::<bool>(), any::<bool>()];
    (names, finite_timing(), times, flags).prop_map(|((key, holder), timing, times, flags)| {
        Settings {
            holder: holder.map(|name| Holder::new(name).unwrap()),
            timing,
            release_on_stop: flags[0],
            stall_after: times[0],
            rest_after_resign: times[1],
            once: flags[1],
            ..Settings::new(key).unwrap()
        }
    })
}

fn any_reason() -> impl Strategy<Value = EndReason> {
    let superseded = (good_name(), any::<u64>()).prop_map(|(holder, token)| {
        let holder = Holder::new(holder).unwrap();
        EndReason::Superseded {
            holder,
            token: Token(token),
        }
    });
    let plain = vec![
        EndReason::Resigned,
        EndReason::Expired,
        EndReason::RecordDeleted,
        EndReason::AskedToStepDown,
        EndReason::StalledWork,
        EndReason::Stopped,
        EndReason::Failed,
    ];
    prop_oneof![superseded, proptest::sample::select(plain)]
}

fn through_json<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// The last bits of a fraction may change on its way through JSON; a duration may not.
fn same_timing(one: &Timing, other: &Timing) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= a.abs() * 1e-14 + f64::MIN_POSITIVE;
    let fractions = near(one.drift, other.drift) && near(one.jitter, other.jitter);
    let other = Timing {
        drift: one.drift,
        jitter: one.jitter,
        ..*other
    };
    fractions && *one == other
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn names_are_taken_by_the_rule_alone(name in any_name()) {
        let good = is_good(&name);
        let key = Key::new(&name);
        prop_assert_eq!(key.is_ok(), good);
        prop_assert_eq!(Holder::new(&name).is_ok(), good);
        prop_assert_eq!(name.parse::<Key>().is_ok(), good);
        prop_assert_eq!(Holder::try_from(name.clone()).is_ok(), good);
        prop_assert_eq!(Settings::new(&name).is_ok(), good);
        let json = serde_json::to_string(&name).unwrap();
        prop_assert_eq!(serde_json::from_str::<Key>(&json).is_ok(), good);
        prop_assert_eq!(serde_json::from_str::<Holder>(&json).is_ok(), good);
        match key {
            Ok(key) => {
                prop_assert_eq!(key.as_str(), &name);
                prop_assert_eq!(key.to_string(), name);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }

    #[test]
    fn words_survive_json(name in good_name(), number in any::<u64>(), reason in any_reason()) {
        let (key, holder) = (Key::new(&name).unwrap(), Holder::new(&name).unwrap());
        prop_assert_eq!(through_json(&key), key);
        prop_assert_eq!(through_json(&holder), holder);
        prop_assert_eq!(through_json(&Token(number)), Token(number));
        let attempt = Attempt::from_u64(number);
        prop_assert_eq!(attempt.as_u64(), number);
        prop_assert_eq!(through_json(&attempt), attempt);
        prop_assert_eq!(through_json(&HolderRequest::StepDown), HolderRequest::StepDown);
        // The word in JSON is the one in logs and metrics.
        let json = serde_json::to_value(&reason).unwrap();
        prop_assert_eq!(json["reason"].as_str(), Some(reason.as_str()));
        prop_assert_eq!(through_json(&reason), reason);
    }

    #[test]
    fn tokens_only_grow(last in 0..u64::MAX, clock_us in any::<u64>()) {
        let next = Token::next(Token(last), clock_us);
        prop_assert!(next > Token(last));
        prop_assert!(next.0 >= clock_us);
        prop_assert!(next.0 == last + 1 || next.0 == clock_us);
    }

    #[test]
    fn attempts_differ_and_are_known(random in any::<u64>(), steps in 0..2_000_usize) {
        let first = Attempt::first(random);
        let mut attempt = first;
        for _ in 0..steps {
            let next = attempt.next();
            prop_assert_ne!(next, attempt);
            prop_assert_ne!(next, first);
            prop_assert!(next.same_elector(first));
            prop_assert!(next.as_u64() < 1 << 53);
            attempt = next;
        }
        let other = Attempt::first(random ^ 1);
        prop_assert!(!attempt.same_elector(other));
    }

    #[test]
    fn the_last_attempt_has_one_after_it(random in any::<u64>(), below in 0..3_u64) {
        let last = Attempt::from_u64(Attempt::first(random).as_u64() | ((1 << 20) - 1 - below));
        let next = last.next();
        prop_assert_ne!(next, last);
        prop_assert!(next.same_elector(last));
        prop_assert!(next.as_u64() < 1 << 53);
    }

    /// Whatever number a store has written down.
    #[test]
    fn any_attempt_has_one_after_it(number in any::<u64>(), top in 0..3_u64) {
        for number in [number, u64::MAX - top] {
            let attempt = Attempt::from_u64(number);
            prop_assert_ne!(attempt.next(), attempt);
            prop_assert!(attempt.next().same_elector(attempt));
        }
    }

    #[test]
    fn moments_never_overflow(one in any::<u64>(), other in any::<u64>(), by in any_duration()) {
        let (one, other) = (Moment::from_nanos(one), Moment::from_nanos(other));
        prop_assert!(one + by >= one);
        prop_assert!(one.saturating_sub(by) <= one);
        prop_assert_eq!(one.max(other) - one.min(other) + Duration::ZERO, one.max(other).saturating_since(one.min(other)));
        prop_assert_eq!(one.min(other) - one.max(other), Duration::ZERO);
    }

    #[test]
    fn settings_survive_json(settings in any_settings()) {
        let again = through_json(&settings);
        prop_assert!(same_timing(&settings.timing, &again.timing), "{:?}", again.timing);
        let again = Settings { timing: settings.timing, ..again };
        prop_assert_eq!(&again, &settings);
        if let Err(error) = settings.check() {
            prop_assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_timing_that_is_let_through_holds(timing in any_timing()) {
        let sum = match timing.check() {
            Ok(sum) => sum,
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                return Ok(());
            }
        };
        let wait = (timing.call_timeout / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let renewal = timing.renew_every.max(timing.call_timeout);
        let needed = renewal + timing.call_timeout + wait + timing.call_timeout;
        prop_assert!(needed + timing.grace <= sum.deadline_after, "{:?}", sum);
        prop_assert_eq!(sum.needed, needed);

        // The deadline: the ttl less the drift, before the record's end.
        let sent = Moment::from_nanos(7);
        let (deadline, end) = (timing.deadline(sent), sent + timing.ttl);
        prop_assert_eq!(deadline, sent + sum.deadline_after);
        let drift = timing.ttl.mul_f64(timing.drift);
        let off = (end - deadline).abs_diff(drift);
        prop_assert!(end == sent || off < Duration::from_micros(2) || deadline.as_nanos() == u64::MAX);
        if drift >= Duration::from_nanos(1) && end.as_nanos() < u64::MAX {
            prop_assert!(deadline < end);
        }
        prop_assert!(deadline <= end);

        prop_assert!(sum.told_after <= sum.deadline_after);
        prop_assert!(sum.deadline_after - sum.told_after >= timing.grace);
        prop_assert!(timing.watched_term(timing.ttl) >= timing.ttl);
        prop_assert!(sum.failover_max >= timing.ttl);
        prop_assert!(sum.failover_watched_max >= sum.failover_max);
        let text = timing.to_string();
        prop_assert!(text.contains("to spare"), "{}", text);
    }

    /// Also one that was not checked, or is refused.
    #[test]
    fn any_timing_can_be_shown(timing in any_timing()) {
        prop_assert!(!timing.to_string().is_empty());
    }

    #[test]
    fn a_timing_survives_json(timing in finite_timing()) {
        let again = through_json(&timing);
        prop_assert!(same_timing(&timing, &again), "{:?}", again);
    }

    #[test]
    fn a_timing_of_any_ttl_follows_from_it(ttl in any_duration()) {
        let text = humantime::format_duration(ttl).to_string();
        let timing: Timing = serde_json::from_value(serde_json::json!({ "ttl": text })).unwrap();
        prop_assert_eq!(timing, Timing::with_ttl(ttl));
    }

    /// Whatever stands in a configuration file: an answer, never a panic.
    #[test]
    fn any_text_as_a_duration(text in ".{0,40}|[0-9]{1,25} ?[a-zµ]{0,7}( [0-9]{1,20}[a-z]{1,4})?") {
        let json = serde_json::json!({ "ttl": text }).to_string();
        if let Ok(timing) = serde_json::from_str::<Timing>(&json) {
            let _ = timing.check();
            prop_assert!(same_timing(&through_json(&timing), &timing));
        }
    }
}
