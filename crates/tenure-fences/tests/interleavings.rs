//! Thousands of interleavings of two leaders on each resource that lives in this process,
//! against one model: an older token is never taken after a newer one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use http::{Request, Response};
use proptest::prelude::*;
use rusqlite::Connection;
use support::{Leader, two_leaders};
use tenure_fences::FenceError;
use tenure_fences::file::FileFence;
use tenure_fences::http::{HttpFence, send_with};
use tenure_fences::sqlite::SqliteFence;
use tower_layer::Layer;
use tower_service::Service;

/// The model.
fn assert_never_an_older_one(taken: &[u64]) {
    assert!(
        taken.is_sorted(),
        "an older token was taken after a newer one: {taken:?}"
    );
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// In memory where that is to be had: these tests wait for the disk all the time.
fn folder() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = tempfile::tempdir_in(memory);
    made.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    BeginImmediate,
    Begin,
    Read,
    Guard,
    Write,
    Commit,
    Rollback,
    RaiseAlone,
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        2 => Just(Step::BeginImmediate),
        1 => Just(Step::Begin),
        1 => Just(Step::Read),
        4 => Just(Step::Guard),
        4 => Just(Step::Write),
        4 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => Just(Step::RaiseAlone),
    ];
    (any::<bool>(), step)
}

/// One leader's connection, and what its open transaction would write.
struct Writer<'l> {
    connection: Connection,
    leader: &'l Leader,
    open: bool,
    guarded: bool,
    written: bool,
}

impl Writer<'_> {
    fn take(&mut self, fence: &SqliteFence, step: Step, taken: &mut Vec<u64>) {
        let token = self.leader.tenure.token().0;
        match step {
            Step::BeginImmediate | Step::Begin if !self.open => {
                let text = match step {
                    Step::Begin => "BEGIN",
                    _ => "BEGIN IMMEDIATE",
                };
                self.open = self.connection.execute_batch(text).is_ok();
            }
            Step::Read if self.open => {
                let _ = fence.seen(&self.connection);
            }
            Step::Guard if self.open => match fence.raise(&self.connection, &self.leader.tenure) {
                Ok(()) => self.guarded = true,
                Err(FenceError::Stale(_) | FenceError::Busy { .. }) => self.roll_back(),
                Err(other) => panic!("{other}"),
            },
            // Nobody writes without its guard: that is what `begin` and `guard` see to.
            Step::Write if self.guarded => {
                let insert = "INSERT INTO log VALUES (?1)";
                self.written = self.connection.execute(insert, [token as i64]).is_ok();
            }
            Step::Commit if self.open => match self.connection.execute_batch("COMMIT") {
                Ok(()) => {
                    if self.guarded {
                        taken.push(token);
                    }
                    self.forget();
                }
                Err(_) => self.roll_back(),
            },
            Step::Rollback if self.open => self.roll_back(),
            Step::RaiseAlone if !self.open => {
                let raised = fence.raise(&self.connection, &self.leader.tenure);
                taken.extend(raised.is_ok().then_some(token));
            }
            _ => {}
        }
    }

    fn roll_back(&mut self) {
        let _ = self.connection.execute_batch("ROLLBACK");
        self.forget();
    }

    fn forget(&mut self) {
        (self.open, self.guarded, self.written) = (false, false, false);
    }
}

#[test]
fn sqlite() {
    let runtime = runtime();
    let (old, new) = runtime.block_on(two_leaders());
    for journal in ["WAL", "DELETE"] {
        let folder = folder();
        let open = |leader| {
            let connection = Connection::open(folder.path().join("app.db")).unwrap();
            let set_up = format!("PRAGMA journal_mode = {journal}; PRAGMA synchronous = OFF;");
            connection.execute_batch(&set_up).unwrap();
            connection.busy_timeout(Duration::ZERO).unwrap();
            SqliteFence::init(&connection).unwrap();
            let create = "CREATE TABLE IF NOT EXISTS log (by INTEGER)";
            connection.execute_batch(create).unwrap();
            Writer {
                connection,
                leader,
                open: false,
                guarded: false,
                written: false,
            }
        };
        let writers = Mutex::new((open(&old), open(&new)));
        let steps = proptest::collection::vec(step(), 1..40);
        proptest!(ProptestConfig::with_cases(3000), |(steps in steps)| {
            let mut writers = writers.lock().unwrap_or_else(PoisonError::into_inner);
            let (a, b) = &mut *writers;
            // A case that failed may have left them open.
            a.roll_back();
            b.roll_back();
            let fence = SqliteFence::new(format!("log {}", number())).unwrap();
            let mut taken = Vec::new();
            for (is_new, step) in steps {
                let writer = if is_new { &mut *b } else { &mut *a };
                writer.take(&fence, step, &mut taken);
            }
            assert_never_an_older_one(&taken);
        });
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Append,
    Replace,
    Raise,
}

/// Both leaders at once, on threads of their own, as the machine happens to run them.
#[test]
fn file() {
    let runtime = runtime();
    let (old, new) = runtime.block_on(two_leaders());
    let act = prop_oneof![4 => Just(Act::Append), 1 => Just(Act::Replace), 1 => Just(Act::Raise)];
    let acts = proptest::collection::vec(act, 1..12);
    let folder = folder();
    let config = ProptestConfig {
        cases: 1000,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    };
    proptest!(config, |(olds in acts.clone(), news in acts)| {
        let path = folder.path().join(format!("journal{}", number()));
        let barrier = Barrier::new(2);
        let run = |leader: &Leader, acts: &[Act]| {
            let fence = FileFence::new(&path).wait(Duration::from_secs(60));
            let line = format!("{}\n", leader.tenure.token());
            barrier.wait();
            let mut refused = 0;
            for act in acts {
                let done = match act {
                    Act::Append => fence.append(&leader.tenure, line.as_bytes()),
                    Act::Replace => fence.replace(&leader.tenure, line.as_bytes()),
                    Act::Raise => fence.raise(&leader.tenure),
                };
                match done {
                    Ok(()) => assert_eq!(refused, 0, "taken again after it was refused"),
                    Err(FenceError::Stale(_)) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            refused
        };
        let refused_new = std::thread::scope(|scope| {
            scope.spawn(|| run(&old, &olds));
            run(&new, &news)
        });
        assert_eq!(refused_new, 0);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let taken: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_never_an_older_one(&taken);
        assert_eq!(FileFence::new(&path).seen().unwrap(), new.tenure.token());
    });
}

/// Writes in the middle of its work, and takes some turns before and after that.
#[derive(Clone, Default)]
struct Handler {
    taken: Arc<Mutex<Vec<u64>>>,
}

/// Lets others run so many times.
struct Turns(u8);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Service<Request<(u64, u8, u8)>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<(u64, u8, u8)>) -> Self::Future {
        let taken = self.taken.clone();
        let (token, before, after) = request.into_body();
        Box::pin(async move {
            Turns(before).await;
            taken.lock().unwrap().push(token);
            Turns(after).await;
            Ok(Response::new(String::new()))
        })
    }
}

/// What the schedule does to one of the requests.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Poll(usize),
    Drop(usize),
    /// Gives the thread that writes the file a chance.
    Pause,
}

/// Requests are polled one by one in an order that the test chooses: each place where one
/// waits is a place where another may come between.
#[test]
fn http_layer() {
    let runtime = runtime();
    let (old, new) = runtime.block_on(two_leaders());
    let folder = folder();
    let fence = HttpFence::open(folder.path().join("fences.json")).unwrap();
    let fence = fence.resources_max(1000);
    let requests = proptest::collection::vec((any::<bool>(), 0..4_u8, 0..4_u8), 2..8);
    let turn = prop_oneof![
        20 => (0..8_usize).prop_map(Turn::Poll),
        1 => (0..8_usize).prop_map(Turn::Drop),
        2 => Just(Turn::Pause),
    ];
    let turns = proptest::collection::vec(turn, 0..80);
    proptest!(ProptestConfig::with_cases(900), |(requests in requests, turns in turns)| {
        let handler = Handler::default();
        let layer = fence.layer(format!("jobs {}", number())).unwrap();
        let _entered = runtime.enter();
        let mut running: Vec<Option<_>> = requests.iter().map(|(is_new, before, after)| {
            let tenure = if *is_new { &new.tenure } else { &old.tenure };
            let mut request = Request::new((tenure.token().0, *before, *after));
            send_with(tenure, request.headers_mut()).unwrap();
            Some(layer.layer(handler.clone()).call(request))
        }).collect();
        for turn in turns {
            match turn {
                Turn::Pause => std::thread::sleep(Duration::from_micros(100)),
                Turn::Drop(which) => {
                    if let Some(request) = running.get_mut(which) {
                        *request = None;
                    }
                }
                Turn::Poll(which) => {
                    if let Some(slot) = running.get_mut(which)
                        && let Some(request) = slot
                    {
                        let mut context = Context::from_waker(Waker::noop());
                        if request.as_mut().poll(&mut context).is_ready() {
                            *slot = None;
                        }
                    }
                }
            }
        }
        runtime.block_on(join_all(running.into_iter().flatten()));
        assert_never_an_older_one(&handler.taken.lock().unwrap());
    });
}
