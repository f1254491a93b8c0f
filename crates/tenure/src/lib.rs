//! Leases and leader election on the store that you already run.

mod clock;
mod error;
mod fence;
mod memory;
mod store;
mod timing;
mod words;

pub use clock::{BootClock, Clock, ManualClock, Moment, Sleep};
pub use error::{Error, ErrorKind, Result};
pub use fence::{Fence, StaleToken};
pub use memory::MemoryStore;
pub use store::{
    AcquireRequest, Acquired, Asked, HolderRequest, Lease, Loss, Notice, Released, Renewed, Store,
    StoreTraits,
};
pub use timing::{Timing, TimingSum};
pub use words::{Attempt, Holder, Key, NAME_BYTES_MAX, Token, Version};
