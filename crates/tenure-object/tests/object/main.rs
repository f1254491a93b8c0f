//! What the conformance suite cannot ask for: requests, peers, faults, refusals, clocks.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod clocks;
mod elections;
mod faults;
mod peers;
mod probes;
mod refusals;
mod requests;
mod support;
mod wrapped;
