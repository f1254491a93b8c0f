//! Leases and leader election on the store that you already run.

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
