//! A job runner over HTTP: the service turns away the orders of a leader that is out of
//! date, by the header `Tenure-Token`.
//!
//! Run it: `cargo run -p tenure-examples --bin http_jobs`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tenure::{Elector, ManualClock, MemoryStore, Settings, Tenure, Timing};
use tenure_fences::FenceError;
use tenure_fences::http::{HttpFence, refusal, send_with};

type Jobs = Arc<Mutex<Vec<String>>>;

/// The service that runs jobs, with the fence before it. Returns where it listens.
async fn serve(fence: &HttpFence, jobs: Jobs) -> anyhow::Result<String> {
    let run = move |job: String| async move {
        let mut jobs = jobs.lock().unwrap();
        jobs.push(job.clone());
        format!("ran {job}")
    };
    let router = Router::new()
        .route("/jobs", post(run))
        .layer(fence.layer("jobs")?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/jobs"))
}

/// The client side: whoever leads orders jobs.
struct Orders {
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    url: String,
}

impl Orders {
    async fn order(&self, tenure: &Tenure, job: &str) -> Result<String, FenceError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| FenceError::Resource(error);
        let body = Full::from(job.to_owned());
        let request = http::Request::post(&self.url).body(body);
        let mut request = request.map_err(|error| failed(error.into()))?;
        send_with(tenure, request.headers_mut())?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| failed(error.into()))?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| failed(error.into()))?.to_bytes();
        match refusal(status, &body) {
            Some(refused) => Err(refused),
            None => Ok(String::from_utf8_lossy(&body).into_owned()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let fence = HttpFence::open(folder.path().join("fences.json"))?;
    let jobs = Jobs::default();
    let url = serve(&fence, jobs.clone()).await?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let orders = Orders { client, url };

    let store = MemoryStore::new();
    let timing = Timing::with_ttl(Duration::from_secs(1));
    let settings = Settings::new("jobs")?.timing(timing);

    // The first leads, and is then frozen as a whole: its clock stands still too.
    let frozen = Elector::builder(store.clone(), settings.clone())
        .clock(ManualClock::new())
        .start()?;
    let old = frozen.elected().await?;
    println!("first: {}", orders.order(&old, "report 1").await?);

    // Its lease runs out, and the second orders the next job.
    let elector = Elector::start(store, settings)?;
    let tenure = elector.elected().await?;
    println!("second: {}", orders.order(&tenure, "report 2").await?);

    // The first goes on, in good faith, and the service answers 409.
    assert!(old.is_valid(), "it believes that it leads");
    let refused = orders.order(&old, "report 2 again").await.unwrap_err();
    println!("first, waking up late: {refused}");
    assert!(refused.is_over());

    println!("second: {}", orders.order(&tenure, "report 3").await?);
    assert_eq!(*jobs.lock().unwrap(), ["report 1", "report 2", "report 3"]);
    assert_eq!(fence.seen("jobs")?, tenure.token());
    elector.stop().await;
    Ok(())
}
