//! Every clause of the store contract as one named test, for any store.
//!
#![doc = include_str!("../README.md")]
// A clause that is not in the list of `list.rs` is dead code, and that ends the build.
#![deny(dead_code)]

mod clauses;
mod harness;
mod list;
mod run;
mod stage;

/// For `impl Harness`, so that a store's tests need no dependency for it.
pub use async_trait::async_trait;
pub use harness::{Harness, Restart};
pub use run::{CLAUSES, run};
