//! Guarded work: it runs only while leading and stops when leadership ends.

use std::future::Future;

use crate::held::{Tenure, WorkGuard};
use crate::reason::EndReason;

/// How guarded work went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "this says whether the work ran"]
pub enum Guarded<T> {
    /// It ran to its end, and this is what it returned.
    Done(T),
    /// The tenure ended while it ran, and it was dropped.
    CutOff(EndReason),
    /// This process does not lead: nothing was run.
    NotLeading,
}

impl<T> Guarded<T> {
    /// What the work returned, if it ran to its end.
    pub fn done(self) -> Option<T> {
        match self {
            Guarded::Done(value) => Some(value),
            Guarded::CutOff(_) | Guarded::NotLeading => None,
        }
    }
}

/// Runs `work` under `tenure`, unless that has ended or is about to.
pub(crate) async fn guard<F, W, T>(tenure: &Tenure, work: F) -> Guarded<T>
where
    F: FnOnce(Tenure) -> W,
    W: Future<Output = T>,
{
    match tenure.begin_work() {
        Some(guard) => run(guard, work).await,
        None => Guarded::NotLeading,
    }
}

/// Runs `work` until it or its tenure ends. The work is dropped before the guard is, so
/// that the lease is not handed on while any of it is left.
pub(crate) async fn run<F, W, T>(guard: WorkGuard, work: F) -> Guarded<T>
where
    F: FnOnce(Tenure) -> W,
    W: Future<Output = T>,
{
    let tenure = guard.tenure().clone();
    let outcome = {
        // Keeps the promise that work is told, even if the elector does not run.
        let told = async {
            tenure.told_to_stop().await;
            std::future::pending::<Guarded<T>>().await
        };
        tokio::select! {
            biased;
            reason = tenure.ended() => Guarded::CutOff(reason),
            never = told => never,
            value = work(tenure.clone()) => Guarded::Done(value),
        }
    };
    drop(guard);
    outcome
}
