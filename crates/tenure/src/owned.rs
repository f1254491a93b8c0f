//! One-shot leases: try once, or wait for a while, and hold the tenure by a value.

use std::ops::Deref;
use std::time::Duration;

use crate::clock::Moment;
use crate::elector::{Elector, IntoStore};
use crate::error::{Error, Result};
use crate::events::{Event, Events};
use crate::held::Tenure;
use crate::reason::EndReason;
use crate::settings::Settings;
use crate::store::Lease;

/// A tenure that is renewed for as long as this value lives. Dropping it frees the
/// lease; [`release`](OwnedTenure::release) does, and waits for it.
#[derive(Debug)]
#[must_use = "the lease is freed when this is dropped"]
pub struct OwnedTenure {
    tenure: Tenure,
    elector: Elector,
}

/// What a one-shot acquire came to.
#[derive(Debug)]
#[must_use = "this says whether the lease was acquired"]
pub enum Acquisition {
    /// It is yours.
    Acquired(OwnedTenure),
    /// Somebody else has it.
    Held(Lease),
}

/// Asks once. The tenure is renewed until it is released or dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// use tenure::{Acquisition, MemoryStore, Settings, try_acquire};
/// let store = MemoryStore::new();
/// let Acquisition::Acquired(tenure) = try_acquire(store.clone(), Settings::new("k")?).await?
/// else { panic!("nobody has it") };
/// println!("token {}", tenure.token());
/// let again = try_acquire(store, Settings::new("k")?).await?;
/// assert!(matches!(again, Acquisition::Held(lease) if lease.token == tenure.token()));
/// tenure.release().await;
/// # Ok(()) }
/// ```
pub async fn try_acquire(store: impl IntoStore, settings: Settings) -> Result<Acquisition> {
    let (elector, mut events) = start(store, settings)?;
    loop {
        match events.next().await {
            Some(Event::Elected(tenure)) => {
                return Ok(Acquisition::Acquired(OwnedTenure { tenure, elector }));
            }
            Some(Event::Following(lease)) => {
                elector.stop().await;
                return Ok(Acquisition::Held(lease));
            }
            // The outcome may be unknown: stopping finds out and frees what was granted.
            Some(Event::StoreError { error, .. }) => {
                elector.stop().await;
                return Err(error);
            }
            Some(Event::Stopped) | None => return Err(Error::stopped("the elector has stopped")),
            Some(_) => {}
        }
    }
}

/// Waits for the lease, at most `timeout`. The tenure is renewed until it is released
/// or dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// use std::time::Duration;
/// use tenure::{Acquisition, MemoryStore, Settings, acquire};
/// let store = MemoryStore::new();
/// match acquire(store, Settings::new("k")?, Duration::from_secs(5)).await? {
///     Acquisition::Acquired(tenure) => println!("token {}", tenure.token()),
///     Acquisition::Held(lease) => println!("{} has it still", lease.holder),
/// }
/// # Ok(()) }
/// ```
pub async fn acquire(
    store: impl IntoStore,
    settings: Settings,
    timeout: Duration,
) -> Result<Acquisition> {
    let (elector, mut events) = start(store, settings)?;
    let clock = elector.clock();
    let until: Moment = clock.now() + timeout;
    let mut last = Err(Error::unavailable(
        "the store gave no answer in the time given for the acquire",
    ));
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = clock.sleep_until(until) => {
                elector.stop().await;
                return last.map(Acquisition::Held);
            }
        };
        match event {
            Some(Event::Elected(tenure)) => {
                return Ok(Acquisition::Acquired(OwnedTenure { tenure, elector }));
            }
            Some(Event::Following(lease)) => last = Ok(lease),
            Some(Event::StoreError { error, .. }) => last = Err(error),
            Some(Event::Stopped) | None => return Err(Error::stopped("the elector has stopped")),
            Some(_) => {}
        }
    }
}

fn start(store: impl IntoStore, mut settings: Settings) -> Result<(Elector, Events)> {
    settings.once = true;
    Elector::builder(store, settings).start_listening()
}

impl OwnedTenure {
    /// The tenure, to be handed around. It ends when this value is released or dropped.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Ends the tenure, frees the lease and waits for that. Says why it ended: before,
    /// if it had ended already.
    pub async fn release(self) -> EndReason {
        self.elector.stop().await;
        self.tenure.ended().await
    }

    pub(crate) fn elector(&self) -> &Elector {
        &self.elector
    }
}

impl Deref for OwnedTenure {
    type Target = Tenure;
    fn deref(&self) -> &Tenure {
        &self.tenure
    }
}
