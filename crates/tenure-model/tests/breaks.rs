//! Faults that need more than one look: what they break, and how they are shown.

use tenure_model::promises::{ENDS_FOR_GOOD, FENCED, ONE_AT_A_TIME, TOKENS_GROW};
use tenure_model::real::{Real, RealBreak};
use tenure_model::{Break, Limits, Protocol, check};

/// Clock rates, answers and the store are outside of the election, which has to rely on
/// them. That these are found shows that the way we look at the real one can see.
#[test]
fn faults_around_the_real_election_are_found() {
    let faults = [
        (RealBreak::ClocksBeyondBound, ONE_AT_A_TIME, 11),
        (RealBreak::AnswersMixedUp, ENDS_FOR_GOOD, 9),
    ];
    for (fault, promise, depth) in faults {
        let real = Real {
            drift: fault == RealBreak::ClocksBeyondBound,
            late: usize::from(fault != RealBreak::ClocksBeyondBound),
            resigns: false,
            broken: Some(fault),
            ..Real::own_clock()
        };
        let limits = Limits {
            to_break: Some(promise),
            ..Limits::depth(depth)
        };
        let outcome = check(real, limits, |_| ());
        assert!(
            outcome.violated.contains_key(promise),
            "{fault:?}: {outcome:#?}"
        );
    }
}

/// Tokens that begin again do not only look bad: they get an old leader past the fence.
#[test]
fn a_token_that_begins_again_passes_the_fence() {
    let setup = Break::TokenResetOnDelete.setup();
    let limits = Limits {
        to_break: Some(FENCED),
        ..Limits::all(1)
    };
    let outcome = check(Protocol::<2> { setup }, limits, |_| ());
    assert!(outcome.violated.contains_key(FENCED), "{outcome:#?}");
}

/// Beyond what any protocol can promise, the fence tells the two leaders apart.
#[test]
fn the_fence_holds_where_a_live_record_is_deleted() {
    let setup = Break::LiveRecordDeleted.setup();
    let limits = Limits {
        to_break: Some(FENCED),
        ..Limits::all(2)
    };
    let outcome = check(Protocol::<2> { setup }, limits, |_| ());
    assert!(outcome.violated.contains_key(ONE_AT_A_TIME), "{outcome:#?}");
    assert!(outcome.held.contains(&FENCED), "{outcome:#?}");
    assert!(outcome.held.contains(&TOKENS_GROW), "{outcome:#?}");
}

#[test]
fn a_counterexample_can_be_read() {
    let outcome = tenure_model::runs::Run::broken(Break::DeadlineFromAnswer).check(1, |_| ());
    let steps = &outcome.violated[ONE_AT_A_TIME];
    // Two nodes cannot come to lead at once in less than two requests and their answers.
    assert!((6..20).contains(&steps.len()), "{steps:#?}");
    assert!(
        steps.iter().any(|step| step.starts_with("Tick")),
        "{steps:#?}"
    );
}
