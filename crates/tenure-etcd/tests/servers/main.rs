//! What a real etcd does to a store beyond the suite: mixed fleets, lost answers, outages,
//! users and certificates, wrong clocks.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod access;
#[path = "../support/bare.rs"]
mod bare;
mod clocks;
mod cluster;
mod handover;
mod lost_answers;
mod mixed_fleet;
mod outages;
mod records;
#[path = "../support/mod.rs"]
mod support;
