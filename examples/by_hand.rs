//! A lease held by hand, with its token: acquire, check, release, and hear of a loss.
//!
//! Run it: `cargo run -p tenure-examples --bin by_hand`

use std::sync::mpsc;
use std::time::Duration;

use tenure::{Fence, MemoryStore, PlainLease, Settings, Timing};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = MemoryStore::new();
    let settings = Settings::new("printer")?.timing(Timing::with_ttl(Duration::from_secs(2)));
    let mine = PlainLease::new(store.clone(), settings.clone());
    let yours = PlainLease::new(store.clone(), settings);

    let (tell, lost) = mpsc::channel();
    let subscription = mine.on_lost(move |reason| tell.send(reason.clone()).unwrap_or(()));

    let fence = Fence::new(); // at the printer: it turns away whoever is out of date
    let token = mine.acquire_with_token().await?.expect("nobody has it yet");
    fence.admit(token)?;
    println!(
        "mine, with token {token}; can you have it? {}",
        yours.acquire().await?
    );
    assert!(mine.check_alive() && !yours.check_alive());

    mine.release().await;
    let newer = yours.acquire_with_token().await?.expect("it was released");
    fence.admit(newer)?;
    println!(
        "yours, with token {newer}; and my old token? {}",
        fence.admit(token).unwrap_err()
    );
    yours.release().await;

    assert!(mine.acquire().await?);
    store.delete(&tenure::Key::new("printer")?); // an operator deletes the record
    println!("lost: {}", lost.recv_timeout(Duration::from_secs(10))?);
    assert!(!mine.check_alive());
    subscription.unsubscribe();
    Ok(())
}
