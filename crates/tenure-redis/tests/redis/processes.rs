//! Candidates in processes of their own, with clocks that are an hour off.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure::{Acquired, BootClock, Clock, Renewed, Store};
use tenure_testbed::{ClockFault, Redis};

use crate::support::{held, key, open, request, until};

const URL: &str = "TENURE_TEST_CHILD_URL";
const TTL: Duration = Duration::from_secs(2);

/// Not a test of its own: what the processes that the others start run. It waits for the
/// lease, says so, keeps it until it is told, and lets it run out.
#[test]
fn another_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(&url);
        let asked = request("k", "child", TTL);
        let lease = until("the lease", async || {
            match store.acquire(&asked).await.unwrap() {
                Acquired::Granted(lease) => Some(lease),
                Acquired::Held(_) => None,
            }
        })
        .await;
        say(&format!("token {}", lease.token));
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await;
        let renewed = store.renew(&lease, TTL).await.unwrap();
        say(match renewed {
            Renewed::Renewed(..) => "renewed yes",
            Renewed::Lost(_) => "renewed no",
        });
    });
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid {line}").unwrap();
    out.flush().unwrap();
}

struct Process {
    child: Child,
    said: Box<dyn Iterator<Item = String>>,
}

impl Process {
    fn start(url: &str, clock: &ClockFault) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "processes::another_process", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        clock.apply(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.filter_map(|line| Some(line.ok()?.strip_prefix("said ")?.to_owned()));
        Self {
            child,
            said: Box::new(said),
        }
    }

    fn says(&mut self, what: &str) -> String {
        let line = self.said.next().expect("the process ended early");
        let (first, second) = line.split_once(' ').unwrap();
        assert_eq!(first, what);
        second.to_owned()
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The clock of a candidate is nothing to a lease: it neither takes one before its end,
/// nor holds one for longer, nor gives a token out of order.
#[tokio::test(flavor = "multi_thread")]
async fn clock_of_a_candidate_an_hour_off_changes_nothing() {
    if !ClockFault::is_available() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let mut last = 0;
    for offset in [3600, -3600] {
        let clock = ClockFault::offset(offset);
        // Ours is live: the candidate waits for its end, whatever its clock shows.
        let mine = request("k", "mine", TTL);
        let mine = until("our turn", async || {
            match store.acquire(&mine).await.unwrap() {
                Acquired::Granted(lease) => Some(lease),
                Acquired::Held(_) => None,
            }
        })
        .await;
        assert!(mine.token.0 > last, "after {last}");
        let mut process = Process::start(&redis.url(), &clock);
        let limit = BootClock.now() + TTL;
        while BootClock.now() < limit {
            let renewed = store.renew(&mine, TTL).await.unwrap();
            assert!(matches!(renewed, Renewed::Renewed(..)), "taken by {offset}");
            tokio::time::sleep(TTL / 10).await;
        }
        let token: u64 = tokio::task::block_in_place(|| process.says("token").parse().unwrap());
        assert!(token > mine.token.0, "{token} with a clock {offset} s off");
        let seen = held(&store, "k", "mine").await;
        assert_eq!((seen.token.0, seen.ttl), (token, TTL));
        assert!(seen.rest.unwrap() <= TTL);
        process.go_on();
        let renewed = tokio::task::block_in_place(|| process.says("renewed"));
        assert_eq!(renewed, "yes");
        // It is gone now, and its lease runs out by the server's clock.
        until("its end", async || {
            store.read(&key("k")).await.unwrap().is_none().then_some(())
        })
        .await;
        last = token;
    }
}
