//! Leases in etcd: a store of `tenure`, in a record that MaksIT.HAMode reads and writes too.
//!
//! It builds without `protoc` and without any system library. What etcd has to be trusted
//! for, the record, and the reasons stand in `docs/stores/etcd.md`.
//!
#![doc = include_str!("../README.md")]

mod bind;
mod client;
mod failure;
mod keys;
mod link;
mod list;
mod options;
mod proto;
mod record;
mod renew;
mod store;
mod watch;

pub use options::EtcdOptions;
pub use store::EtcdStore;
