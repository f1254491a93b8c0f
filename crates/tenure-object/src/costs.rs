//! What leases cost in requests and in dollars, computed from a timing.

use std::fmt::Write;
use std::time::Duration;

use tenure::Timing;

/// What a service asks for a thousand requests, in dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// A thousand writes (`PUT`).
    pub writes: f64,
    /// A thousand reads (`GET`), also those that are answered "not modified".
    pub reads: f64,
}

/// How many requests one key costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// Writes of the leader in an hour, on average.
    pub leader_writes_hour: f64,
    /// Reads of each follower in an hour, on average.
    pub follower_reads_hour: f64,
}

/// The list prices of S3 Standard in its cheapest regions; of Google's and Azure's
/// standard classes too. Yours may differ: multiply.
pub const LIST_PRICES: Prices = Prices {
    writes: 0.005,
    reads: 0.0004,
};

/// The mean of a month.
const HOURS_MONTH: f64 = 730.0;

impl Requests {
    /// While nothing happens: one write per renewal, one read per poll. Chance shortens
    /// each interval by half of the jitter, on average.
    pub fn of(timing: &Timing) -> Self {
        let shortened = 1.0 - timing.jitter / 2.0;
        let per_hour = |interval: Duration| 3600.0 / (interval.as_secs_f64() * shortened);
        Self {
            leader_writes_hour: per_hour(timing.renew_every),
            follower_reads_hour: per_hour(timing.poll_every),
        }
    }

    /// Dollars in a month for a leader and so many followers.
    pub fn dollars_month(&self, followers: u32, prices: Prices) -> f64 {
        let writes = self.leader_writes_hour * prices.writes;
        let reads = self.follower_reads_hour * f64::from(followers) * prices.reads;
        (writes + reads) * HOURS_MONTH / 1000.0
    }
}

/// The table of docs/stores/object.md.
pub fn table() -> String {
    let mut table = String::from(
        "| ttl | renewal and poll every | PUT per leader-hour | GET per follower-hour | $ a month, leader alone | with 1 follower | with 2 | with 9 |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for seconds in [10, 15, 30, 60, 300] {
        let timing = Timing::with_ttl(Duration::from_secs(seconds));
        let requests = Requests::of(&timing);
        let dollars = |followers| requests.dollars_month(followers, LIST_PRICES);
        // Writing to a String does not fail.
        let _ = writeln!(
            table,
            "| {seconds} s | {:.1} s | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
            timing.renew_every.as_secs_f64(),
            requests.leader_writes_hour,
            requests.follower_reads_hour,
            dollars(0),
            dollars(1),
            dollars(2),
            dollars(9),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_of_360_writes_an_hour_is_met_but_for_the_jitter() {
        let mut timing = Timing::default();
        let requests = Requests::of(&timing);
        assert!((requests.leader_writes_hour - 379.0).abs() < 1.0);
        timing.jitter = 0.0;
        let requests = Requests::of(&timing);
        assert!((requests.leader_writes_hour - 360.0).abs() < 0.01);
        assert!((requests.follower_reads_hour - 360.0).abs() < 0.01);
    }
}
