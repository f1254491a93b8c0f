//! Runs the checker over one setup and says what came out.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use tenure::{BootClock, Clock};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many different states there are.
    pub states: usize,
    /// How many steps led to a state, known or new.
    pub steps: usize,
    /// The longest way that was walked, in steps.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What must hold always, and holds in every state.
    pub held: Vec<&'static str>,
    /// What must hold always and does not, with the steps that lead there.
    pub violated: BTreeMap<&'static str, Vec<String>>,
    /// What must be seen, and is.
    pub seen: Vec<&'static str>,
    /// What must be seen, and is not: the model is too small, or says too little.
    pub not_seen: Vec<&'static str>,
}

impl Outcome {
    /// Whether every promise holds and every sight was seen.
    pub fn is_good(&self) -> bool {
        self.violated.is_empty() && self.not_seen.is_empty()
    }
}

/// How far a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many threads walk. With a depth it has to be one, since only then is every
    /// state met first on its shortest way.
    pub threads: usize,
    /// How many steps at most; none means all there are.
    pub depth: Option<usize>,
    /// The promise that is to be seen broken; none means that the first broken one ends it.
    pub to_break: Option<&'static str>,
}

impl Limits {
    /// No limits.
    pub fn all(threads: usize) -> Self {
        Self {
            threads,
            depth: None,
            to_break: None,
        }
    }

    /// All ways of at most so many steps.
    pub fn depth(steps: usize) -> Self {
        Self {
            threads: 1,
            depth: Some(steps),
            to_break: None,
        }
    }
}

/// Walks through a model within these limits, or until a promise is violated.
///
/// `progress` is told of states, depth and time about once a second.
pub fn check<M>(model: M, limits: Limits, mut progress: impl FnMut(&Outcome)) -> Outcome
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let clock = BootClock;
    let began = clock.now();
    let until = match limits.to_break {
        Some(promise) => HasDiscoveries::AnyOf([promise].into()),
        None => HasDiscoveries::AnyFailures,
    };
    let mut builder = model.checker().threads(limits.threads).finish_when(until);
    if let Some(steps) = limits.depth {
        // The checker counts states, not steps, and does not look at the last of them.
        builder = builder.target_max_depth(steps + 2);
    }
    let mut checker = builder.spawn_bfs();
    let workers = checker.handles();
    let mut waits = 0_u32;
    while !workers.iter().all(JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(10));
        waits += 1;
        if waits.is_multiple_of(100) {
            progress(&counts(&checker, limits, clock.now() - began));
        }
    }
    for worker in workers {
        if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
    }
    let mut outcome = counts(&checker, limits, clock.now() - began);
    let found = checker.discoveries();
    for property in checker.model().properties() {
        let path = found.get(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, Some(_)) => outcome.seen.push(property.name),
            (Expectation::Sometimes, None) => outcome.not_seen.push(property.name),
            (_, None) => outcome.held.push(property.name),
            (_, Some(path)) => {
                let steps = path.clone().into_actions();
                let steps = steps.iter().map(|action| format!("{action:?}")).collect();
                outcome.violated.insert(property.name, steps);
            }
        }
    }
    outcome
}

fn counts<M: Model>(checker: &impl Checker<M>, limits: Limits, took: Duration) -> Outcome {
    Outcome {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        // The checker counts states; the last of them it does not look at if it has a limit.
        depth: (checker.max_depth().saturating_sub(1)).min(limits.depth.unwrap_or(usize::MAX)),
        took,
        held: Vec::new(),
        violated: BTreeMap::new(),
        seen: Vec::new(),
        not_seen: Vec::new(),
    }
}
