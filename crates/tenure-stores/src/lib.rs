//! From a URL to a store: `sqlite:PATH`, `postgres://…`, `redis://…`, `etcd://…`, `s3://…`, `memory:`,
//! or none for the user's own file.
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
mod place;
mod redact;
mod scheme;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use home::default_url;
pub use open::{Liveness, OpenOptions, Prepared, check, init, open, open_with, prepare, schema};
pub use redact::redact;
