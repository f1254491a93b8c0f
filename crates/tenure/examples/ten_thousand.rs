//! Ten thousand electors in one process, on the memory store: what each costs.
//!
//! `cargo run --release -p tenure --example ten_thousand`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Duration;

use tenure::{BootClock, Clock, Elector, MemoryStore, Settings, Timing};

const ELECTORS: usize = 10_000;
const WATCHED: Duration = Duration::from_secs(10);

/// Resident memory in KiB and processor time in clock ticks of 10 ms, from /proc.
fn usage() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let resident = resident.split_whitespace().nth(1)?.parse().ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((resident, ticks))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> tenure::Result<()> {
    let store = MemoryStore::new();
    let timing = Timing::with_ttl(Duration::from_secs(30));
    let before = usage();
    let began = BootClock.now();
    let mut electors = Vec::with_capacity(ELECTORS);
    for n in 0..ELECTORS {
        let settings = Settings::new(format!("key/{n}"))?.timing(timing);
        electors.push(Elector::start(store.clone(), settings)?);
    }
    for elector in &electors {
        elector.elected().await?;
    }
    println!(
        "{ELECTORS} electors lead after {:.2?}",
        BootClock.now() - began
    );

    let started = usage();
    tokio::time::sleep(WATCHED).await;
    let leading = electors.iter().filter(|e| e.is_leader()).count();
    println!("{leading} of them still lead {WATCHED:?} later");
    if let (Some(before), Some(started), Some(now)) = (before, started, usage()) {
        let bytes = (now.0.saturating_sub(before.0)) * 1024 / ELECTORS as u64;
        let millis = (now.1 - started.1) * 10;
        let renewals = ELECTORS as u64;
        println!("{bytes} bytes of memory for each");
        println!(
            "{millis} ms of processor time in {WATCHED:?}, with about {renewals} renewals: {:.1} % of one core",
            millis as f64 / WATCHED.as_millis() as f64 * 100.0
        );
    }
    let began = BootClock.now();
    for elector in &electors {
        elector.stop().await;
    }
    println!(
        "all stopped and released after {:.2?}",
        BootClock.now() - began
    );
    assert_eq!(leading, ELECTORS);
    Ok(())
}
