//! How long a statement waits for a lock that another process has: bounded, in small steps.

use std::cell::Cell;
use std::time::Duration;

use tenure::{BootClock, Clock, Moment};

thread_local! {
    // SQLite calls the handler on the thread that runs the statement.
    static UNTIL: Cell<Moment> = const { Cell::new(Moment::ZERO) };
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

const STEP_FIRST: Duration = Duration::from_micros(50);
const STEP_MAX: Duration = Duration::from_millis(5);

/// From now on this thread's statements wait no longer than this.
pub(crate) fn at_most(patience: Duration) {
    until(BootClock.now() + patience);
}

/// From now on this thread's statements wait no longer than to this moment.
pub(crate) fn until(moment: Moment) {
    UNTIL.set(moment);
}

/// From now on this thread's statements do not wait at all.
pub(crate) fn not() {
    until(Moment::ZERO);
    WANTED.set(false);
}

/// Whether a statement would have waited since [`not`] was called.
pub(crate) fn was_wanted() -> bool {
    WANTED.get()
}

/// SQLite's busy handler: whether to try again, after a short sleep.
///
/// It waits by the machine's own clock, not by the injected one: this is about a real
/// thread that must not hang, not about a lease.
pub(crate) fn for_lock(tries: i32) -> bool {
    WANTED.set(true);
    if BootClock.now() >= UNTIL.get() {
        return false;
    }
    let step = STEP_FIRST * 2_u32.pow(tries.clamp(0, 10).unsigned_abs());
    std::thread::sleep(step.min(STEP_MAX));
    true
}
