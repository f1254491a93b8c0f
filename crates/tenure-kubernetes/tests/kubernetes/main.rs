//! What a real kube-apiserver does to a store beyond the suite: mixed fleets with client-go,
//! records by hand, missing rights, lost answers, outages, wrong clocks.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod announce;
mod clocks;
mod go;
mod lost_answers;
mod mixed_fleet;
mod outages;
mod records;
mod rights;
#[path = "../support/mod.rs"]
mod support;
mod tampered;
mod tokens;
