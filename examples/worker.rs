//! A worker that acts only while it leads. Two replicas run here; in the middle the
//! leader is stopped, and the other goes on where it left off.
//!
//! Run it: `cargo run -p tenure-examples --bin worker`

use std::sync::Mutex;
use std::time::Duration;

use tenure::{Elector, Guarded, Settings, Timing};
use tenure_sqlite::SqliteStore;

/// What the workers share: who did which tick.
static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The replica's own loop: each turn it asks, and works only if it leads.
async fn replica(name: &'static str, elector: Elector) {
    loop {
        let worked = elector.run_if_leader(|tenure| async move {
            let mut done = DONE.lock().expect("no worker panics");
            done.push(name.to_owned());
            println!(
                "{name} leads with token {}: tick {}",
                tenure.token(),
                done.len()
            );
        });
        if let Guarded::CutOff(reason) = worked.await {
            println!("{name} lost the lead in the middle of its work: {reason}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn ticks_of(name: &str) -> usize {
    let done = DONE.lock().expect("no worker panics");
    done.iter().filter(|worker| *worker == name).count()
}

async fn until_worked(name: &str, ticks: usize) {
    while ticks_of(name) < ticks {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("leases.db"))?;
    let settings = Settings::new("billing/nightly")?.timing(Timing::fast());

    let first = Elector::start(store.clone(), settings.clone())?;
    first.elected().await?;
    let second = Elector::start(store, settings)?;
    tokio::spawn(replica("first", first.clone()));
    tokio::spawn(replica("second", second.clone()));

    until_worked("first", 3).await;
    assert_eq!(ticks_of("second"), 0, "only the leader works");

    println!("the first replica is stopped");
    first.stop().await;
    until_worked("second", 3).await;
    second.stop().await;

    let done = DONE.lock().expect("no worker panics");
    let changes = done.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(
        changes, 1,
        "the lead changed once, and nobody worked in between"
    );
    println!("one at a time: {done:?}");
    Ok(())
}
