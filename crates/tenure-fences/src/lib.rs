#![doc = include_str!("../README.md")]

#[cfg(any(feature = "file", feature = "http"))]
mod durable;
mod error;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod names;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
mod raised;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod token;

pub use error::{FenceError, Result};
pub use raised::Fences;
pub use token::{TOKEN_MAX, read_token, sendable};
