//! Leases in one PostgreSQL table: each operation is one statement, judged by the server's clock.
//!
#![doc = include_str!("../README.md")]

mod connect;
mod direct;
mod failure;
mod hosts;
mod listen;
mod names;
mod options;
mod record;
mod schema;
mod source;
mod statements;
mod store;
mod url;

pub use deadpool_postgres;
pub use hosts::Server;
pub use options::{ChannelBinding, Listen, PostgresOptions, Prepare, SslMode};
pub use store::PostgresStore;
