//! HTTP: a tower layer that reads `Tenure-Token`, and the client side that sends it.
//!
//! [`HttpFence`] keeps the greatest token of each resource in a file, and makes layers for
//! the services behind it. A greater token is on disk before the service sees its request.
//!
//! Check and write are one step: requests of one token run side by side, but one with a
//! greater token waits until those of older tokens that are under way have been answered,
//! and no older one is let in from the moment that the greater one came. So a request has
//! to be done with its writes when the service answers it; what it leaves to run in the
//! background is not fenced. The wait is bounded: put a time limit for each request inside
//! this layer, shorter than [`HttpFence::wait`].
//!
//! Put authentication outside of this layer: whoever may send a token can send the greatest
//! one, and lock everybody else out.
//!
//! One file is for one process. Replicas that serve one resource have to keep the greatest
//! token where the resource is: in its database, with the fence for that.
//!
//! | what comes | what it gets |
//! |---|---|
//! | the greatest token so far, or a greater one | the service's answer |
//! | an older token | 409, with `token` and `seen` |
//! | no `Tenure-Token` | 428 |
//! | one that is no number, or two of them | 400 |
//! | a greater token, while older requests do not end | 503 |
//! | a new resource, and the file is full | 507 |
//! | a disk that does not take the greater token | 500 |
//!
//! All of these are `application/problem+json` (RFC 9457).

mod client;
mod gate;
mod kept;
mod layer;
mod problem;

pub use client::{refusal, send_with};
pub use gate::HttpFence;
pub use layer::{FenceLayer, Fenced};
pub use problem::CONTENT_TYPE;

use http::HeaderName;

/// The header that carries the token.
pub const HEADER: HeaderName = HeaderName::from_static("tenure-token");
