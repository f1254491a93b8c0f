//! A simulated machine's clock: it runs at its own rate and shows its own wall time.

/// One true second per second, in the fixed-point form of a rate.
const ONE: u64 = 1 << 32;

/// Wall time at the beginning of true time: 2033, so that tokens look like real ones.
const WALL_ZERO_US: i64 = 2_000_000_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    true_zero: u64,
    local_zero: u64,
    rate: u64,
    /// By how much the wall clock is off, in nanoseconds.
    wall_offset: i64,
    /// A planted bug: decisions take the wall clock.
    pub(crate) by_wall: bool,
}

/// How fast a clock runs, as a multiple of true time.
pub(crate) fn rate(times: f64) -> u64 {
    (ONE as f64 * times) as u64
}

impl SimClock {
    pub(crate) fn new(local_zero: u64, rate: u64) -> Self {
        Self {
            true_zero: 0,
            local_zero,
            rate,
            wall_offset: 0,
            by_wall: false,
        }
    }

    /// What it counts at a true time. It never goes back, unless it is a wall clock.
    pub(crate) fn now(&self, at: u64) -> u64 {
        let passed = u128::from(at.saturating_sub(self.true_zero)) * u128::from(self.rate);
        let local = self.local_zero + (passed >> 32) as u64;
        if self.by_wall {
            return local.saturating_add_signed(self.wall_offset);
        }
        local
    }

    /// The first true time at which it has reached `local`; none if it stands still.
    pub(crate) fn reaches(&self, local: u64) -> Option<u64> {
        let offset = if self.by_wall { self.wall_offset } else { 0 };
        let left = local
            .saturating_add_signed(-offset)
            .saturating_sub(self.local_zero);
        if left == 0 {
            return Some(self.true_zero);
        }
        if self.rate == 0 {
            return None;
        }
        let passed = (u128::from(left) << 32).div_ceil(u128::from(self.rate));
        u64::try_from(passed).ok()?.checked_add(self.true_zero)
    }

    pub(crate) fn set_rate(&mut self, at: u64, rate: u64) {
        let by_wall = std::mem::take(&mut self.by_wall);
        self.local_zero = self.now(at);
        self.by_wall = by_wall;
        self.true_zero = at;
        self.rate = rate;
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// The wall clock, in microseconds since 1970.
    pub(crate) fn wall_us(&self, at: u64) -> u64 {
        let us = WALL_ZERO_US + (at / 1_000) as i64 + self.wall_offset / 1_000;
        us.max(0) as u64
    }

    pub(crate) fn jump_wall(&mut self, by_ns: i64) {
        self.wall_offset += by_ns;
    }

    /// The counted time itself jumps forward: what a store's clock must never do.
    pub(crate) fn jump(&mut self, by_ns: u64) {
        self.local_zero += by_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reaches_a_moment_at_the_first_instant_that_shows_it() {
        for times in [0.5, 0.995, 1.0, 1.005, 3.0] {
            let mut clock = SimClock::new(77, rate(times));
            clock.set_rate(1_000, rate(times));
            for local in [clock.now(1_000) + 1, clock.now(1_000) + 123_456_789] {
                let at = clock.reaches(local).unwrap();
                assert!(clock.now(at) >= local, "{times}");
                assert!(clock.now(at - 1) < local, "{times}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_reaches_nothing() {
        let mut clock = SimClock::new(5, rate(1.0));
        clock.set_rate(100, 0);
        assert_eq!(clock.now(100), clock.now(1_000_000));
        assert_eq!(clock.reaches(clock.now(100) + 1), None);
    }
}
