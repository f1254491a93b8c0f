//! A bootstrap that one replica runs and the others skip, by a lease service: the
//! caller keeps its own loop, nothing is renewed behind its back.
//!
//! Run it: `cargo run -p tenure-examples --bin bootstrap`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::LeaseService;
use tenure_sqlite::SqliteStore;
use tokio::sync::Barrier;

static MIGRATIONS: AtomicUsize = AtomicUsize::new(0);

async fn start_replica(
    leases: LeaseService,
    holder: String,
    all: &Barrier,
) -> tenure::Result<bool> {
    let ttl = Duration::from_secs(30);
    let granted = leases.try_acquire("my-app-bootstrap", &holder, ttl).await?;
    // All have asked before the first is done: this is the moment of a deployment.
    all.wait().await;
    let Some(grant) = granted else {
        println!("{holder}: another replica owns the bootstrap lease, so I skip it");
        return Ok(false);
    };
    println!(
        "{holder}: I run the bootstrap, with token {}",
        grant.token()
    );
    MIGRATIONS.fetch_add(1, Ordering::SeqCst);
    leases.release("my-app-bootstrap", &holder).await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("leases.db"))?;
    let leases = LeaseService::new(store);
    let all = Barrier::new(3);
    let replica = |n: u32| start_replica(leases.clone(), format!("replica-{n}"), &all);
    let (a, b, c) = tokio::try_join!(replica(1), replica(2), replica(3))?;
    let ran = [a, b, c].into_iter().filter(|ran| *ran).count();
    assert_eq!((ran, MIGRATIONS.load(Ordering::SeqCst)), (1, 1));
    println!("one replica ran it, two skipped it");
    Ok(())
}
