//! Candidates whose clocks are an hour off: it does not matter, because nobody asks them.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]
#![allow(clippy::print_stdout, reason = "how a process tells the other")]

mod support;

use std::process::Command;
use std::time::{Duration, SystemTime};

use tenure::{Acquired, BootClock, Clock, Loss, Renewed, Store};
use tenure_testbed::{ClockFault, PostgresOptions};

use support::{Bed, LONG, blocking, granted, key, request, soon, until};

const BED: &str = "TENURE_TEST_BED";
const HOUR: i64 = 3600;

/// Not a test of its own: the candidate whose clock is wrong.
#[test]
fn another_process() {
    let Ok(url) = std::env::var(BED) else { return };
    let (_, table) = url.split_once("table=").unwrap();
    let bed = Bed {
        url: url.clone(),
        table: table.to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let store = bed.store();
        let wall = BootClock
            .wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        println!("\nwall {}", wall.as_secs());
        // It is held, and stays held for as long as the server's clock says so.
        let Acquired::Held(seen) = store.acquire(&request("k", "wrong", LONG)).await.unwrap()
        else {
            panic!("it took a live lease");
        };
        println!("rest {}", seen.rest.unwrap().as_millis());
        let sample = request("k", "wrong", Duration::from_secs(2));
        let lease = until("the end of the lease", async || {
            match store.acquire(&sample).await.unwrap() {
                Acquired::Granted(lease) => Some(lease),
                Acquired::Held(_) => None,
            }
        })
        .await;
        let Renewed::Renewed(renewed, _) = store.renew(&lease, LONG).await.unwrap() else {
            panic!("it could not renew");
        };
        println!("token {}", renewed.token);
    });
}

async fn candidate(bed: &Bed, offset: i64) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "another_process", "--nocapture"])
        .env(BED, &bed.url);
    ClockFault::offset(offset).apply(&mut command);
    let output = soon("the candidate", blocking(move || command.output().unwrap())).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn said(text: &str, word: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_else(|| panic!("no {word} in {text}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn candidate_whose_clock_is_an_hour_off_waits_like_anybody() {
    if !ClockFault::is_available() {
        return;
    }
    for offset in [HOUR, -HOUR] {
        let Some(bed) = Bed::shared().await else {
            return;
        };
        let store = bed.store();
        let ttl = Duration::from_secs(3);
        let sent = BootClock.now();
        let first = granted(&store, "k", "right", ttl).await;
        let text = candidate(&bed, offset).await;
        assert!(BootClock.now() - sent >= ttl, "it did not wait: {text}");
        let here = BootClock
            .wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let off = said(&text, "wall ") - i64::try_from(here.as_secs()).unwrap();
        assert!((off - offset).abs() < 60, "its clock is really off: {off}");
        assert!((0..=3000).contains(&said(&text, "rest ")), "{text}");
        let token = said(&text, "token ");
        assert!(token > i64::try_from(first.token.0).unwrap());
        let now = i64::try_from(here.as_micros()).unwrap();
        assert!(
            (token - now).abs() < 60_000_000,
            "by the server's clock: {token}, {now}"
        );
        let lost = store.renew(&first, ttl).await.unwrap();
        assert!(
            matches!(lost, Renewed::Lost(Loss::Superseded { .. })),
            "{lost:?}"
        );
    }
}

/// The server's own clock may show anything, as long as it runs.
#[tokio::test]
async fn server_whose_clock_is_an_hour_off() {
    for offset in [HOUR, -HOUR] {
        let options = PostgresOptions::new().clock(ClockFault::offset(offset));
        let Some(server) = blocking(move || options.start()).await else {
            return;
        };
        let bed = Bed::on(&server).await;
        let store = bed.store();
        let ttl = Duration::from_secs(1);
        let sent = BootClock.now();
        let first = granted(&store, "k", "a", ttl).await;
        let seen = store.read(&key("k")).await.unwrap().unwrap();
        assert!(seen.rest.unwrap() <= ttl);
        let sample = request("k", "b", LONG);
        let next = until("the end of the lease", async || {
            match store.acquire(&sample).await.unwrap() {
                Acquired::Granted(lease) => Some(lease),
                Acquired::Held(_) => None,
            }
        })
        .await;
        assert!(BootClock.now() - sent >= ttl);
        assert!(next.token > first.token);
    }
}
