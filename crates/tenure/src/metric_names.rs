//! The names of all metrics, fixed in this one file. They are an API: dashboards and
//! alerts rest on them.

/// Gauge, label `key`: 1 while this process leads the key, else 0.
pub const IS_LEADER: &str = "tenure_is_leader";
/// Gauge, label `name`: the same under the name that client-go's users know.
pub const MASTER_STATUS: &str = "leader_election_master_status";
/// Counter, label `key`: elections that this process won.
pub const ELECTIONS_WON: &str = "tenure_elections_won_total";
/// Counter, label `key`: renewals that failed or got no answer.
pub const RENEW_FAILURES: &str = "tenure_renew_failures_total";
/// Gauge, label `key`: seconds until the tenure ends by itself, as of the last turn.
pub const SECONDS_UNTIL_EXPIRY: &str = "tenure_seconds_until_expiry";
/// Histogram, labels `store`, `operation`, `outcome`: seconds of each store call.
pub const STORE_CALL_SECONDS: &str = "tenure_store_call_seconds";
/// Histogram, labels `key`, `reason`: how long tenures lasted.
pub const TENURE_SECONDS: &str = "tenure_tenure_seconds";
/// Gauge, label `key`: 1 while the elector turns, 0 once it broke down.
pub const ELECTOR_UP: &str = "tenure_elector_up";
