//! The tower layer, in process and over a real connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use support::{Leader, assert_never_fenced, two_leaders};
use support::{assert_busy, assert_ended, assert_stale, assert_unreadable, from_docs};
use tenure::{Tenure, Token};
use tenure_fences::FenceError;
use tenure_fences::http::{CONTENT_TYPE, FenceLayer, HEADER, HttpFence, refusal, send_with};
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

/// A test that waits so long has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// A service that writes down who came, and answers when it may.
#[derive(Clone)]
struct Log {
    began: Arc<Mutex<Vec<String>>>,
    may_end: Arc<Semaphore>,
}

impl Log {
    fn new() -> Self {
        Self {
            began: Arc::default(),
            may_end: Arc::new(Semaphore::new(1 << 20)),
        }
    }

    /// One whose requests stay under way until they are told to end.
    fn slow() -> Self {
        Self {
            may_end: Arc::new(Semaphore::new(0)),
            ..Self::new()
        }
    }

    fn began(&self) -> Vec<String> {
        self.began.lock().unwrap().clone()
    }
}

impl Service<Request<String>> for Log {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let log = self.clone();
        Box::pin(async move {
            log.began.lock().unwrap().push(request.into_body());
            log.may_end.acquire().await.unwrap().forget();
            Ok(Response::new("done".to_owned()))
        })
    }
}

fn request(token: Option<&str>, body: &str) -> Request<String> {
    let mut request = Request::post("/jobs");
    if let Some(token) = token {
        request = request.header(HEADER, token);
    }
    request.body(body.to_owned()).unwrap()
}

fn from(tenure: &Tenure, body: &str) -> Request<String> {
    let mut request = request(None, body);
    send_with(tenure, request.headers_mut()).unwrap();
    request
}

async fn send(layer: &FenceLayer, log: &Log, request: Request<String>) -> Response<String> {
    let answer = layer.layer(log.clone()).call(request);
    let answer = tokio::time::timeout(LIMIT, answer).await;
    answer.expect("an answer in time").unwrap()
}

fn said(response: Response<String>) -> tenure_fences::Result<()> {
    match refusal(response.status(), response.body().as_bytes()) {
        Some(error) => {
            assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
            Err(error)
        }
        None => {
            assert_eq!(response.status(), StatusCode::OK);
            Ok(())
        }
    }
}

fn open(folder: &Path) -> HttpFence {
    HttpFence::open(folder.join("fences.json")).unwrap()
}

/// Waits until a condition holds, which others bring about.
async fn until(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, wait).await;
    waited.expect("it comes about in time");
}

#[tokio::test]
async fn an_old_leader_is_turned_away_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let log = Log::new();
    {
        let fence = open(folder.path());
        let layer = fence.layer("jobs").unwrap();
        assert_never_fenced(fence.seen("jobs"));
        said(send(&layer, &log, from(&old.tenure, "old")).await).unwrap();
        fence.raise(&new.tenure, "jobs").await.unwrap();
        assert_stale(
            said(send(&layer, &log, from(&old.tenure, "late")).await),
            7,
            9,
        );
        assert_eq!(fence.seen("jobs").unwrap(), Token(9));
    }
    let fence = open(folder.path());
    let layer = fence.layer("jobs").unwrap();
    let late = send(&layer, &log, from(&old.tenure, "late")).await;
    assert_eq!(late.status(), StatusCode::CONFLICT);
    assert_stale(said(late), 7, 9);
    said(send(&layer, &log, from(&new.tenure, "new")).await).unwrap();
    assert_eq!(log.began(), ["old", "new"]);
}

#[tokio::test]
async fn what_is_no_token_gets_an_answer_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let fence = open(folder.path());
    let layer = fence.layer("jobs").unwrap();
    let log = Log::new();
    let none = send(&layer, &log, request(None, "x")).await;
    assert_eq!(none.status(), StatusCode::PRECONDITION_REQUIRED);
    assert!(matches!(said(none), Err(FenceError::Missing { .. })));
    for bad in ["nine", "", "0", "-1", "1.5", "9007199254740992", "1, 2"] {
        let response = send(&layer, &log, request(Some(bad), "x")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{bad}");
        assert!(matches!(said(response), Err(FenceError::NoNumber { .. })));
    }
    let mut twice = request(Some("7"), "x");
    twice.headers_mut().append(HEADER, 9.into());
    let response = send(&layer, &log, twice).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert!(log.began().is_empty());
    assert_never_fenced(fence.seen("jobs"));
    // An answer of the service itself is none of the fence.
    assert!(refusal(StatusCode::CONFLICT, b"{\"detail\":\"taken\"}").is_none());
}

#[tokio::test]
async fn a_tenure_that_has_ended_sends_nothing() {
    let old = Leader::with_token(7).await;
    old.expire();
    let mut request = request(None, "late");
    assert_ended(send_with(&old.tenure, request.headers_mut()));
    assert!(request.headers().is_empty());
}

/// Check and write are one step: nobody gets between them.
#[tokio::test]
async fn a_newer_token_waits_for_older_requests_and_lets_no_more_in() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let fence = open(folder.path());
    let layer = fence.layer("jobs").unwrap();
    let log = Log::slow();
    let spawn = |request: Request<String>| {
        let (layer, log) = (layer.clone(), log.clone());
        tokio::spawn(async move { said(send(&layer, &log, request).await) })
    };
    // Requests of one token run side by side.
    let first = spawn(from(&old.tenure, "old 1"));
    let second = spawn(from(&old.tenure, "old 2"));
    until(|| log.began().len() == 2).await;
    let newer = spawn(from(&new.tenure, "new"));
    // From the moment that it came, no older one is let in: it is even on disk.
    until(|| fence.seen("jobs").is_ok_and(|seen| seen == Token(9))).await;
    assert_stale(spawn(from(&old.tenure, "late")).await.unwrap(), 7, 9);
    assert_eq!(log.began().len(), 2, "the newer one waits");
    log.may_end.add_permits(1);
    until(|| first.is_finished() || second.is_finished()).await;
    assert_eq!(log.began().len(), 2, "and still waits for the other");
    log.may_end.add_permits(2);
    newer.await.unwrap().unwrap();
    assert_eq!(log.began()[2..], ["new"]);
}

#[tokio::test]
async fn the_wait_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let fence = open(folder.path());
    let layer = fence.layer("jobs").unwrap();
    let log = Log::slow();
    let stuck = {
        let (layer, log) = (layer.clone(), log.clone());
        let request = from(&old.tenure, "stuck");
        tokio::spawn(async move { send(&layer, &log, request).await })
    };
    until(|| log.began().len() == 1).await;
    let hasty = fence.clone().wait(Duration::from_millis(50));
    let hasty = hasty.layer("jobs").unwrap();
    let response = send(&hasty, &log, from(&new.tenure, "new")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_busy(said(response));
    // The fence is up all the same, and the client that gives up frees the way.
    assert_stale(
        said(send(&layer, &log, from(&old.tenure, "late")).await),
        7,
        9,
    );
    stuck.abort();
    assert!(stuck.await.is_err());
    log.may_end.add_permits(1);
    said(send(&layer, &log, from(&new.tenure, "new")).await).unwrap();
    assert_eq!(log.began(), ["stuck", "new"]);
}

#[tokio::test]
async fn resources_are_apart_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let fence = open(folder.path()).resources_max(2);
    let layer = fence.layer_by(|request| {
        let path = request.uri.path().to_owned();
        (!request.method.is_safe()).then_some(path)
    });
    let log = Log::new();
    let to = |tenure: &Tenure, path: &str| {
        let mut request = from(tenure, path);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    said(send(&layer, &log, to(&new.tenure, "/a")).await).unwrap();
    said(send(&layer, &log, to(&old.tenure, "/b")).await).unwrap();
    let third = send(&layer, &log, to(&new.tenure, "/c")).await;
    assert_eq!(third.status(), StatusCode::INSUFFICIENT_STORAGE);
    assert!(third.body().contains("more than 2 resources"), "{third:?}");
    let long = format!("/{}", "x".repeat(600));
    let unlimited = open(tempfile::tempdir().unwrap().path());
    let by_path = unlimited.layer_by(|request| Some(request.uri.path().to_owned()));
    let response = send(&by_path, &log, to(&new.tenure, &long)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_stale(said(send(&layer, &log, to(&old.tenure, "/a")).await), 7, 9);
    // Reading needs no token.
    let mut read = request(None, "read");
    *read.method_mut() = http::Method::GET;
    assert_eq!(send(&layer, &log, read).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn one_file_is_for_one_fence_and_is_never_overwritten_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fences.json");
    let fence = HttpFence::open(&path).unwrap();
    let second = HttpFence::open(&path).unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    drop(fence);
    for garbage in [
        "",
        "[]",
        "{\"jobs\":\"9\"}",
        "{\"jobs\":0}",
        "{\"jobs\":9007199254740992}",
    ] {
        fs::write(&path, garbage).unwrap();
        assert_unreadable(HttpFence::open(&path).map(drop));
        assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
    }
}

/// A token that the disk does not take lets nobody pass.
#[tokio::test]
async fn what_is_not_on_disk_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let fence = open(folder.path());
    let layer = fence.layer("jobs").unwrap();
    let log = Log::new();
    said(send(&layer, &log, from(&old.tenure, "old")).await).unwrap();
    // The file that is written before it takes the other's place cannot be made.
    fs::create_dir(folder.path().join("fences.json.new")).unwrap();
    let response = send(&layer, &log, from(&new.tenure, "new")).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(fence.seen("jobs").unwrap(), Token(7));
    fs::remove_dir(folder.path().join("fences.json.new")).unwrap();
    said(send(&layer, &log, from(&new.tenure, "new")).await).unwrap();
    assert_eq!(log.began(), ["old", "new"]);
}

/// Over a real connection, with the text of the docs page as the client.
#[tokio::test]
async fn curl_and_axum() {
    let folder = tempfile::tempdir().unwrap();
    let fence = open(folder.path());
    let router = axum::Router::new()
        .route(
            "/jobs",
            axum::routing::post(|body: String| async move { format!("ran {body}") }),
        )
        .layer(fence.layer("jobs").unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jobs", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = from_docs("sh", "Tenure-Token");
    let curl = async |token: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script, "curl", "nightly"]);
        command.env("TENURE_TOKEN", token).env("URL", &url);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    };
    assert_eq!(curl("9").await, (true, "ran nightly".to_owned()));
    let (passed, text) = curl("7").await;
    assert!(!passed && text.contains("\"seen\":9"), "{text}");
    let (passed, text) = curl("").await;
    assert!(!passed && text.contains("The token is"), "{text}");
    assert_eq!(curl("9").await, (true, "ran nightly".to_owned()));
}
