#![doc = include_str!("../README.md")]

mod age;
mod client;
mod connector;
pub mod costs;
mod exchange;
mod failure;
mod names;
mod objects;
mod options;
mod place;
mod probe;
mod record;
mod service_clock;
mod store;
mod turn;
mod version;

pub use age::MARGIN;
pub use connector::Connector;
pub use object_store;
pub use options::ObjectOptions;
pub use probe::Probe;
pub use store::BucketStore;
