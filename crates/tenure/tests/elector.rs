//! The elector with its driver: the promises, one by one, on a clock that tests turn.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Fault, FaultyStore, soon, until};
use tenure::{
    AcquireRequest, Acquired, Acquisition, Attempt, Clock, Elector, EndReason, Event, Guarded,
    Health, Holder, HolderRequest, Key, LeaseService, ManualClock, MemoryStore, Moment, PlainLease,
    Settings, Sleep, Store, Timing, Token,
};

const TTL: Duration = Duration::from_secs(30);

struct Stage {
    clock: ManualClock,
    store: FaultyStore,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = FaultyStore::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        Self { clock, store }
    }

    fn settings(&self) -> Settings {
        Settings::new("k").unwrap().timing(Timing::with_ttl(TTL))
    }

    fn elector(&self) -> Elector {
        self.elector_with(self.settings())
    }

    fn elector_with(&self, settings: Settings) -> Elector {
        Elector::builder(self.store.clone(), settings)
            .clock(self.clock.clone())
            .start()
            .unwrap()
    }

    /// Lets time pass in small steps, so that timers fire in their order.
    async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(250);
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            self.clock.advance(now);
            left -= now;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Somebody else takes the free lease, so that nobody else can for a while.
    async fn occupy(&self, holder: &str) -> Acquired {
        let request = AcquireRequest {
            key: Key::new("k").unwrap(),
            holder: Holder::new(holder).unwrap(),
            ttl: TTL,
            attempt: Attempt::first(99),
            ended: None,
        };
        self.store.inner.acquire(&request).await.unwrap()
    }
}

#[tokio::test]
async fn two_electors_one_leader_and_a_stop_hands_over_at_once() {
    let stage = Stage::new();
    let first = stage.elector();
    let old = soon("the first to lead", first.elected()).await.unwrap();
    let second = stage.elector();
    until("the second follows", || second.leader().is_some()).await;
    assert!(!second.is_leader());
    assert_eq!(second.leader().unwrap().holder, *first.holder());
    // No time passes on the clock: the release is pushed.
    soon("the stop", first.stop()).await;
    let new = soon("the second to lead", second.elected()).await.unwrap();
    assert!(new.token() > old.token());
    assert!(!old.is_valid());
    assert_eq!(old.end_reason(), Some(EndReason::Stopped));
    soon("a second stop of the same", first.stop()).await;
    assert_eq!(first.health(), Health::Stopped);
    second.stop().await;
}

#[tokio::test]
async fn an_uncontended_tenure_takes_two_round_trips_and_a_renewal_one() {
    let stage = Stage::new();
    let elector = stage.elector();
    soon("the tenure", elector.elected()).await.unwrap();
    assert_eq!(stage.store.calls(), 1, "one to acquire");
    for _ in 0..1000 {
        assert!(elector.is_leader());
    }
    assert_eq!(stage.store.calls(), 1, "none to ask");
    soon("the stop", elector.stop()).await;
    assert_eq!(stage.store.calls(), 2, "one to release");
    let elector = stage.elector();
    soon("another tenure", elector.elected()).await.unwrap();
    stage.pass(Duration::from_millis(200)).await;
    until("a look when the watch begins", || stage.store.calls() == 4).await;
    // It is due after 9 to 11 s, by chance.
    stage.pass(Duration::from_secs(8)).await;
    assert_eq!(stage.store.calls(), 4, "none until the renewal is due");
    stage.pass(Duration::from_secs(4)).await;
    until("the renewal", || stage.store.calls() == 5).await;
    soon("the stop", elector.stop()).await;
    assert_eq!(stage.store.calls(), 6, "one to release");
}

/// Whoever keeps no rules, or other ones, can take a record from its living holder: the
/// tenure ends at once, not at the next renewal.
#[tokio::test]
async fn a_leader_sees_at_once_that_its_record_changed_hands() {
    for early in [true, false] {
        let stage = Stage::new();
        let elector = stage.elector();
        let tenure = soon("the tenure", elector.elected()).await.unwrap();
        if !early {
            stage.pass(Duration::from_millis(200)).await;
            until("the look", || stage.store.calls() == 2).await;
        }
        let usurper = Holder::new("usurper").unwrap();
        let key = Key::new("k").unwrap();
        stage.store.inner.delete(&key);
        let request = AcquireRequest {
            key,
            holder: usurper.clone(),
            ttl: Duration::from_secs(30),
            attempt: Attempt::first(7),
            ended: None,
        };
        let taken = stage.store.inner.acquire(&request).await.unwrap();
        assert!(matches!(taken, Acquired::Granted(_)));
        stage.pass(Duration::from_millis(200)).await;
        let reason = soon("the end", tenure.ended()).await;
        match reason {
            EndReason::Superseded { holder, .. } => assert_eq!(holder, usurper),
            // The push of the deletion may win the race.
            reason => assert!(!early && reason == EndReason::RecordDeleted, "{reason}"),
        }
        elector.stop().await;
    }
}

#[tokio::test]
async fn is_leader_is_right_even_if_nothing_was_scheduled() {
    // The driver is on this thread's runtime, and this test does not yield.
    let stage = Stage::new();
    let elector = Elector::builder(stage.store.clone(), stage.settings())
        .clock(stage.clock.clone())
        .runtime(tokio::runtime::Handle::current())
        .start()
        .unwrap();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    stage.clock.advance(Duration::from_secs(29));
    assert!(elector.is_leader());
    stage.clock.advance(Duration::from_millis(699));
    assert!(tenure.is_valid());
    assert_eq!(tenure.remaining(), Duration::from_millis(1));
    assert_eq!(tenure.deadline(), stage.clock.now() + tenure.remaining());
    assert_eq!(tenure.ttl(), TTL);
    stage.clock.advance(Duration::from_millis(1));
    assert!(!elector.is_leader());
    assert_eq!(elector.remaining(), Duration::ZERO);
    assert!(elector.tenure().is_none());
    // An hour later the elector runs again: the tenure stays ended.
    stage.clock.advance(Duration::from_secs(3600));
    stage.pass(Duration::from_secs(2)).await;
    let next = soon("another tenure", elector.elected()).await.unwrap();
    assert!(!tenure.is_valid());
    assert!(next.token() > tenure.token());
    elector.stop().await;
}

#[test]
fn a_blocked_runtime_of_the_caller_does_not_cost_the_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = MemoryStore::new();
        let timing = Timing::with_ttl(Duration::from_millis(900));
        let settings = Settings::new("k").unwrap().timing(timing);
        let elector = Elector::start(store, settings).unwrap();
        let tenure = soon("the tenure", elector.elected()).await.unwrap();
        // What is tested is the passing of time while this thread does nothing else.
        std::thread::sleep(Duration::from_millis(2_000));
        assert!(tenure.is_valid());
        elector.stop().await;
    });
}

#[tokio::test]
async fn a_store_that_hangs_makes_the_leader_step_down_in_time_and_it_leads_again() {
    let stage = Stage::new();
    let elector = stage.elector();
    let mut events = elector.events();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    stage.store.all(Fault::Hang);
    stage.pass(Duration::from_millis(24_500)).await;
    assert!(tenure.is_valid());
    stage.pass(Duration::from_millis(5_200)).await;
    assert!(!tenure.is_valid());
    soon("the end", tenure.ended()).await;
    assert_eq!(tenure.end_reason(), Some(EndReason::Expired));
    // A whole hour without the store makes no leader.
    stage.pass(Duration::from_secs(60)).await;
    stage.clock.advance(Duration::from_secs(3600));
    assert!(!elector.is_leader());
    stage.store.all(Fault::None);
    let again = soon("a leader after the outage", async {
        loop {
            stage.pass(Duration::from_secs(1)).await;
            if let Some(tenure) = elector.tenure() {
                return tenure;
            }
        }
    });
    assert!(again.await.token() > tenure.token());
    elector.stop().await;
    let mut seen = Vec::new();
    while let Some(event) = soon("the events", events.next()).await {
        seen.push(match event {
            Event::Elected(_) => "elected",
            Event::Lost { .. } => "lost",
            Event::StoreError { .. } => "store error",
            Event::Recovered => "recovered",
            Event::Stopped => "stopped",
            _ => continue,
        });
    }
    seen.dedup();
    assert!(seen.contains(&"recovered"), "{seen:?}");
    assert_eq!(seen.last(), Some(&"stopped"));
}

#[tokio::test]
async fn one_hung_renewal_costs_nothing() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    stage.store.renew_fault(Fault::Hang);
    stage.pass(Duration::from_secs(12)).await;
    stage.store.renew_fault(Fault::None);
    stage.pass(Duration::from_secs(60)).await;
    assert!(tenure.is_valid());
    elector.stop().await;
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_is_repeated() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    stage.store.renew_fault(Fault::LoseAnswer);
    stage.pass(Duration::from_secs(12)).await;
    stage.store.renew_fault(Fault::None);
    stage.pass(Duration::from_secs(60)).await;
    assert!(tenure.is_valid());
    elector.stop().await;
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_is_found_again_and_not_orphaned() {
    let stage = Stage::new();
    stage.store.acquire_fault(Fault::LoseAnswer);
    let settings = stage.settings().holder(Holder::new("given").unwrap());
    let elector = stage.elector_with(settings);
    until("it was asked", || stage.store.calls() == 1).await;
    let key = Key::new("k").unwrap();
    let granted = stage.store.inner.read(&key).await.unwrap().unwrap();
    assert!(!elector.is_leader(), "unknown is not yes");
    stage.store.acquire_fault(Fault::None);
    stage.pass(Duration::from_secs(7)).await;
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    assert_eq!(tenure.token(), granted.token, "the same tenure");
    elector.stop().await;
    assert_eq!(stage.store.inner.read(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_store_that_panics_harms_nobody() {
    let stage = Stage::new();
    stage.store.acquire_fault(Fault::Panic);
    let (elector, mut events) = Elector::builder(stage.store.clone(), stage.settings())
        .clock(stage.clock.clone())
        .start_listening()
        .unwrap();
    let error = soon("the error", async {
        loop {
            if let Some(Event::StoreError { error, .. }) = events.next().await {
                return error;
            }
        }
    });
    assert!(error.await.to_string().contains("broke down"));
    stage.store.acquire_fault(Fault::None);
    stage.pass(Duration::from_secs(11)).await;
    soon("the tenure", elector.elected()).await.unwrap();
    elector.stop().await;
}

#[tokio::test]
async fn a_suspend_ends_the_tenure_and_the_work() {
    let stage = Stage::new();
    let elector = stage.elector();
    let working = Arc::new(AtomicUsize::new(0));
    let led = tokio::spawn({
        let (elector, working) = (elector.clone(), working.clone());
        async move {
            elector
                .lead(|_| {
                    let working = working.clone();
                    async move {
                        working.fetch_add(1, Ordering::SeqCst);
                        std::future::pending::<()>().await;
                    }
                })
                .await;
        }
    });
    until("the work begins", || working.load(Ordering::SeqCst) == 1).await;
    let tenure = elector.tenure().unwrap();
    stage.clock.advance(Duration::from_secs(8 * 3600));
    assert!(!tenure.is_valid());
    until("the work begins anew", || {
        stage.clock.advance(Duration::from_millis(10));
        working.load(Ordering::SeqCst) == 2
    })
    .await;
    assert!(elector.tenure().unwrap().token() > tenure.token());
    let stopped = async { tokio::join!(elector.stop(), stage.pass(Duration::from_secs(6))) };
    soon("the stop", stopped).await;
    soon("lead to return", led).await.unwrap();
}

#[tokio::test]
async fn a_wall_clock_that_jumps_changes_nothing() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    let hour = Duration::from_secs(3600);
    stage.clock.set_wall(stage.clock.wall() + hour);
    stage.pass(Duration::from_secs(31)).await;
    stage.clock.set_wall(stage.clock.wall() - hour * 2);
    stage.pass(Duration::from_secs(31)).await;
    assert!(tenure.is_valid());
    soon("the resignation", elector.resign()).await;
    // The wall clock is an hour back, and the token grows all the same.
    stage.pass(Duration::from_secs(31)).await;
    let next = soon("the next tenure", elector.elected()).await.unwrap();
    assert!(next.token() > tenure.token());
    elector.stop().await;
}

#[tokio::test]
async fn work_is_told_in_time_and_waited_for_before_the_release() {
    let stage = Stage::new();
    let first = stage.elector();
    let second = stage.elector();
    let (leader, follower) = soon("a leader", async {
        tokio::select! {
            _ = first.elected() => (first.clone(), second.clone()),
            _ = second.elected() => (second.clone(), first.clone()),
        }
    })
    .await;
    until("the other follows", || follower.leader().is_some()).await;
    let log = Arc::new(Mutex::new(Vec::new()));
    let work = tokio::spawn({
        let (leader, log) = (leader.clone(), log.clone());
        async move {
            let work = leader.run_if_leader(|tenure| async move {
                tenure.told_to_stop().await;
                log.lock().unwrap().push("told");
                tokio::task::yield_now().await;
                assert!(tenure.is_valid(), "told before the end");
                log.lock().unwrap().push("finished");
                7
            });
            work.await
        }
    });
    until("the work runs", || {
        leader
            .tenure()
            .is_some_and(|t| format!("{t:?}").contains("k"))
    })
    .await;
    tokio::task::yield_now().await;
    soon("the resignation", leader.resign()).await;
    assert_eq!(soon("the work", work).await.unwrap(), Guarded::Done(7));
    assert_eq!(*log.lock().unwrap(), ["told", "finished"]);
    soon("the other to lead", follower.elected()).await.unwrap();
    assert!(!leader.is_leader());
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn work_that_will_not_stop_is_dropped_and_the_lease_is_not_handed_on_before_that() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    let work = tokio::spawn({
        let elector = elector.clone();
        async move { elector.lead_once(|_| std::future::pending::<()>()).await }
    });
    let other = stage.elector();
    until("the other follows", || other.leader().is_some()).await;
    let guarded = {
        let stopping = tokio::spawn({
            let elector = elector.clone();
            async move { elector.stop().await }
        });
        until("the work is told", || tenure.stopping().is_cancelled()).await;
        assert!(!other.is_leader() && tenure.is_valid());
        stage.pass(Duration::from_secs(5)).await;
        soon("the stop", stopping).await.unwrap();
        soon("the work", work).await.unwrap().unwrap()
    };
    assert_eq!(guarded, Guarded::CutOff(EndReason::Stopped));
    assert!(!other.is_leader(), "the lease runs out first");
    stage.pass(Duration::from_secs(27)).await;
    soon("the other to lead", other.elected()).await.unwrap();
    other.stop().await;
}

#[tokio::test]
async fn lead_runs_again_after_each_election() {
    let stage = Stage::new();
    let mut settings = stage.settings();
    settings.rest_after_resign = Some(Duration::from_secs(1));
    let elector = stage.elector_with(settings);
    let tokens = Arc::new(Mutex::new(Vec::<Token>::new()));
    let led = tokio::spawn({
        let (elector, tokens) = (elector.clone(), tokens.clone());
        async move {
            elector
                .lead(|tenure| {
                    tokens.lock().unwrap().push(tenure.token());
                    async move { tenure.told_to_stop().await }
                })
                .await;
        }
    });
    for round in 1..=3 {
        until("the work runs", || tokens.lock().unwrap().len() == round).await;
        soon("the resignation", elector.resign()).await;
        stage.pass(Duration::from_secs(2)).await;
    }
    elector.stop().await;
    soon("lead to return", led).await.unwrap();
    let tokens = tokens.lock().unwrap();
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
}

#[tokio::test]
async fn a_handler_that_panics_or_blocks_harms_nobody() {
    let stage = Stage::new();
    let elector = stage.elector();
    let (send, block) = std::sync::mpsc::channel::<()>();
    let panicking = elector.on_event(|_| panic!("planted panic"));
    let blocking = elector.on_event(move |_| {
        let _ = block.recv();
    });
    let counted = Arc::new(AtomicUsize::new(0));
    let counting = elector.on_event({
        let counted = counted.clone();
        move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    soon("the tenure", elector.elected()).await.unwrap();
    let before = counted.load(Ordering::SeqCst);
    stage.pass(Duration::from_secs(30)).await;
    until("events go on", || {
        counted.load(Ordering::SeqCst) >= before + 2
    })
    .await;
    assert!(elector.is_leader());
    counting.unsubscribe();
    let heard = counted.load(Ordering::SeqCst);
    soon("the stop", elector.stop()).await;
    assert!(
        counted.load(Ordering::SeqCst) <= heard + 1,
        "at most one was on its way"
    );
    drop((panicking, blocking, send));
}

#[tokio::test]
async fn a_request_to_step_down_reaches_the_holder() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    stage.pass(Duration::from_secs(10)).await;
    let key = Key::new("k").unwrap();
    stage
        .store
        .ask(&key, HolderRequest::StepDown)
        .await
        .unwrap();
    let reason = soon("the end", async {
        loop {
            stage.pass(Duration::from_millis(250)).await;
            if let Some(reason) = tenure.end_reason() {
                return reason;
            }
        }
    });
    assert_eq!(reason.await, EndReason::AskedToStepDown);
    until("it is free", || elector.leader().is_none()).await;
    stage.occupy("next").await;
    elector.stop().await;
}

#[tokio::test]
async fn stalled_work_loses_the_tenure_and_progress_keeps_it() {
    let stage = Stage::new();
    let mut settings = stage.settings();
    settings.stall_after = Some(Duration::from_secs(15));
    let elector = stage.elector_with(settings);
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    for _ in 0..10 {
        stage.pass(Duration::from_secs(10)).await;
        elector.report_progress();
    }
    assert!(tenure.is_valid());
    stage.pass(Duration::from_secs(16)).await;
    assert_eq!(
        soon("the end", tenure.ended()).await,
        EndReason::StalledWork
    );
    elector.stop().await;
}

#[tokio::test]
async fn dropping_the_last_handle_frees_the_lease() {
    let stage = Stage::new();
    let elector = stage.elector();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    let key = Key::new("k").unwrap();
    drop(elector);
    assert_eq!(soon("the end", tenure.ended()).await, EndReason::Stopped);
    let freed = soon("the release", async {
        while stage.store.inner.read(&key).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    freed.await;
}

/// A clock that breaks down when it is told to: the one thing a driver cannot survive.
#[derive(Clone, Debug)]
struct BreakableClock(ManualClock, Arc<std::sync::atomic::AtomicBool>);

impl Clock for BreakableClock {
    fn now(&self) -> Moment {
        let driver = std::thread::current().name() == Some("tenure");
        assert!(!(driver && self.1.load(Ordering::SeqCst)), "planted panic");
        self.0.now()
    }
    fn wall(&self) -> std::time::SystemTime {
        self.0.wall()
    }
    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.0.sleep_until(moment)
    }
}

#[tokio::test]
async fn an_elector_that_breaks_down_is_loud_and_leads_no_more() {
    let stage = Stage::new();
    let broken = Arc::default();
    let clock = BreakableClock(stage.clock.clone(), Arc::clone(&broken));
    let elector = Elector::builder(stage.store.clone(), stage.settings())
        .clock(clock)
        .start()
        .unwrap();
    let tenure = soon("the tenure", elector.elected()).await.unwrap();
    let mut events = elector.events();
    assert_eq!(elector.health(), Health::Turning);
    broken.store(true, Ordering::SeqCst);
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(soon("the end", tenure.ended()).await, EndReason::Failed);
    until("the health check fails", || {
        elector.health() == Health::Failed
    })
    .await;
    assert!(!elector.is_leader());
    // Whoever listens from now on may still hear of the election itself.
    let mut told = Vec::new();
    while let Some(event) = soon("the events", events.next()).await {
        told.push(event);
    }
    assert!(
        matches!(told[..], [.., Event::Lost { .. }, Event::Stopped]),
        "{told:?}"
    );
    assert!(elector.elected().await.is_err());
    soon("a stop of what has stopped", elector.stop()).await;
}

#[tokio::test]
async fn an_elector_whose_thread_does_not_run_is_stuck() {
    let stage = Stage::new();
    let elector = Elector::builder(stage.store.clone(), stage.settings())
        .clock(stage.clock.clone())
        .runtime(tokio::runtime::Handle::current())
        .start()
        .unwrap();
    soon("the tenure", elector.elected()).await.unwrap();
    stage.clock.advance(Duration::from_secs(31));
    assert_eq!(elector.health(), Health::Stuck);
    until("it turns again", || elector.health() == Health::Turning).await;
    elector.stop().await;
}

#[tokio::test]
async fn timings_that_cannot_hold_are_refused_at_the_start() {
    let stage = Stage::new();
    let mut settings = stage.settings();
    settings.timing.renew_every = TTL;
    let refused = Elector::start(stage.store.clone(), settings).unwrap_err();
    assert!(refused.to_string().contains("needed"), "{refused}");
    assert_eq!(stage.store.calls(), 0);
}

#[tokio::test]
async fn one_shot_acquires_wait_and_give_up() {
    let store = MemoryStore::new();
    let settings = || {
        let timing = Timing::with_ttl(Duration::from_secs(5));
        Settings::new("k").unwrap().timing(timing)
    };
    let Acquisition::Acquired(first) = tenure::try_acquire(store.clone(), settings())
        .await
        .unwrap()
    else {
        panic!("nobody has it")
    };
    let short = Duration::from_millis(50);
    let held = tenure::acquire(store.clone(), settings(), short)
        .await
        .unwrap();
    assert!(matches!(held, Acquisition::Held(lease) if lease.token == first.token()));
    let waiting = tokio::spawn(tenure::acquire(store.clone(), settings(), TTL));
    tokio::task::yield_now().await;
    assert_eq!(first.release().await, EndReason::Stopped);
    let second = soon("the waiter", waiting).await.unwrap().unwrap();
    let Acquisition::Acquired(second) = second else {
        panic!("it is free")
    };
    let tenure = second.tenure().clone();
    drop(second);
    assert_eq!(soon("the end", tenure.ended()).await, EndReason::Stopped);
}

#[tokio::test]
async fn a_one_shot_acquire_on_a_broken_store_says_so() {
    let store = FaultyStore::new(MemoryStore::new());
    store.acquire_fault(Fault::Fail);
    let timing = Timing::with_ttl(Duration::from_secs(1));
    let settings = Settings::new("k").unwrap().timing(timing);
    let refused = soon("an answer", tenure::try_acquire(store, settings)).await;
    assert_eq!(refused.unwrap_err().to_string(), "planted failure");
}

#[tokio::test]
async fn a_plain_lease_tells_of_its_loss_and_not_of_its_release() {
    let store = MemoryStore::new();
    let timing = Timing::with_ttl(Duration::from_millis(600));
    let settings = Settings::new("k").unwrap().timing(timing);
    let lease = PlainLease::new(store.clone(), settings);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let subscription = lease.on_lost({
        let lost = lost.clone();
        move |reason| lost.lock().unwrap().push(reason.clone())
    });
    let token = lease.acquire_with_token().await.unwrap().unwrap();
    assert_eq!(lease.acquire_with_token().await.unwrap(), Some(token));
    assert!(lease.check_alive());
    lease.release().await;
    lease.release().await;
    assert!(!lease.check_alive());
    assert!(lease.acquire().await.unwrap());
    store.delete(&Key::new("k").unwrap());
    until("the loss is told", || !lost.lock().unwrap().is_empty()).await;
    assert_eq!(*lost.lock().unwrap(), [EndReason::RecordDeleted]);
    assert!(!lease.check_alive());
    subscription.unsubscribe();
}

#[tokio::test]
async fn the_lease_service_goes_by_the_holders_name() {
    for store in [MemoryStore::new(), MemoryStore::watched()] {
        let service = LeaseService::new(store.clone());
        let ttl = Duration::from_secs(30);
        let grant = service.try_acquire("k", "a", ttl).await.unwrap().unwrap();
        assert!(grant.is_valid() && grant.remaining() <= ttl.mul_f64(0.99));
        // Another process with the same holder renews, as an earlier life of it would.
        let other = LeaseService::new(store.clone());
        let again = other.try_acquire("k", "a", ttl).await.unwrap().unwrap();
        assert_eq!(again.token(), grant.token());
        assert!(other.try_acquire("k", "b", ttl).await.unwrap().is_none());
        other.release("k", "b").await.unwrap();
        assert!(service.try_acquire("k", "b", ttl).await.unwrap().is_none());
        other.release("k", "a").await.unwrap();
        let next = service.try_acquire("k", "b", ttl).await.unwrap().unwrap();
        assert!(next.token() > grant.token());
        assert!(service.try_acquire("k", "a", ttl).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn the_lease_service_takes_a_dead_lease_on_a_store_without_a_clock() {
    let clock = ManualClock::new();
    let store = MemoryStore::watched_with_clock(Arc::new(clock.clone()));
    let service = LeaseService::with(store, Arc::new(clock.clone()), Duration::from_secs(5));
    service.try_acquire("k", "a", TTL).await.unwrap().unwrap();
    assert!(service.try_acquire("k", "b", TTL).await.unwrap().is_none());
    clock.advance(Duration::from_millis(30_299));
    assert!(service.try_acquire("k", "b", TTL).await.unwrap().is_none());
    clock.advance(Duration::from_millis(1));
    assert!(service.try_acquire("k", "b", TTL).await.unwrap().is_some());
}

#[tokio::test]
async fn followers_without_push_find_a_free_lease_by_polling() {
    let stage = Stage::new();
    let store = stage.store.clone().without_push();
    let stage = Stage { store, ..stage };
    stage.occupy("first").await;
    let elector = stage.elector();
    until("it follows", || elector.leader().is_some()).await;
    stage.pass(Duration::from_secs(31)).await;
    soon("the tenure", elector.elected()).await.unwrap();
    elector.stop().await;
}

#[test]
fn every_handle_is_send_and_sync_and_cloneable() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    check::<Elector>();
    check::<tenure::Tenure>();
    check::<LeaseService>();
    check::<PlainLease>();
    check::<MemoryStore>();
}
