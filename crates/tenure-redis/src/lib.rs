#![doc = include_str!("../README.md")]

mod answer;
mod cluster;
mod connect;
mod failure;
mod list;
mod names;
mod options;
mod reach;
mod said;
mod scripts;
mod sentinel;
mod shared;
mod store;
mod watch;

pub use options::RedisOptions;
pub use store::RedisStore;
