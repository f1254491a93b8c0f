//! What this store promises beyond the suite, on real servers that fail in real ways.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod cluster;
mod elections;
mod faults;
mod mixed_fleet;
mod processes;
mod records;
mod refusals;
mod rights;
mod sentinel;
mod support;
mod tls;
