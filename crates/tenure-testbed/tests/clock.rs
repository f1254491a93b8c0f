//! Wrong clocks reach the programs that they are meant for.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::process::Command;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use tenure_testbed::{ClockFault, PostgresOptions, Redis, RedisOptions, Reply};

const CHILD: &str = "TENURE_TESTBED_CLOCK_CHILD";

#[expect(clippy::disallowed_methods, reason = "the test is about this clock")]
fn now() -> f64 {
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn assert_near(shown: f64, wanted: f64) {
    assert!((shown - wanted).abs() < 30.0, "{shown} for {wanted}");
}

/// Only as the child of the test below: prints what Rust's clock shows.
#[test]
fn child() {
    use std::io::Write;
    if std::env::var_os(CHILD).is_some() {
        writeln!(std::io::stdout(), "SHOWS {}", now()).unwrap();
    }
}

#[test]
fn a_rust_program_sees_an_hour_more_or_less() {
    if !ClockFault::is_available() {
        return;
    }
    for seconds in [3600, -3600] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, "1");
        ClockFault::offset(seconds).apply(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let shown = text.split_once("SHOWS ").unwrap().1;
        let shown: f64 = shown.split_whitespace().next().unwrap().parse().unwrap();
        assert_near(shown, now() + seconds as f64);
    }
}

#[test]
fn servers_see_an_hour_more() {
    let fault = || ClockFault::offset(3600);
    if let Some(pg) = PostgresOptions::new().clock(fault()).start() {
        let shown = pg.sql("SELECT extract(epoch FROM clock_timestamp())");
        assert_near(shown.parse().unwrap(), now() + 3600.0);
    }
    if let Some(redis) = RedisOptions::new().clock(fault()).start() {
        assert_near(time(&redis), now() + 3600.0);
    }
}

#[test]
fn a_clock_at_ten_times_the_rate_runs_away() {
    let fault = ClockFault::offset(0).rate(10.0);
    let Some(redis) = RedisOptions::new().clock(fault).start() else {
        return;
    };
    let before = time(&redis);
    thread::sleep(Duration::from_millis(300));
    let took = time(&redis) - before;
    assert!(took > 2.0, "{took} s in more than 0.3 s");
}

fn time(redis: &Redis) -> f64 {
    let Reply::List(parts) = redis.command(&["TIME"]) else {
        panic!("TIME gives no list");
    };
    let part = |index: usize| parts[index].text().unwrap().parse::<f64>().unwrap();
    part(0) + part(1) / 1e6
}
