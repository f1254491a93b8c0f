//! The store contract: acquire, renew, release, read; and what some stores can do beside.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::words::{Attempt, Holder, Key, Token, Version};

/// Where leases live. It decides who holds; nobody else does.
///
/// # What a store does
/// Four operations, each one atomic step: [`acquire`](Store::acquire),
/// [`renew`](Store::renew), [`release`](Store::release), [`read`](Store::read).
/// A store does no retrying, no looping and no timing: that is the elector's. It keeps
/// no memory of its callers either: whatever it has to know comes in with the call.
///
/// # What every store promises
/// - At most one lease of a key is live at a time, by the store's own clock, or, for a
///   store without one, by the compare-and-swap on its [`Version`].
/// - The token of a new tenure is greater than any token of that key before it, over
///   release, expiry, deletion of the record and restart of the store.
/// - Renew and release do nothing unless holder and token are those of the record.
/// - A repeated acquire with the same [`Attempt`] gives the same tenure again.
///
/// # Cancellation
/// The caller may drop the future at any time, and then what was asked for may or may
/// not happen. A store must not put a connection that was given up on back into use.
///
/// The suite in `tenure-conformance` holds each sentence above as a test.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store is and what it can do.
    fn traits(&self) -> StoreTraits;

    /// Takes the lease if nobody has it, in one atomic step.
    ///
    /// Granted also if the record is live and has just this holder and attempt: its
    /// term then begins anew, with the token that it had.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired>;

    /// Begins the term of a live lease anew, if holder and token are the record's.
    ///
    /// By holder and token, not by version: a holder whose last answer was lost has an
    /// older one. A store that compares versions reads again and compares those two.
    ///
    /// Where the store has a clock, a lease whose term has ended is lost
    /// ([`Loss::Expired`]), even if nobody took it since. A store without one renews it
    /// until somebody takes it.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Renewed>;

    /// Ends the lease, if holder and token are the record's, whatever the version; else
    /// does nothing.
    async fn release(&self, lease: &Lease) -> Result<Released>;

    /// The live lease of this key, if there is one.
    ///
    /// A store without a clock returns a record that may have ended, with
    /// [`rest`](Lease::rest) unknown.
    async fn read(&self, key: &Key) -> Result<Option<Lease>>;

    /// The live leases whose keys begin with `prefix`, in the order of their keys' bytes,
    /// at most `limit`.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let _ = (prefix, limit);
        Err(self.cannot("list leases"))
    }

    /// Renews many leases; the answers stand in the order of the leases, and a failure
    /// of one does not harm the rest.
    async fn renew_many(&self, leases: &[(Lease, Duration)]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::with_capacity(leases.len());
        for (lease, ttl) in leases {
            answers.push(self.renew(lease, *ttl).await);
        }
        answers
    }

    /// Pushed changes of this key, for stores that can. Each notice is a hint: it may
    /// come late, twice or never, so nobody relies on one, and polling goes on. A change
    /// that is made after this has returned is pushed if all goes well.
    ///
    /// A renewal alone is no change: it is not pushed, or only as [`Notice::Held`].
    ///
    /// The stream ends when the store cannot go on; the caller may ask for a new one.
    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, Notice>> {
        let _ = key;
        Err(self.cannot("push changes"))
    }

    /// Leaves a request for the present holder, who finds it in the answer to its next
    /// renewal and in each one after that. It is gone with the tenure that it was made to.
    async fn ask(&self, key: &Key, request: HolderRequest) -> Result<Asked> {
        let _ = (key, request);
        Err(self.cannot("carry requests to a holder"))
    }

    /// The error of an operation that this store cannot do.
    fn cannot(&self, what: &str) -> Error {
        Error::unsupported(format!("the {} store cannot {what}", self.traits().name))
    }
}

/// What a store is and what it can do; the conformance suite tests each both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreTraits {
    /// One word: `memory`, `sqlite`, `postgres`.
    pub name: &'static str,
    /// Whether the store judges expiry by a clock of its own. If not, a candidate
    /// watches the record and says which version has ended.
    pub own_clock: bool,
    /// The smallest and the greatest ttl that the record can hold.
    pub ttl_min: Duration,
    /// See [`ttl_min`](Self::ttl_min).
    pub ttl_max: Duration,
    /// Whether [`Store::watch`] works.
    pub watch: bool,
    /// Whether [`Store::list`] works.
    pub list: bool,
    /// Whether [`Store::ask`] works.
    pub ask: bool,
}

impl StoreTraits {
    /// A store with a clock of its own and nothing beside the four operations.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            own_clock: true,
            ttl_min: Duration::from_millis(10),
            ttl_max: Duration::from_secs(10 * 365 * 24 * 3600),
            watch: false,
            list: false,
            ask: false,
        }
    }

    /// Refuses a ttl that the record cannot hold.
    pub fn check_ttl(&self, ttl: Duration) -> Result<()> {
        if ttl < self.ttl_min || ttl > self.ttl_max {
            return Err(Error::invalid(format!(
                "a ttl of {} is not possible on the {} store: choose from {} to {}",
                humantime::format_duration(ttl),
                self.name,
                humantime::format_duration(self.ttl_min),
                humantime::format_duration(self.ttl_max),
            )));
        }
        Ok(())
    }
}

/// The record in the store: who has a key, with which token, for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What is led.
    pub key: Key,
    /// Who has it.
    pub holder: Holder,
    /// The fencing token of this tenure.
    pub token: Token,
    /// The attempt that it was granted to, if the record has a place for it.
    pub attempt: Option<Attempt>,
    /// How long a term is, counted from each renewal.
    pub ttl: Duration,
    /// What the store knows of the rest of the term at the time of its answer. Unknown
    /// on a store without a clock, where the record has to be watched.
    pub rest: Option<Duration>,
    /// When this tenure began, for people to read.
    pub acquired_at: Option<SystemTime>,
    /// The record's state that this is, to be handed back to the store.
    pub version: Version,
}

/// What [`Store::acquire`] is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// What is to be led.
    pub key: Key,
    /// Who asks.
    pub holder: Holder,
    /// How long the term shall be.
    pub ttl: Duration,
    /// Which attempt this is; the same one when it is repeated.
    pub attempt: Attempt,
    /// For a store without a clock: the version that the candidate has watched, by its
    /// own clock, for longer than that record's term. A store with a clock ignores it.
    pub ended: Option<Version>,
}

/// The answer to [`Store::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lease is the caller's.
    Granted(Lease),
    /// Somebody has it: who, and what is known of the rest of the term.
    Held(Lease),
}

/// The answer to [`Store::renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The term has begun anew, and this is what others ask of the holder, if anything.
    Renewed(Lease, Option<HolderRequest>),
    /// The lease is no longer the caller's.
    Lost(Loss),
}

/// How a lease was lost, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Somebody else has it.
    Superseded {
        /// Who has it now.
        holder: Holder,
        /// With which token.
        token: Token,
    },
    /// The term ended before this renewal came.
    Expired,
    /// The record is gone, or was freed by somebody.
    Deleted,
}

/// The answer to [`Store::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was the caller's, and is free now.
    Released,
    /// It was not the caller's (any more): nothing was done.
    NotHeld,
}

/// A request to a holder that travels through the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HolderRequest {
    /// Drain, release, and wait before campaigning again.
    StepDown,
}

/// The answer to [`Store::ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The request lies there for this holder and token.
    Left {
        /// Who is going to find it.
        holder: Holder,
        /// In which tenure.
        token: Token,
    },
    /// Nobody holds the key.
    NotHeld,
}

/// A pushed change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Somebody has it now.
    Held(Lease),
    /// Nobody has it now.
    Free,
    /// Something changed, or may have: look.
    Look,
}
