//! Runs one clause on one harness, on a runtime of its own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

use crate::clauses;
use crate::harness::Harness;
use crate::stage::Stage;

/// A clause that has not ended by then hangs: the store does not answer.
const CLAUSE_TIME_MAX: Duration = Duration::from_secs(180);

macro_rules! dispatch {
    ([] $($module:ident { $($clause:ident)* })*) => {
        /// The name of every clause, in the order of the list.
        pub const CLAUSES: &[&str] = &[$($(stringify!($clause),)*)*];

        fn dispatch<'s>(clause: &str, stage: &'s Stage) -> Pin<Box<dyn Future<Output = ()> + 's>> {
            match clause {
                $($(stringify!($clause) => Box::pin(clauses::$module::$clause(stage)),)*)*
                _ => panic!("no clause is called {clause:?}"),
            }
        }
    };
}
crate::__clauses!(dispatch);

/// Runs the clause of this name on a fresh harness; panics if the store breaks it.
///
/// [`conformance!`](crate::conformance) makes a `#[test]` of it for each clause.
pub fn run<H: Harness>(clause: &str) {
    // Nothing but this line is made anew for each harness: that keeps builds short.
    run_on(clause, Box::pin(async { Box::new(H::start().await) as _ }));
}

fn run_on(clause: &str, start: Pin<Box<dyn Future<Output = Box<dyn Harness>>>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime for the test: the system has threads to give");
    let whole = async {
        let stage = Stage::on(start.await).await;
        dispatch(clause, &stage).await;
    };
    let bounded = async {
        if tokio::time::timeout(CLAUSE_TIME_MAX, whole).await.is_err() {
            panic!("{clause} has not ended within {CLAUSE_TIME_MAX:?}: the store does not answer");
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(bounded)));
    // Dropping a runtime waits for blocked threads for ever; a failed test must not hang.
    runtime.shutdown_timeout(Duration::from_secs(5));
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}
