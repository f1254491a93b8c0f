//! Leases in a SQLite file: the embedded store of `tenure`, for processes on one machine.
//!
//! A network file system is no place for it, and it does not lead between machines.
//! Within one machine, expiry is judged by the boot clock inside the write lock, a
//! holder whose last process has died is noticed at once, and a renewal needs no fsync.
//! The format, the rules and the reasons stand in `docs/stores/sqlite.md`.

#[cfg(not(unix))]
compile_error!("tenure-sqlite rests on flock(2), so it needs a Unix system");

mod boot;
mod failure;
mod file;
mod judge;
mod leases;
mod liveness;
mod options;
mod row;
mod schema;
mod store;
mod table;
mod wait;
mod watch;
mod worker;

pub use liveness::HolderLock;
pub use options::{Calls, Liveness, SqliteOptions};
pub use store::SqliteStore;
