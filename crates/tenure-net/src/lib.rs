//! What the stores of tenure that are servers share: the parts of a URL, secrets, TLS.
//!
//! ```
//! use tenure_net::StoreUrl;
//!
//! let mut url = StoreUrl::parse("etcd://me:hunter2@a:2379,b?prefix=jobs%2F")?;
//! assert_eq!(url.user(), Some("me"));
//! assert_eq!(url.hosts().len(), 2);
//! assert_eq!(url.take("prefix").as_deref(), Some("jobs/"));
//! assert!(!format!("{url:?}").contains("hunter2"));
//! url.finish()?;
//! # Ok::<(), tenure::Error>(())
//! ```

mod secret;
mod tls;
mod url;

pub use secret::Secret;
pub use tls::{Tls, Verify};
pub use url::{Host, StoreUrl};
