//! The elector: the loop in a process that campaigns, renews, and hands out tenures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::clock::{BootClock, Clock, Moment};
use crate::driver::{Driver, Order};
use crate::election::Election;
use crate::error::{Error, Result};
use crate::events::{Event, Events, Hub, Subscription};
use crate::guarded::{Guarded, guard};
use crate::held::Tenure;
use crate::settings::Settings;
use crate::store::{Lease, Store};
use crate::words::{Holder, Key};

/// Campaigns for a key, renews, and hands out tenures, until it is stopped.
///
/// A handle: cheap to clone, usable from any thread or runtime. When the last one is
/// dropped the elector stops by itself and releases its lease.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// use tenure::{Elector, MemoryStore, Settings};
///
/// let elector = Elector::start(MemoryStore::new(), Settings::new("billing/nightly")?)?;
/// let tenure = elector.elected().await?;
/// assert!(elector.is_leader());
/// println!("leading with token {}", tenure.token());
/// elector.stop().await;
/// assert!(!elector.is_leader());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Elector {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
}

/// An elector that is not started yet, with components of your own.
#[must_use = "an elector does nothing until it is started"]
pub struct ElectorBuilder {
    store: Arc<dyn Store>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    runtime: Option<Handle>,
    seed: Option<u64>,
}

/// A store, owned or shared: what an elector can be started with.
pub trait IntoStore {
    /// The shared store.
    fn into_store(self) -> Arc<dyn Store>;
}

impl<S: Store> IntoStore for S {
    fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

/// Whether an elector does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It campaigns, follows or leads.
    Turning,
    /// It has not turned for longer than its ttl: its thread does not run.
    Stuck,
    /// It was stopped.
    Stopped,
    /// It broke down. It leads nothing and campaigns for nothing.
    Failed,
}

/// What the driver and the handles share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) holder: Holder,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) store_name: &'static str,
    pub(crate) watches: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Arc<Hub>,
    pub(crate) leader: ArcSwapOption<Lease>,
    pub(crate) turned_at: AtomicU64,
    current: ArcSwapOption<Tenure>,
    changes: watch::Sender<Change>,
}

/// The tenure and the life of the elector, for those who wait.
#[derive(Clone)]
struct Change {
    tenure: Option<Tenure>,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    Stopped,
    Failed,
}

impl Elector {
    /// Starts an elector on the thread that all electors of this process share.
    pub fn start(store: impl IntoStore, settings: Settings) -> Result<Self> {
        Self::builder(store, settings).start()
    }

    /// An elector with a clock, runtime or seed of your own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, MemoryStore, Settings};
    /// let elector = Elector::builder(MemoryStore::new(), Settings::new("k")?)
    ///     .runtime(tokio::runtime::Handle::current())
    ///     .start()?;
    /// # elector.stop().await; Ok(()) }
    /// ```
    pub fn builder(store: impl IntoStore, settings: Settings) -> ElectorBuilder {
        ElectorBuilder {
            store: store.into_store(),
            settings,
            clock: Arc::new(BootClock),
            runtime: None,
            seed: None,
        }
    }

    /// Whether this process leads now. No I/O, no lock; right even if nothing in the
    /// process has been scheduled for an hour.
    #[inline]
    pub fn is_leader(&self) -> bool {
        let current = self.shared.current.load();
        current.as_ref().is_some_and(|tenure| tenure.is_valid())
    }

    /// How long this process leads if no renewal comes; zero if it does not lead.
    pub fn remaining(&self) -> Duration {
        let current = self.shared.current.load();
        current.as_ref().map_or(Duration::ZERO, |t| t.remaining())
    }

    /// The tenure, if this process leads.
    pub fn tenure(&self) -> Option<Tenure> {
        self.shared.tenure().filter(Tenure::is_valid)
    }

    /// Who led when the store last told, this process or another.
    pub fn leader(&self) -> Option<Lease> {
        self.shared.leader.load_full().map(|lease| (*lease).clone())
    }

    /// Waits until this process leads. An error means that the elector has stopped.
    pub async fn elected(&self) -> Result<Tenure> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let change = changes.borrow_and_update().clone();
            if let Some(tenure) = change.tenure.filter(Tenure::is_valid) {
                return Ok(tenure);
            }
            if change.life != Life::Running || changes.changed().await.is_err() {
                return Err(Error::stopped("the elector has stopped"));
            }
        }
    }

    /// Runs `work` each time that this process is elected, until the elector stops.
    ///
    /// The work gets its tenure. It should end when [`Tenure::told_to_stop`] does, which
    /// is before another may take over; work that has not ended when the tenure does is
    /// dropped. Work that ends early is run again in the next tenure.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, MemoryStore, Settings};
    /// let elector = Elector::start(MemoryStore::new(), Settings::new("k")?)?;
    /// let stop = elector.clone();
    /// elector
    ///     .lead(|tenure| {
    ///         let stop = stop.clone();
    ///         async move {
    ///             println!("leading with token {}", tenure.token());
    ///             tokio::spawn(async move { stop.stop().await });
    ///             tenure.told_to_stop().await;
    ///         }
    ///     })
    ///     .await;
    /// # Ok(()) }
    /// ```
    pub async fn lead<F, W>(&self, mut work: F)
    where
        F: FnMut(Tenure) -> W,
        W: Future<Output = ()>,
    {
        while let Ok(tenure) = self.elected().await {
            // However it went, the next tenure gets the work again.
            let _ = guard(&tenure, &mut work).await;
            tenure.ended().await;
        }
    }

    /// Waits to be elected, runs `work` once, and says how it went.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, Guarded, MemoryStore, Settings};
    /// let elector = Elector::start(MemoryStore::new(), Settings::new("k")?)?;
    /// let answer = elector.lead_once(|_tenure| async { 6 * 7 }).await?;
    /// assert_eq!(answer.done(), Some(42));
    /// # elector.stop().await; Ok(()) }
    /// ```
    pub async fn lead_once<F, W, T>(&self, work: F) -> Result<Guarded<T>>
    where
        F: FnOnce(Tenure) -> W,
        W: Future<Output = T>,
    {
        let mut work = Some(work);
        loop {
            let tenure = self.elected().await?;
            // A tenure that stops before the work began leaves the work for the next one.
            let Some(guarded) = tenure.begin_work() else {
                tenure.ended().await;
                continue;
            };
            if let Some(work) = work.take() {
                return Ok(crate::guarded::run(guarded, work).await);
            }
        }
    }

    /// Runs `work` now if this process leads; if not, says so and runs nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, Guarded, MemoryStore, Settings};
    /// let store = MemoryStore::new();
    /// let leader = Elector::start(store.clone(), Settings::new("k")?)?;
    /// leader.elected().await?;
    /// let other = Elector::start(store, Settings::new("k")?)?;
    /// assert_eq!(leader.run_if_leader(|_| async { "ran" }).await.done(), Some("ran"));
    /// assert!(matches!(other.run_if_leader(|_| async {}).await, Guarded::NotLeading));
    /// # leader.stop().await; Ok(()) }
    /// ```
    pub async fn run_if_leader<F, W, T>(&self, work: F) -> Guarded<T>
    where
        F: FnOnce(Tenure) -> W,
        W: Future<Output = T>,
    {
        match self.tenure() {
            Some(tenure) => guard(&tenure, work).await,
            None => Guarded::NotLeading,
        }
    }

    /// Everything that happens from now on, as a stream.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, Event, MemoryStore, Settings};
    /// let elector = Elector::start(MemoryStore::new(), Settings::new("k")?)?;
    /// let mut events = elector.events();
    /// elector.elected().await?;
    /// elector.stop().await;
    /// while let Some(event) = events.next().await {
    ///     if let Event::Lost { reason, .. } = event {
    ///         println!("no longer leading: {reason}");
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Events {
        self.shared.events.stream()
    }

    /// Calls `handler` for everything that happens from now on, on a thread of its own,
    /// until the subscription is dropped. A handler that blocks or panics harms nobody.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
    /// use tenure::{Elector, Event, MemoryStore, Settings};
    /// let elector = Elector::start(MemoryStore::new(), Settings::new("k")?)?;
    /// let subscription = elector.on_event(|event| {
    ///     if let Event::Elected(tenure) = event {
    ///         println!("leading with token {}", tenure.token());
    ///     }
    /// });
    /// elector.elected().await?;
    /// subscription.unsubscribe();
    /// # elector.stop().await; Ok(()) }
    /// ```
    pub fn on_event(&self, handler: impl Fn(&Event) + Send + 'static) -> Subscription {
        self.shared.events.subscribe(handler)
    }

    /// Gives up the tenure, if there is one: work is told to stop, then the lease is
    /// freed. Waits for that. The elector rests before it campaigns again.
    pub async fn resign(&self) {
        if let Some(tenure) = self.shared.tenure() {
            // An error means that the elector has stopped, so the tenure has ended.
            let _ = self.orders.send(Order::Resign);
            tenure.ended().await;
        }
    }

    /// Stops the elector: work is told to stop and waited for within its grace, then
    /// the lease is freed. Waits for all that. Safe to call twice, and from everywhere.
    pub async fn stop(&self) {
        // An error means that it has stopped already.
        let _ = self.orders.send(Order::Stop);
        let mut changes = self.shared.changes.subscribe();
        let _ = changes
            .wait_for(|change| change.life != Life::Running)
            .await;
    }

    /// Says that the work goes on, for settings with `stall_after`.
    pub fn report_progress(&self) {
        if let Some(tenure) = self.shared.tenure() {
            tenure.report_progress();
        }
    }

    /// Whether the elector does its work: for a health check.
    pub fn health(&self) -> Health {
        match self.shared.changes.borrow().life {
            Life::Stopped => Health::Stopped,
            Life::Failed => Health::Failed,
            Life::Running => {
                let turned_at = Moment::from_nanos(self.shared.turned_at.load(Ordering::Acquire));
                let idle = self.shared.clock.now() - turned_at;
                if idle > self.shared.settings.timing.ttl {
                    Health::Stuck
                } else {
                    Health::Turning
                }
            }
        }
    }

    /// What is campaigned for.
    pub fn key(&self) -> &Key {
        &self.shared.settings.key
    }

    /// Who campaigns.
    pub fn holder(&self) -> &Holder {
        &self.shared.holder
    }

    /// The clock that it goes by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    /// The settings that it was started with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("key", self.key())
            .field("holder", self.holder())
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}

impl ElectorBuilder {
    /// Takes this clock instead of the machine's, for tests and simulations.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Runs on this runtime instead of the shared thread. A task that blocks that
    /// runtime then blocks the renewals too.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Makes chance repeatable, for tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks the settings and starts the elector.
    pub fn start(self) -> Result<Elector> {
        let (elector, driver, runtime) = self.make()?;
        runtime.spawn(driver.run());
        Ok(elector)
    }

    /// As [`start`](Self::start), with all events from the very first on.
    pub fn start_listening(self) -> Result<(Elector, Events)> {
        let (elector, driver, runtime) = self.make()?;
        let events = elector.events();
        runtime.spawn(driver.run());
        Ok((elector, events))
    }

    fn make(self) -> Result<(Elector, Driver, Handle)> {
        self.settings.check()?;
        let traits = self.store.traits();
        traits.check_ttl(self.settings.timing.ttl)?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => crate::runtime::shared()?,
        };
        let now = self.clock.now();
        let holder = self.settings.holder.clone();
        let holder = holder.unwrap_or_else(Holder::generate);
        let seed = self.seed.unwrap_or_else(|| fastrand::Rng::new().u64(..));
        let election = Election::new(self.settings.clone(), holder.clone(), seed, now);
        let change = Change {
            tenure: None,
            life: Life::Running,
        };
        let shared = Arc::new(Shared {
            settings: self.settings,
            holder,
            store: self.store,
            store_name: traits.name,
            watches: traits.watch,
            clock: self.clock,
            events: Hub::new(),
            leader: ArcSwapOption::empty(),
            turned_at: AtomicU64::new(now.as_nanos()),
            current: ArcSwapOption::empty(),
            changes: watch::channel(change).0,
        });
        let (orders, receiver) = mpsc::unbounded_channel();
        let driver = Driver::new(election, shared.clone(), receiver);
        Ok((Elector { shared, orders }, driver, runtime))
    }
}

impl fmt::Debug for ElectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectorBuilder")
            .field("store", &self.store)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn tenure(&self) -> Option<Tenure> {
        self.current.load_full().map(|tenure| (*tenure).clone())
    }

    pub(crate) fn set_tenure(&self, tenure: Option<Tenure>) {
        self.current.store(tenure.clone().map(Arc::new));
        self.changes.send_modify(|change| change.tenure = tenure);
    }

    /// Marks the elector as over and tells everybody.
    pub(crate) fn end(&self, life: Life) {
        self.changes.send_modify(|change| change.life = life);
        self.events.tell(&Event::Stopped);
    }
}
