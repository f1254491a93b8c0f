//! Leases in Kubernetes: a store of `tenure`, in the record that client-go and
//! controller-runtime have, so that a Go replica and ours take part in one election.
//!
//! What Kubernetes has to be trusted for, the record, the token and the rights stand in
//! `docs/stores/kubernetes.md`.
//!
#![doc = include_str!("../README.md")]

mod announce;
mod answer;
mod cache;
mod connect;
mod failure;
mod link;
mod list;
mod names;
mod note;
mod options;
mod record;
mod store;
mod swap;
mod watch;

pub use kube;
pub use options::KubernetesOptions;
pub use store::KubernetesStore;
