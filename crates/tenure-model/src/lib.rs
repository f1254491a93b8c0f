//! The protocol as an exhaustive model: every interleaving within stated bounds.
//!
//! The simulator throws dice for years; this crate throws none. It writes the rules of
//! the protocol down once more, as small as they can be, and lets a checker walk through
//! *every* order of events for two and three nodes: each request may be lost, doubled,
//! late or overtaken, each clock may run fast or slow, each process may stop between
//! two steps or die.
//!
//! - [`World`] is one moment of it all; [`Protocol`] says what can happen next.
//! - [`promises`] are what must hold in each moment, and what must be seen at least once,
//!   so that the model is not true for want of anything happening.
//! - A [`Break`] leaves one rule out. The tests show that the checker finds each.
//! - [`real`] drives the real state machine and the real in-memory store in the same way,
//!   through a smaller world.
//!
//! What the model does not have: guarded work and its grace, requests to a holder, the
//! waits between calls (here a node may ask at any moment, which covers every wait).
//! docs/proof-model.md has the bounds of the runs and their figures.

mod node;
pub mod promises;
mod protocol;
pub mod real;
mod run;
pub mod runs;
mod setup;
mod store;
mod world;

pub use protocol::{Action, Protocol};
pub use run::{Limits, Outcome, check};
pub use setup::{Break, Setup};
pub use world::{
    Answer, Ask, Attempt, LATE_MAX, Node, Pending, Phase, Record, Resource, Stage, Tenure, World,
    Wrong,
};
