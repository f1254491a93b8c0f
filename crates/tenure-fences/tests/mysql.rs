//! MySQL-style SQL, as it stands on the docs page, on a real MariaDB.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use support::from_docs;
use tenure_testbed::wait_until;

/// A private server on a socket in a folder of its own.
struct MariaDb {
    folder: tempfile::TempDir,
    keeper: Child,
}

/// The server ends when the input does, so that it never outlives the test.
const KEEPER: &str = r#"mariadbd --no-defaults --datadir="$1/data" --socket="$1/socket" --pid-file="$1/pid" \
  --skip-networking --user="$(id -un)" >"$1/log" 2>&1 </dev/null & server=$!
cat >/dev/null; kill -KILL $server; wait $server 2>/dev/null"#;

impl MariaDb {
    fn start() -> Option<Self> {
        let path = "PATH=$PATH:/usr/sbin:/usr/local/sbin";
        let found = Command::new("sh")
            .args(["-c", &format!("{path} command -v mariadbd && command -v mariadb-install-db && command -v mariadb")])
            .output()
            .unwrap();
        if !found.status.success() {
            let text = "no mariadbd on this machine: install it (on Debian: apt-get install mariadb-server-core mariadb-client-core)";
            let ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
            assert!(!ci, "{text}");
            let _ = writeln!(std::io::stderr(), "NOT RUN: {text}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let made = Command::new("mariadb-install-db")
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(["--skip-name-resolve", "--user=root"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let keeper = Command::new("sh")
            .args(["-c", &format!("export {path}\n{KEEPER}"), "keeper"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let server = Self { folder, keeper };
        wait_until("MariaDB", Duration::from_secs(60), || {
            server.try_sql("SELECT 1").ok()
        });
        server.sql("CREATE DATABASE app");
        Some(server)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        let socket = self.folder.path().join("socket");
        command.arg("--no-defaults").arg("--user=root");
        command.arg(format!("--socket={}", socket.display()));
        command.args(["--batch", "--skip-column-names", "--unbuffered"]);
        command
    }

    fn try_sql(&self, sql: &str) -> Result<String, String> {
        let mut command = self.client();
        if !sql.starts_with("CREATE DATABASE") && !sql.starts_with("SELECT 1") {
            command.arg("app");
        }
        let output = command.arg("--execute").arg(sql).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn sql(&self, sql: &str) -> String {
        self.try_sql(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn session(&self) -> Session {
        let mut command = self.client();
        let command = command
            .arg("app")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Session {
            child,
            stdin,
            stdout,
        }
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// One connection whose transaction stays open between two statements.
struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    /// Returns when the server has run it.
    fn run(&mut self, sql: &str) {
        writeln!(self.stdin, "{sql}; SELECT 'ran';").unwrap();
        let mut line = String::new();
        while line.trim() != "ran" {
            line.clear();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "{sql}: the session has ended");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_with(token: &str) -> String {
    from_docs("sql", "-- MySQL\nSTART").replace("42", token)
}

#[test]
fn the_text_on_the_docs_page_is_a_fence() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql(&from_docs("sql", "-- MySQL\nCREATE"));
    server.sql("CREATE TABLE outbox (id int PRIMARY KEY, sent_by bigint); INSERT INTO outbox VALUES (1, NULL)");
    let by = || server.sql("SELECT sent_by FROM outbox");
    for (token, then) in [
        ("7", "7"),
        ("7", "7"),
        ("9", "9"),
        ("7", "9"),
        ("9", "9"),
        ("10", "10"),
        ("9", "10"),
    ] {
        server.sql(&write_with(token));
        assert_eq!(by(), then, "after a write with {token}");
    }
    assert_eq!(server.sql("SELECT token FROM tenure_fences"), "10");

    // Check and write are one step: a newer one waits until the older transaction has ended.
    let steps = write_with("11");
    let steps: Vec<&str> = steps
        .split(';')
        .map(str::trim)
        .filter(|step| !step.is_empty())
        .collect();
    let [begin, raise, write, commit] = steps[..] else {
        panic!("{steps:?}");
    };
    let begin = begin.replace("-- MySQL\n", "");
    let mut old = server.session();
    old.run(&begin);
    old.run(raise);
    let client = server
        .client()
        .args(["app", "--execute", &write_with("12")])
        .spawn()
        .unwrap();
    // Not by innodb_trx, which stands still for those who ask often.
    wait_until("the newer one to wait", Duration::from_secs(60), || {
        let status = server.sql("SHOW ENGINE INNODB STATUS");
        status.contains("LOCK WAIT").then_some(())
    });
    old.run(write);
    old.run(commit);
    assert!(client.wait_with_output().unwrap().status.success());
    assert_eq!(by(), "12");

    // And an older one that waited for its successor finds nothing to do, also where its
    // transaction had read before: the write looks at what is there now.
    let mut new = server.session();
    let mut late = server.session();
    late.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    late.run(&begin);
    late.run("SELECT token FROM tenure_fences");
    new.run(&begin);
    new.run(&raise.replace("11", "13"));
    new.run(&write.replace("11", "13"));
    new.run(commit);
    late.run(raise);
    late.run(write);
    late.run(commit);
    assert_eq!(by(), "13");
}
