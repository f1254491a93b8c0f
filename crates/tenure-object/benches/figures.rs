//! Measures the store beside the bare client on a private MinIO, by turns in one run:
//! `cargo bench -p tenure-object -- [ROUNDS]`.

#![allow(clippy::unwrap_used, reason = "a measurement that fails is none")]

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion};
use tenure::{
    AcquireRequest, Acquired, Attempt, BootClock, Clock, Holder, Key, Lease, Renewed, Store,
};
use tenure_net::{Tls, Verify};
use tenure_object::{BucketStore, Connector, ObjectOptions};
use tenure_testbed::Minio;

struct Bare {
    client: Arc<dyn ObjectStore>,
    path: Path,
    last: UpdateVersion,
    body: Vec<u8>,
    writes: u64,
}

impl Bare {
    async fn start(minio: &Minio) -> Self {
        let key = minio.root_key();
        let tls = Tls::new().client_config(Verify::Full).unwrap();
        let limit = Duration::from_secs(30);
        let client = AmazonS3Builder::new()
            .with_bucket_name(minio.bucket())
            .with_endpoint(minio.endpoint())
            .with_access_key_id(key.id)
            .with_secret_access_key(key.secret)
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .with_http_connector(Connector::new(tls, limit, limit))
            .build();
        let mut bare = Self {
            client: Arc::new(client.unwrap()),
            path: Path::parse("bare.json").unwrap(),
            last: UpdateVersion {
                e_tag: None,
                version: None,
            },
            // As long as a record.
            body: vec![b'x'; 330],
            writes: 0,
        };
        bare.put(PutMode::Create).await;
        bare
    }

    /// One write under a condition, with other bytes each time.
    async fn put(&mut self, mode: PutMode) {
        self.writes += 1;
        self.body[..8].copy_from_slice(&self.writes.to_be_bytes());
        let options = PutOptions::from(mode);
        let body = PutPayload::from(self.body.clone());
        let done = self
            .client
            .put_opts(&self.path, body, options)
            .await
            .unwrap();
        self.last = UpdateVersion {
            e_tag: done.e_tag,
            version: done.version,
        };
    }

    async fn update(&mut self) {
        let mode = PutMode::Update(self.last.clone());
        self.put(mode).await;
    }

    async fn get(&self) {
        let answer = self.client.get_opts(&self.path, Default::default()).await;
        answer.unwrap().bytes().await.unwrap();
    }
}

async fn timed(times: &mut Vec<Duration>, work: impl Future<Output = ()>) {
    let began = BootClock.now();
    work.await;
    times.push(BootClock.now() - began);
}

fn line(what: &str, ours: &mut [Duration], bare: &mut [Duration]) -> String {
    ours.sort_unstable();
    bare.sort_unstable();
    let at = |times: &[Duration], part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
    format!(
        "| {what} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
        at(ours, 50),
        at(ours, 99),
        at(bare, 50),
        at(bare, 99),
        at(ours, 50) / at(bare, 50),
    )
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` asks only whether it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds = std::env::args().find_map(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1000);
    let Some(minio) = Minio::start() else { return };
    let options = ObjectOptions::from_url(&minio.url("figures")).unwrap();
    let store = BucketStore::open(options).unwrap();
    let mut bare = Bare::start(&minio).await;
    let key = Key::new("held").unwrap();
    let request = |key: &Key, n: u64| AcquireRequest {
        key: key.clone(),
        holder: Holder::new("figures").unwrap(),
        ttl: Duration::from_secs(30),
        attempt: Attempt::first(n),
        ended: None,
    };
    let granted = |answer: tenure::Result<Acquired>| -> Lease {
        match answer.unwrap() {
            Acquired::Granted(lease) => lease,
            held => panic!("{held:?}"),
        }
    };
    let mut lease = granted(store.acquire(&request(&key, 0)).await);
    let (mut renew, mut put) = (Vec::new(), Vec::new());
    let (mut both, mut bare_both) = (Vec::new(), Vec::new());
    let free = Key::new("free").unwrap();
    for round in 1..=rounds {
        timed(&mut renew, async {
            match store.renew(&lease, lease.ttl).await.unwrap() {
                Renewed::Renewed(next, _) => lease = next,
                lost => panic!("{lost:?}"),
            }
        })
        .await;
        timed(&mut put, bare.update()).await;
        timed(&mut both, async {
            let lease = granted(store.acquire(&request(&free, round)).await);
            store.release(&lease).await.unwrap();
        })
        .await;
        timed(&mut bare_both, async {
            bare.get().await;
            bare.update().await;
            bare.update().await;
        })
        .await;
    }
    let mut text = format!(
        "{rounds} rounds by turns on a private MinIO over loopback; milliseconds\n\n\
         | operation | ours, median | p99 | bare client, median | p99 | ratio |\n|---|---|---|---|---|---|\n"
    );
    text += &line("renew, beside one conditional PUT", &mut renew, &mut put);
    text += &line(
        "acquire + release, beside GET and two conditional PUTs",
        &mut both,
        &mut bare_both,
    );
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}
