//! The elector's real state machine on simulated clocks, networks, processes and stores.
//!
//! One seed is one run, the same to the byte wherever it runs. In each run everything
//! that the profile allows goes wrong first, then the faults end, and the promises of a
//! healthy cluster are called in one by one. One checker per promise looks on, at every
//! instant at which something changes.
//!
//! What is simulated, what each checker means and what was found: docs/proof.md.

mod belief;
mod checkers;
mod clock;
mod driver;
mod event;
mod faults;
pub mod found;
mod network;
mod node;
mod pauses;
mod phase;
pub mod planted;
pub mod profile;
mod report;
mod resource;
mod slips;
pub mod soak;
mod store;
mod store_clocked;
mod store_watched;
mod timeline;
mod work;
mod world;

pub use checkers::names as checkers;
pub use report::{Count, Report, Violation, run};
pub use store::Kind;
pub use timeline::Trace;
