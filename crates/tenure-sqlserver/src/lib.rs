//! Leases in one SQL Server table: each operation is one batch, judged by the server's clock.
//!
#![doc = include_str!("../README.md")]

mod batches;
mod connect;
mod failure;
mod names;
mod options;
mod pool;
mod record;
mod schema;
mod store;
mod url;

pub use connect::{Connect, Connection};
pub use options::{Encrypt, SqlServerOptions};
pub use store::SqlServerStore;
pub use tiberius;
