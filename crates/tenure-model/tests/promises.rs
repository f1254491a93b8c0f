//! Every promise holds in every state within the bounds of the tests, and every sight is seen.

use tenure_model::runs::{self, Run};
use tenure_model::{Break, Outcome};

fn walk(run: &Run, threads: usize) -> Outcome {
    let outcome = run.check(threads, |_| ());
    eprintln!(
        "{}: {} distinct states, {} steps, {:?}",
        run.describe(),
        outcome.states,
        outcome.steps,
        outcome.took
    );
    outcome
}

/// One after another: each of them uses both cores.
#[test]
fn the_model_holds_every_promise() {
    let mut states = 0;
    for run in runs::bounded() {
        let outcome = walk(&run, 2);
        assert!(outcome.is_good(), "{}: {outcome:#?}", run.describe());
        states += outcome.states;
    }
    // If the model shrinks, its promises become cheaper than they look.
    assert!(states > 2_000_000, "only {states} states");
}

#[test]
fn the_real_election_holds_every_promise() {
    for run in runs::bounded_real() {
        let outcome = walk(&run, 1);
        assert!(outcome.is_good(), "{}: {outcome:#?}", run.describe());
        assert!(outcome.states > 10_000, "only {} states", outcome.states);
    }
}

#[test]
fn one_thread_and_two_find_the_same_states() {
    let run = runs::bounded()[1];
    assert_eq!(walk(&run, 1).states, walk(&run, 2).states);
}

#[test]
fn every_break_is_found() {
    for broken in Break::ALL {
        let outcome = walk(&Run::broken(broken), 1);
        let steps = outcome.violated.get(broken.promise());
        assert!(steps.is_some(), "{broken:?}: not found: {outcome:#?}");
    }
}
