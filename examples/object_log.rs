//! A log in a bucket with a single writer: segments under names of their own, and one
//! fenced manifest that says which of them count.
//!
//! Run it: `cargo run -p tenure-examples --bin object_log`. The bucket is one in memory;
//! any other of the crate object_store that compares will do.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tenure::{Elector, ManualClock, MemoryStore, Settings, Tenure, Timing};
use tenure_fences::FenceError;
use tenure_fences::object::{ObjectFence, ObjectWriter};

/// The log as its one writer sees it.
struct Log {
    bucket: Arc<dyn ObjectStore>,
    manifest: ObjectWriter,
    token: u64,
    segments: Vec<String>,
}

impl Log {
    /// Takes the log over: from here on no older writer adds to it.
    async fn take_over(bucket: Arc<dyn ObjectStore>, tenure: &Tenure) -> Result<Self, FenceError> {
        let fence = ObjectFence::new(bucket.clone(), "log/manifest");
        let manifest = fence.writer(tenure).await?;
        let text = String::from_utf8_lossy(manifest.content());
        let segments = text.lines().map(str::to_owned).collect();
        Ok(Self {
            bucket,
            manifest,
            token: tenure.token().0,
            segments,
        })
    }

    /// A segment counts once the manifest names it. The token in its name keeps an old
    /// writer from overwriting one of its successor's.
    async fn append(&mut self, entry: &str) -> anyhow::Result<()> {
        let name = format!("log/{:06}-{}", self.segments.len(), self.token);
        let path = Path::from(name.as_str());
        self.bucket.put(&path, entry.to_owned().into()).await?;
        self.segments.push(name);
        let put = self.manifest.put(self.segments.join("\n")).await;
        if put.is_err() {
            self.segments.pop();
        }
        Ok(put?)
    }
}

/// What a reader sees.
async fn read(bucket: &Arc<dyn ObjectStore>) -> anyhow::Result<Vec<String>> {
    let manifest = ObjectFence::new(bucket.clone(), "log/manifest")
        .read()
        .await?;
    let manifest = manifest.unwrap_or_default();
    let mut entries = Vec::new();
    for name in std::str::from_utf8(&manifest)?.lines() {
        let entry = bucket.get(&Path::from(name)).await?.bytes().await?;
        entries.push(String::from_utf8(entry.to_vec())?);
    }
    Ok(entries)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = MemoryStore::new();
    let timing = Timing::with_ttl(Duration::from_secs(1));
    let settings = Settings::new("log")?.timing(timing);

    // The first writer leads, and is then frozen as a whole: its clock stands still too.
    let frozen = Elector::builder(store.clone(), settings.clone())
        .clock(ManualClock::new())
        .start()?;
    let old = frozen.elected().await?;
    let mut first = Log::take_over(bucket.clone(), &old).await?;
    first.append("one, by the first").await?;
    first.append("two, by the first").await?;

    // Its lease runs out, and the second takes over.
    let elector = Elector::start(store, settings)?;
    let tenure = elector.elected().await?;
    let mut second = Log::take_over(bucket.clone(), &tenure).await?;

    // The first goes on, in good faith, and the bucket says no.
    assert!(old.is_valid(), "it believes that it leads");
    let refused = first.append("three, by the first").await.unwrap_err();
    println!("first, waking up late: {refused}");
    second.append("three, by the second").await?;

    let entries = read(&bucket).await?;
    for entry in &entries {
        println!("{entry}");
    }
    assert_eq!(
        entries,
        [
            "one, by the first",
            "two, by the first",
            "three, by the second"
        ]
    );
    elector.stop().await;
    Ok(())
}
