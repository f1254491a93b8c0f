//! Waiting for a condition, always with an end.

use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to be ready or gone: far more than it needs, since the
/// machine that runs all tests at once is slow.
pub(crate) const SERVER_LIMIT: Duration = Duration::from_secs(60);

#[expect(
    clippy::disallowed_methods,
    reason = "the testbed waits for real servers in real time"
)]
fn now() -> Instant {
    Instant::now()
}

/// Asks `condition` until it gives a value, and panics with `what` after `limit`.
///
/// Blocks the thread: in an async test call it inside `tokio::task::spawn_blocking`.
#[track_caller]
pub fn wait_until<T>(what: &str, limit: Duration, condition: impl FnMut() -> Option<T>) -> T {
    match poll(limit, condition) {
        Some(value) => value,
        None => panic!("waited {limit:?} in vain: {what}"),
    }
}

/// The same, with nothing instead of a panic.
pub(crate) fn poll<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let began = now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if now().duration_since(began) > limit {
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
