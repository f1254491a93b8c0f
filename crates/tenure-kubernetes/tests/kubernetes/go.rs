//! The program with client-go's leaderelection, as a child whose lines are read.

#![allow(dead_code, reason = "the tests and the figures each use their part")]

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_testbed::built_for_kubernetes;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{LONG, Place};

/// One replica that elects by client-go.
pub struct Go {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// LeaseDuration, RenewDeadline and RetryPeriod.
#[derive(Clone, Copy)]
pub struct Timings(pub u64, pub u64, pub u64);

/// As quick as whole seconds allow; in milliseconds.
pub const QUICK: Timings = Timings(4000, 3000, 500);

impl Go {
    /// None if the program was not built, which is then said.
    pub fn start(
        place: &Place,
        kubeconfig: &str,
        name: &str,
        id: &str,
        timings: Timings,
    ) -> Option<Self> {
        let program = built_for_kubernetes("client-go-elect")?;
        let Timings(lease, renew, retry) = timings;
        let mut child = Command::new(program)
            .arg(format!("--kubeconfig={kubeconfig}"))
            .arg(format!("--namespace={}", place.namespace))
            .arg(format!("--name={name}"))
            .arg(format!("--id={id}"))
            .arg(format!("--lease={lease}ms"))
            .arg(format!("--renew={renew}ms"))
            .arg(format!("--retry={retry}ms"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self { child, lines })
    }

    /// On the server itself, as the administrator.
    pub fn on(place: &Place, name: &str, id: &str, timings: Timings) -> Option<Self> {
        let token = place.kubernetes.admin_token();
        let kubeconfig = place.kubeconfig(place.address(), token);
        Self::start(place, &kubeconfig, name, id, timings)
    }

    /// Waits for this line; others may come before it.
    pub async fn says(&mut self, wanted: &str) {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line == wanted {
                    return true;
                }
            }
            false
        };
        let found = timeout(LONG, found).await;
        assert!(found.unwrap_or(false), "client-go does not say {wanted:?}");
    }

    /// How many HTTP requests it has sent so far.
    pub async fn requests(&mut self) -> u64 {
        self.signal(Signal::SIGUSR1);
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if let Some(number) = line.strip_prefix("requests ") {
                    return number.parse().unwrap();
                }
            }
            panic!("client-go ended before it told its requests");
        };
        timeout(LONG, found).await.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }
}

pub fn ttl() -> Duration {
    Duration::from_millis(QUICK.0)
}
