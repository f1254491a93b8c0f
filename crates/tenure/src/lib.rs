//! Leases and leader election on the store that you already run.
//!
//! # What is not promised
//! A lease alone does not protect data: a process can be paused between asking "do I
//! lead?" and writing. Hand the [`Token`] of your [`Tenure`] to whatever you write to, and
//! let it turn away older ones ([`Fence`]). Clocks may *show* anything, but they must
//! *run* at nearly the same rate ([`Timing::drift`]). And a store that forgets what it
//! confirmed can make two leaders, which the fence still tells apart.
//!
//! # What is promised
//! At no instant do two tenures of one key both say that they are valid. A tenure ends
//! by itself, checked at every question against a clock that runs on while the machine
//! sleeps; once ended it never becomes valid again; every ending has its
//! [reason](EndReason). Tokens only grow. A store that does not answer never makes a
//! leader. One slow answer costs nothing.
//!
//! # Where to begin
//! | you want to | use |
//! |---|---|
//! | lead, and work while leading | [`Elector::lead`], [`Elector::run_if_leader`] |
//! | know whether you lead, in nanoseconds | [`Elector::is_leader`] |
//! | take a lease once, or wait for it | [`try_acquire`], [`acquire`] |
//! | keep your own loop | [`LeaseService`] |
//! | one object with a few methods | [`PlainLease`] |
//! | write a store | [`Store`], and the crate `tenure-conformance` |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
//! use tenure::{Elector, MemoryStore, Settings};
//!
//! let elector = Elector::start(MemoryStore::new(), Settings::new("billing/nightly")?)?;
//! let tenure = elector.elected().await?;
//! assert!(elector.is_leader());
//! println!("leading with token {}", tenure.token());
//! elector.stop().await;
//! # Ok(()) }
//! ```

mod clock;
mod driver;
pub mod election;
mod elector;
mod error;
mod events;
mod fence;
mod guarded;
mod held;
mod memory;
pub mod metric_names;
mod owned;
mod plain;
mod reason;
mod runtime;
mod service;
mod settings;
mod store;
mod timing;
mod words;

pub use clock::{BootClock, Clock, ManualClock, Moment, Sleep};
pub use elector::{Elector, ElectorBuilder, Health, IntoStore};
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, Events, Subscription};
pub use fence::{Fence, StaleToken};
pub use guarded::Guarded;
pub use held::{Tenure, WorkGuard};
pub use memory::MemoryStore;
pub use owned::{Acquisition, OwnedTenure, acquire, try_acquire};
pub use plain::{LostSubscription, PlainLease};
pub use reason::EndReason;
pub use service::{Grant, LeaseService};
pub use settings::Settings;
pub use store::{
    AcquireRequest, Acquired, Asked, HolderRequest, Lease, Loss, Notice, Released, Renewed, Store,
    StoreTraits,
};
pub use timing::{Timing, TimingSum};
pub use words::{Attempt, Holder, Key, NAME_BYTES_MAX, Token, Version};

/// The code in the project's README runs too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[derive(Debug)]
pub struct Readme;
