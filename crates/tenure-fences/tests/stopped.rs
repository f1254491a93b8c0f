//! A real old leader, stopped by SIGSTOP after its first write and continued after its
//! successor wrote, is turned away by each resource.
//!
//! Its clock stands still, as that of a machine that is frozen as a whole: asked, it still
//! says that it leads. So the fence alone stands between it and the data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rusqlite::Connection;
use tenure::{Elector, ManualClock, Settings, Tenure, Timing};
use tenure_fences::file::FileFence;
use tenure_fences::postgres::PostgresFence;
use tenure_fences::redis::RedisFence;
use tenure_fences::sqlite::SqliteFence;
use tenure_fences::{FenceError, Result};
use tenure_sqlite::SqliteStore;
use tenure_testbed::{Postgres, Redis, unique};

const CHILD: &str = "TENURE_FENCES_OLD_LEADER";

/// Where to write: what and where.
#[derive(Clone, Debug)]
struct Target {
    kind: String,
    place: String,
    name: String,
}

impl Target {
    async fn write(&self, tenure: &Tenure) -> Result<()> {
        let line = format!("{}\n", tenure.token());
        match self.kind.as_str() {
            "file" => FileFence::new(&self.place).append(tenure, line.as_bytes()),
            "sqlite" => {
                let mut connection = Connection::open(&self.place)?;
                connection.busy_timeout(Duration::from_secs(30))?;
                SqliteFence::init(&connection)?;
                let fence = SqliteFence::new(&self.name)?;
                let transaction = fence.begin(&mut connection, tenure)?;
                transaction.execute_batch("CREATE TABLE IF NOT EXISTS log (line TEXT)")?;
                transaction.execute("INSERT INTO log VALUES (?1)", [line.trim()])?;
                Ok(transaction.commit()?)
            }
            "postgres" => {
                let (mut client, connection) =
                    tokio_postgres::connect(&self.place, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                PostgresFence::init(&client).await?;
                let fence = PostgresFence::new(&self.name)?;
                let transaction = fence.begin(&mut client, tenure).await?;
                let Self { name, .. } = self;
                let token = line.trim();
                let write = format!(
                    "CREATE TABLE IF NOT EXISTS {name} (line text); INSERT INTO {name} VALUES ('{token}')"
                );
                transaction.batch_execute(&write).await?;
                Ok(transaction.commit().await?)
            }
            "redis" => {
                let client = redis::Client::open(self.place.as_str())?;
                let mut connection = client.get_multiplexed_async_connection().await?;
                let fence = RedisFence::new(format!("{}:fence", self.name))?;
                let mut push = redis::cmd("RPUSH");
                push.arg(&self.name).arg(line.trim());
                fence
                    .write(&mut connection, tenure, &[&self.name], &push)
                    .await
            }
            other => panic!("no such resource: {other}"),
        }
    }
}

fn settings() -> Settings {
    let timing = Timing::with_ttl(Duration::from_secs(2));
    Settings::new("stopped").unwrap().timing(timing)
}

/// The old leader. Only run by the tests below, in a process of its own.
#[tokio::test]
async fn old_leader() {
    let Ok(target) = env::var(CHILD) else {
        return;
    };
    let parts: Vec<&str> = target.split('|').collect();
    let [store, kind, place, name] = parts[..] else {
        panic!("{target}");
    };
    let target = Target {
        kind: kind.into(),
        place: place.into(),
        name: name.into(),
    };
    let elector = Elector::builder(SqliteStore::open(Path::new(store)).unwrap(), settings())
        .clock(ManualClock::new())
        .start()
        .unwrap();
    let tenure = elector.elected().await.unwrap();
    target.write(&tenure).await.unwrap();
    say(&format!("wrote with {}", tenure.token()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert!(tenure.is_valid(), "its clock stands still");
    match target.write(&tenure).await {
        Err(FenceError::Stale(stale)) => say(&format!("turned away by {}", stale.seen)),
        other => say(&format!("not turned away: {other:?}")),
    }
}

#[expect(clippy::print_stdout, reason = "this is how the tests hear of it")]
fn say(text: &str) {
    println!("child: {text}");
}

struct OldLeader {
    child: Child,
    stdin: ChildStdin,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl OldLeader {
    fn start(store: &Path, target: &Target) -> Self {
        let Target { kind, place, name } = target;
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "old_leader", "--nocapture"])
            .env(CHILD, format!("{}|{kind}|{place}|{name}", store.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines.map_while(std::io::Result::ok);
        let lines = lines.filter_map(|line| {
            let (_, said) = line.split_once("child: ")?;
            Some(said.to_owned())
        });
        Self {
            child,
            stdin,
            lines: Box::new(lines),
        }
    }

    fn says(&mut self) -> String {
        self.lines.next().expect("the old leader said nothing more")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        let status = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(status, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP));
    }

    fn go_on(&mut self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
        self.stdin.write_all(b"go\n").unwrap();
    }
}

impl Drop for OldLeader {
    fn drop(&mut self) {
        // A stopped one can be killed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn turned_away(target: Target) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("leases.db");
    let mut old = OldLeader::start(&store, &target);
    let wrote = old.says();
    let token = wrote.strip_prefix("wrote with ").unwrap().to_owned();
    old.stop();
    // Its lease runs out, and the next one leads and writes.
    let elector = Elector::start(SqliteStore::open(&store).unwrap(), settings()).unwrap();
    let tenure = elector.elected().await.unwrap();
    assert!(tenure.token().to_string() > token);
    target.write(&tenure).await.unwrap();
    old.go_on();
    assert_eq!(old.says(), format!("turned away by {}", tenure.token()));
    // And the leader goes on.
    target.write(&tenure).await.unwrap();
    elector.stop().await;
}

#[tokio::test]
async fn by_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("journal").display().to_string();
    let target = Target {
        kind: "file".into(),
        place: place.clone(),
        name: "journal".into(),
    };
    turned_away(target).await;
    assert_eq!(std::fs::read_to_string(place).unwrap().lines().count(), 3);
}

#[tokio::test]
async fn by_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("app.db").display().to_string();
    turned_away(Target {
        kind: "sqlite".into(),
        place,
        name: "log".into(),
    })
    .await;
}

#[tokio::test]
async fn by_postgres() {
    let Some(place) = Postgres::shared_url() else {
        return;
    };
    turned_away(Target {
        kind: "postgres".into(),
        place,
        name: unique("log"),
    })
    .await;
}

#[tokio::test]
async fn by_redis() {
    let Some(place) = Redis::shared_url() else {
        return;
    };
    turned_away(Target {
        kind: "redis".into(),
        place,
        name: unique("log"),
    })
    .await;
}
