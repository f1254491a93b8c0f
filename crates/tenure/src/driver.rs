//! The driver: gives the election a clock, a store and a life of its own.
//!
//! Each store call runs in a task of its own, bounded by the election, so that a hung
//! call blocks neither the next one nor the deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::clock::Moment;
use crate::election::{Answer, CallId, Election, Input, Operation, Output, Request};
use crate::elector::{Life, Shared};
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::held::{Extended, Tenure};
use crate::metric_names as names;
use crate::reason::EndReason;
use crate::store::{Acquired, Lease, Notice, Renewed, Store};
use crate::words::Token;

/// How many pushed changes may wait; more are dropped, since each is only a hint.
const NOTICES_MAX: usize = 16;

/// How long a tenure lasts before its record is watched.
const WATCH_OWN_AFTER: Duration = Duration::from_millis(200);

pub(crate) struct Driver {
    election: Election,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
    orders_closed: bool,
    calls: JoinSet<(CallId, Answer)>,
    running: HashMap<CallId, Running>,
    notices: mpsc::Receiver<Notice>,
    notices_sender: mpsc::Sender<Notice>,
    watcher: Option<tokio::task::JoinHandle<()>>,
    tenure: Option<Tenure>,
    /// A tenure that has ended while work of it had not stopped yet.
    ended: Option<Tenure>,
    /// The last failure that was logged, so that a long outage is one line and not a flood.
    logged: Option<String>,
}

/// What the handles ask of the driver.
#[derive(Debug)]
pub(crate) enum Order {
    Resign,
    Stop,
}

struct Running {
    abort: AbortHandle,
    operation: Operation,
    sent: Moment,
}

impl Driver {
    pub(crate) fn new(
        election: Election,
        shared: Arc<Shared>,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        let (notices_sender, notices) = mpsc::channel(NOTICES_MAX);
        Self {
            election,
            shared,
            orders,
            orders_closed: false,
            calls: JoinSet::new(),
            running: HashMap::new(),
            notices,
            notices_sender,
            watcher: None,
            tenure: None,
            ended: None,
            logged: None,
        }
    }

    /// Runs until the election is over. Must not be dropped before: the guard around it
    /// ends the tenure loudly if it is.
    pub(crate) async fn run(mut self) {
        let guard = BreakdownGuard(self.shared.clone());
        let key = self.shared.settings.key.to_string();
        metrics::gauge!(names::ELECTOR_UP, "key" => key.clone()).set(1.0);
        self.show_leading(false);
        self.step(Input::Tick);
        while !self.election.is_stopped() {
            let input = self.next_input().await;
            self.step(input);
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
        metrics::gauge!(names::ELECTOR_UP, "key" => key).set(0.0);
        self.shared.end(Life::Stopped);
        std::mem::forget(guard);
    }

    async fn next_input(&mut self) -> Input {
        let clock = &self.shared.clock;
        let wake = self.election.next_wake();
        tokio::select! {
            biased;
            order = self.orders.recv(), if !self.orders_closed => match order {
                Some(Order::Resign) => Input::Resign,
                Some(Order::Stop) => Input::Stop,
                None => {
                    // The last handle is gone: nobody can use the tenure any more.
                    self.orders_closed = true;
                    Input::Stop
                }
            },
            Some(answer) = self.calls.join_next_with_id(), if !self.calls.is_empty() => {
                self.answer(answer)
            }
            token = drained(self.tenure.as_ref()) => Input::WorkDone(token),
            token = drained(self.ended.as_ref()) => {
                self.ended = None;
                Input::WorkDone(token)
            }
            Some(notice) = self.notices.recv() => Input::Notice(notice),
            () = sleep(clock.as_ref(), wake) => Input::Tick,
        }
    }

    fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        if let Some(tenure) = &self.tenure {
            inputs.insert(0, Input::Progress(tenure.progress_at()));
        }
        while !inputs.is_empty() {
            let input = inputs.remove(0);
            let now = self.shared.clock.now();
            self.shared
                .turned_at
                .store(now.as_nanos(), Ordering::Release);
            for output in self.election.step(now, input) {
                inputs.extend(self.perform(now, output));
            }
        }
        self.show_remaining();
    }

    fn perform(&mut self, now: Moment, output: Output) -> Option<Input> {
        match output {
            Output::Call(id, request) => self.call(now, id, request),
            Output::Abandon(id, operation) => self.abandon(now, id, operation),
            Output::Begin { lease, deadline } => self.begin(lease, deadline),
            Output::Extend { deadline } => return self.extend(deadline),
            Output::Drain(reason) => return self.drain(reason),
            Output::End(reason) => return self.end(reason),
            Output::Following(lease) => {
                tracing::info!(
                    key = %lease.key, holder = %lease.holder, token = lease.token.0,
                    action = "follow", "somebody else leads"
                );
                self.shared.leader.store(Some(Arc::new(lease.clone())));
                self.shared.events.tell(&Event::Following(lease));
                self.start_watching(Moment::ZERO);
            }
            Output::Failed(operation, error) => self.failed(operation, error),
            Output::Recovered => {
                self.logged = None;
                tracing::info!(key = %self.shared.settings.key, "the store answers again");
                self.shared.events.tell(&Event::Recovered);
            }
            Output::Stopped => {}
        }
        None
    }

    fn begin(&mut self, lease: Lease, deadline: Moment) {
        let grace = self.shared.settings.timing.grace;
        let clock = self.shared.clock.clone();
        // A tenure that is over sooner never pays for it.
        let watch_from = clock.now() + WATCH_OWN_AFTER;
        tracing::info!(
            key = %lease.key, holder = %lease.holder, token = lease.token.0,
            action = "elected", "this process leads"
        );
        self.shared.leader.store(Some(Arc::new(lease.clone())));
        let tenure = Tenure::new(lease, deadline, grace, clock);
        let key = tenure.key().to_string();
        metrics::counter!(names::ELECTIONS_WON, "key" => key).increment(1);
        self.show_leading(true);
        self.tenure = Some(tenure.clone());
        self.shared.set_tenure(Some(tenure.clone()));
        self.shared.events.tell(&Event::Elected(tenure));
        self.start_watching(watch_from);
    }

    fn extend(&mut self, deadline: Moment) -> Option<Input> {
        let tenure = self.tenure.as_ref()?;
        match tenure.extend(deadline) {
            Extended::Moved => {}
            Extended::Overrun => return Some(Input::Overrun),
            Extended::Told => return Some(Input::Told),
        }
        let token = tenure.token();
        tracing::debug!(key = %tenure.key(), token = token.0, action = "renew", "renewed");
        let renewed = Event::Renewed { token, deadline };
        self.shared.events.tell(&renewed);
        None
    }

    fn drain(&mut self, reason: EndReason) -> Option<Input> {
        let tenure = self.tenure.as_ref()?;
        let token = tenure.token();
        tracing::info!(
            key = %tenure.key(), token = token.0, reason = reason.as_str(),
            action = "stopping", "work is told to stop: {reason}"
        );
        let idle = tenure.drain();
        self.shared.events.tell(&Event::Stopping { token, reason });
        idle.then_some(Input::WorkDone(token))
    }

    fn end(&mut self, reason: EndReason) -> Option<Input> {
        let tenure = self.tenure.take()?;
        tenure.end(reason.clone());
        self.shared.set_tenure(None);
        self.shared.leader.store(None);
        let token = tenure.token();
        let lasted = tenure.lasted();
        tracing::info!(
            key = %tenure.key(), token = token.0, reason = reason.as_str(),
            seconds = lasted.as_secs_f64(), action = "lost", "no longer leading: {reason}"
        );
        let key = tenure.key().to_string();
        metrics::histogram!(names::TENURE_SECONDS, "key" => key, "reason" => reason.as_str())
            .record(lasted.as_secs_f64());
        self.show_leading(false);
        self.shared.events.tell(&Event::Lost { token, reason });
        if tenure.drain() {
            return Some(Input::WorkDone(token));
        }
        self.ended = Some(tenure);
        None
    }

    fn failed(&mut self, operation: Operation, error: Error) {
        let key = &self.shared.settings.key;
        let text = error.to_string();
        if self.logged.as_ref() != Some(&text) {
            tracing::warn!(
                key = %key, action = operation.as_str(), outcome = error.kind().as_str(), "{text}"
            );
            self.logged = Some(text);
        }
        if operation == Operation::Renew {
            metrics::counter!(names::RENEW_FAILURES, "key" => key.to_string()).increment(1);
        }
        let event = Event::StoreError { operation, error };
        self.shared.events.tell(&event);
    }

    // Store calls

    fn call(&mut self, now: Moment, id: CallId, request: Request) {
        let store = self.shared.store.clone();
        let operation = match &request {
            Request::Acquire(_) => Operation::Acquire,
            Request::Renew(..) => Operation::Renew,
            Request::Release(_) => Operation::Release,
            Request::Read(_) => Operation::Read,
        };
        let abort = self
            .calls
            .spawn(async move { (id, send(&*store, request).await) });
        let running = Running {
            abort,
            operation,
            sent: now,
        };
        self.running.insert(id, running);
    }

    fn answer(&mut self, joined: Result<(tokio::task::Id, (CallId, Answer)), JoinError>) -> Input {
        match joined {
            Ok((_, (id, answer))) => {
                if let Some(running) = self.running.remove(&id) {
                    self.measure(&running, outcome(&answer));
                }
                Input::Answer(id, answer)
            }
            Err(error) => {
                let task = error.id();
                let found = self.running.iter().find(|(_, r)| r.abort.id() == task);
                let Some(id) = found.map(|(id, _)| *id) else {
                    return Input::Tick; // It was given up before.
                };
                let operation = self.running.remove(&id).map(|r| r.operation);
                let error = Error::unavailable(format!(
                    "the store call broke down ({error}): this is a fault in the store's code"
                ));
                Input::Answer(id, failure(operation.unwrap_or(Operation::Read), error))
            }
        }
    }

    fn abandon(&mut self, now: Moment, id: CallId, operation: Operation) {
        if let Some(running) = self.running.remove(&id) {
            running.abort.abort();
            tracing::debug!(
                key = %self.shared.settings.key, action = operation.as_str(),
                seconds = (now - running.sent).as_secs_f64(), "gave up a store call"
            );
            self.measure(&running, "unknown");
        }
    }

    fn measure(&self, running: &Running, outcome: &'static str) {
        let took = self.shared.clock.now() - running.sent;
        let operation = running.operation.as_str();
        tracing::debug!(
            key = %self.shared.settings.key, holder = %self.shared.holder, action = operation,
            outcome, seconds = took.as_secs_f64(), "store call"
        );
        metrics::histogram!(
            names::STORE_CALL_SECONDS,
            "store" => self.shared.store_name, "operation" => operation, "outcome" => outcome
        )
        .record(took.as_secs_f64());
    }

    // Pushed changes

    /// Begins to watch from this moment on: the record of another, to campaign when it ends,
    /// or our own, to stop the moment that somebody takes it against the rules.
    fn start_watching(&mut self, from: Moment) {
        if self.watcher.is_some() || !self.shared.watches {
            return;
        }
        let shared = self.shared.clone();
        let sender = self.notices_sender.clone();
        self.watcher = Some(tokio::spawn(watch(shared, sender, from)));
    }

    // What is shown

    fn show_leading(&self, leading: bool) {
        let key = self.shared.settings.key.to_string();
        let value = f64::from(u8::from(leading));
        metrics::gauge!(names::IS_LEADER, "key" => key.clone()).set(value);
        metrics::gauge!(names::MASTER_STATUS, "name" => key).set(value);
    }

    fn show_remaining(&self) {
        let remaining = self
            .tenure
            .as_ref()
            .map_or(0.0, |t| t.remaining().as_secs_f64());
        let key = self.shared.settings.key.to_string();
        metrics::gauge!(names::SECONDS_UNTIL_EXPIRY, "key" => key).set(remaining);
    }
}

/// Ends the tenure and says so loudly if the driver is dropped or panics.
struct BreakdownGuard(Arc<Shared>);

impl Drop for BreakdownGuard {
    fn drop(&mut self) {
        let shared = &self.0;
        tracing::error!(key = %shared.settings.key, "the elector broke down and leads no more");
        let key = shared.settings.key.to_string();
        metrics::gauge!(names::ELECTOR_UP, "key" => key.clone()).set(0.0);
        metrics::gauge!(names::IS_LEADER, "key" => key.clone()).set(0.0);
        metrics::gauge!(names::MASTER_STATUS, "name" => key).set(0.0);
        if let Some(tenure) = shared.tenure() {
            let (token, reason) = (tenure.token(), EndReason::Failed);
            tenure.end(reason.clone());
            shared.set_tenure(None);
            shared.events.tell(&Event::Lost { token, reason });
        }
        shared.end(Life::Failed);
    }
}

async fn drained(tenure: Option<&Tenure>) -> Token {
    match tenure {
        Some(tenure) => {
            tenure.work_done().await;
            tenure.token()
        }
        None => std::future::pending().await,
    }
}

async fn sleep(clock: &dyn crate::clock::Clock, until: Option<Moment>) {
    match until {
        Some(moment) => clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn send(store: &dyn Store, request: Request) -> Answer {
    match request {
        Request::Acquire(request) => Answer::Acquire(store.acquire(&request).await),
        Request::Renew(lease, ttl) => Answer::Renew(store.renew(&lease, ttl).await),
        Request::Release(lease) => Answer::Release(store.release(&lease).await),
        Request::Read(key) => Answer::Read(store.read(&key).await),
    }
}

/// Watches for as long as the elector lives; a watch that ends is begun again.
async fn watch(shared: Arc<Shared>, sender: mpsc::Sender<Notice>, from: Moment) {
    let timing = shared.settings.timing;
    let key = &shared.settings.key;
    shared.clock.sleep_until(from).await;
    loop {
        let begun = tokio::time::timeout(timing.call_timeout, shared.store.watch(key)).await;
        if let Ok(Ok(mut notices)) = begun {
            // What changed before the watch began was not pushed.
            let _ = sender.try_send(Notice::Look);
            while let Some(notice) = notices.next().await {
                let _ = sender.try_send(notice);
            }
        }
        let again = shared.clock.now() + timing.poll_every;
        shared.clock.sleep_until(again).await;
    }
}

fn failure(operation: Operation, error: Error) -> Answer {
    match operation {
        Operation::Acquire => Answer::Acquire(Err(error)),
        Operation::Renew => Answer::Renew(Err(error)),
        Operation::Release => Answer::Release(Err(error)),
        Operation::Read => Answer::Read(Err(error)),
    }
}

fn outcome(answer: &Answer) -> &'static str {
    let failed = |error: &Error| match error.kind() {
        ErrorKind::Unavailable => "unknown",
        kind => kind.as_str(),
    };
    match answer {
        Answer::Acquire(Ok(Acquired::Granted(_))) => "granted",
        Answer::Acquire(Ok(Acquired::Held(_))) => "held",
        Answer::Renew(Ok(Renewed::Renewed(..))) => "renewed",
        Answer::Renew(Ok(Renewed::Lost(_))) => "lost",
        Answer::Release(Ok(_)) => "released",
        Answer::Read(Ok(_)) => "read",
        Answer::Acquire(Err(e))
        | Answer::Renew(Err(e))
        | Answer::Release(Err(e))
        | Answer::Read(Err(e)) => failed(e),
    }
}
