//! Many processes on one file: killed, stopped, with children, and never two at a time.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tenure::{Acquired, BootClock, Clock, Holder, Notice, Store, Token};
use tenure_sqlite::{Liveness, SqliteStore};

use support::{LONG, granted, held, key, request, until};

const ROLE: &str = "TENURE_TEST_ROLE";
const DATABASE: &str = "TENURE_TEST_DATABASE";
const LOG: &str = "TENURE_TEST_LOG";
const TTL_MS: &str = "TENURE_TEST_TTL_MS";
/// The promise: the next leads within this time of the death.
const FAILOVER_MAX: Duration = Duration::from_millis(100);

/// Not a test of its own: what the processes that the other tests start run.
#[test]
fn another_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let database = std::env::var(DATABASE).unwrap();
    match role.as_str() {
        "hold" => runtime.block_on(hold(&database, Liveness::Process)),
        "hold without a lock" => runtime.block_on(hold(&database, Liveness::None)),
        "hold without the store" => {
            runtime.block_on(async {
                let store = SqliteStore::open(&database).unwrap();
                granted(&store, "k", "held", LONG).await;
                drop(store);
                let ended = async || (!has_thread("tenure-sqlite")).then_some(());
                until("the end of the store's thread", ended).await;
            });
            say("held on");
            let _ = std::io::stdin().read(&mut [0]);
        }
        "hold with a child" => {
            let lock = tenure_sqlite::HolderLock::create(&database).unwrap();
            #[expect(
                clippy::zombie_processes,
                reason = "the test kills both, each in its turn"
            )]
            let child = Command::new("sleep").arg("600").spawn().unwrap();
            say(&format!("child {}", child.id()));
            runtime.block_on(hold(&database, Liveness::Lock(lock)));
        }
        "count" => runtime.block_on(count(&database)),
        other => panic!("no such role: {other}"),
    }
}

fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
    names.any(|found| found.trim_ascii() == name.as_bytes())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid {line}").unwrap();
    out.flush().unwrap();
}

async fn hold(database: &str, liveness: Liveness) {
    let store = SqliteStore::options(database)
        .liveness(liveness)
        .open()
        .unwrap();
    let ttl = std::env::var(TTL_MS).unwrap().parse().unwrap();
    let lease = granted(&store, "k", "held", Duration::from_millis(ttl)).await;
    say(&format!("held {}", lease.token));
    // Until the test lets go.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Adds a line with the next number again and again, only under the lease.
async fn count(database: &str) {
    let log = std::env::var(LOG).unwrap();
    let store = SqliteStore::open(database).unwrap();
    let holder = Holder::generate();
    loop {
        let mine = request("counter", holder.as_str(), LONG);
        let lease = loop {
            if let Acquired::Granted(lease) = store.acquire(&mine).await.unwrap() {
                break lease;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let text = std::fs::read_to_string(&log).unwrap();
        let last: u64 = text.lines().last().map_or(0, |line| {
            line.split_whitespace().next().unwrap().parse().unwrap()
        });
        // Long enough for others to come in between, if they could.
        std::thread::sleep(Duration::from_micros(300));
        let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        let line = format!("{} {} {}\n", last + 1, lease.token, std::process::id());
        file.write_all(line.as_bytes()).unwrap();
        store.release(&lease).await.unwrap();
    }
}

/// A process of this test, killed when it is dropped.
struct Process {
    child: Child,
    said: Box<dyn Iterator<Item = String>>,
}

impl Process {
    fn start(role: &str, database: &Path, more: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "another_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(DATABASE, database)
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.filter_map(|line| Some(line.ok()?.strip_prefix("said ")?.to_owned()));
        Self {
            child,
            said: Box::new(said),
        }
    }

    /// The word after `what`, which the process is about to say.
    fn says(&mut self, what: &str) -> String {
        let line = self.said.next().expect("the process ended early");
        let (first, second) = line.split_once(' ').unwrap();
        assert_eq!(first, what);
        second.to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it -9 and waits until it is dead.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Not there any more is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Some process that is not our child, killed when it is dropped.
struct Stranger(Pid);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

async fn free(notices: &mut (impl futures_util::Stream<Item = Notice> + Unpin)) {
    let free = async { while notices.next().await.unwrap() != Notice::Free {} };
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, free).await.expect("no notice");
}

#[tokio::test]
async fn killed_holder_is_followed_within_100_ms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    for round in 0..5 {
        let mut process = Process::start("hold", &path, &[(TTL_MS, "600000")]);
        let token = Token(process.says("held").parse().unwrap());
        let mut notices = store.watch(&key("k")).await.unwrap();
        assert_eq!(held(&store, "k", "next").await.token, token);
        process.kill();
        let died = BootClock.now();
        free(&mut notices).await;
        let lease = granted(&store, "k", "next", LONG).await;
        let took = BootClock.now() - died;
        assert!(took < FAILOVER_MAX, "round {round}: took {took:?}");
        assert!(lease.token > token);
        store.release(&lease).await.unwrap();
    }
    let files = std::fs::read_dir(folder.path().join("leases.db.holders")).unwrap();
    assert_eq!(files.count(), 1, "only our own: who takes over cleans up");
}

#[tokio::test]
async fn killed_holder_holds_until_its_last_child_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut process = Process::start("hold with a child", &path, &[(TTL_MS, "600000")]);
    let child = Pid::from_raw(process.says("child").parse().unwrap()).unwrap();
    let child = Stranger(child);
    process.says("held");
    let mut notices = store.watch(&key("k")).await.unwrap();
    process.kill();
    let limit = BootClock.now() + Duration::from_millis(300);
    while BootClock.now() < limit {
        held(&store, "k", "next").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(store.read(&key("k")).await.unwrap().is_some());
    let died = BootClock.now();
    drop(child);
    free(&mut notices).await;
    granted(&store, "k", "next", LONG).await;
    let took = BootClock.now() - died;
    assert!(took < FAILOVER_MAX, "took {took:?}");
}

#[tokio::test]
async fn stopped_holder_holds_until_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut process = Process::start("hold", &path, &[(TTL_MS, "1000")]);
    process.says("held");
    let asked = BootClock.now();
    let rest = store.read(&key("k")).await.unwrap().unwrap().rest.unwrap();
    process.signal(Signal::STOP);
    let mut refused = 0;
    let lease = until("the end of the term", async || {
        match store.acquire(&request("k", "next", LONG)).await.unwrap() {
            Acquired::Granted(lease) => Some(lease),
            Acquired::Held(_) => {
                refused += 1;
                None
            }
        }
    })
    .await;
    let waited = BootClock.now() - asked;
    assert!(
        waited >= rest,
        "granted {waited:?} after, {rest:?} were left"
    );
    assert!(refused > 0);
    process.signal(Signal::CONT);
    store.release(&lease).await.unwrap();
}

#[tokio::test]
async fn lease_without_a_lock_outlives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut process = Process::start("hold without a lock", &path, &[(TTL_MS, "600000")]);
    let token = Token(process.says("held").parse().unwrap());
    process.kill();
    assert_eq!(held(&store, "k", "next").await.token, token);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_holder_is_noticed_even_if_it_had_dropped_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut process = Process::start("hold without the store", &path, &[]);
    process.says("held");
    held(&store, "k", "next").await;
    process.kill();
    granted(&store, "k", "next", LONG).await;
}

#[tokio::test]
async fn one_death_frees_all_leases_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut process = Process::start("hold", &path, &[(TTL_MS, "600000")]);
    process.says("held");
    let theirs = store.read(&key("k")).await.unwrap().unwrap();
    // As if the process had two: a second record with the same lock file.
    let by_hand = rusqlite::Connection::open(&path).unwrap();
    let copied = by_hand.execute(
        "INSERT INTO leases SELECT 'k2', holder, token, attempt, ttl_ns, ends_at, boot,
         acquired_at, version, request, liveness FROM leases WHERE key = 'k'",
        [],
    );
    assert_eq!(copied.unwrap(), 1);
    held(&store, "k2", "next").await;
    process.kill();
    assert_eq!(store.list("", 10).await.unwrap(), []);
    assert!(granted(&store, "k", "next", LONG).await.token > theirs.token);
    assert!(granted(&store, "k2", "next", LONG).await.token > theirs.token);
}

#[tokio::test]
async fn counter_of_eight_processes_loses_no_count_when_some_are_killed() {
    const COUNT: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let log = folder.path().join("log");
    std::fs::write(&log, "").unwrap();
    let more = [(LOG, log.to_str().unwrap())];
    let start = || Process::start("count", &path, &more);
    let mut processes: Vec<_> = (0..8).map(|_| start()).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let lines = || std::fs::read_to_string(&log).unwrap().lines().count();
    let mut killed = 0;
    loop {
        let reached = lines();
        if reached >= COUNT {
            break;
        }
        // They go on, whoever was killed before.
        until("the next counts", async || {
            (lines() >= reached + 10).then_some(())
        })
        .await;
        let unlucky = random.usize(..processes.len());
        processes[unlucky].kill();
        processes[unlucky] = start();
        killed += 1;
    }
    for process in &mut processes {
        process.kill();
    }
    assert!(killed >= 10, "only {killed} were killed");
    let text = std::fs::read_to_string(&log).unwrap();
    let mut token_last = 0;
    for (index, line) in text.lines().enumerate() {
        let mut words = line
            .split_whitespace()
            .map(|word| word.parse::<u64>().unwrap());
        assert_eq!(
            words.next(),
            Some(index as u64 + 1),
            "counted twice: {line}"
        );
        let token = words.next().unwrap();
        assert!(token > token_last, "the token fell back: {line}");
        token_last = token;
    }
}
