//! From a URL to a store: `sqlite:PATH`, `memory:`, or none for the user's own file.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! let store = tenure_stores::open("memory:").await?;
//! assert_eq!(store.traits().name, "memory");
//! # Ok(())
//! # }
//! ```

mod home;
mod open;
mod redact;
mod scheme;

pub use home::default_url;
pub use open::{Liveness, OpenOptions, Prepared, check, open, open_with, prepare};
pub use redact::redact;
