//! The clauses, grouped by what they are about. Each is one function with one promise.

pub(crate) mod acquire;
pub(crate) mod ask;
pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod race;
pub(crate) mod read;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod token;
pub(crate) mod ttl;
pub(crate) mod watch;
