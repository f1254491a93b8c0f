//! Answers that are lost on their way, and requests that are counted: a real server behind a
//! client that loses what the test tells it to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tenure::{Acquired, ErrorKind, Notice, Released, Renewed, Store};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore, kube};
use tower::service_fn;

use crate::support::{Place, held, key, request, take};

/// A client of one's own over the real one.
#[derive(Clone, Default)]
struct Fault {
    /// The methods of all requests, in their order.
    sent: Arc<Mutex<Vec<Method>>>,
    /// The next PUT goes through and its answer is lost.
    lose_put: Arc<AtomicBool>,
    /// Watches are answered with these bodies instead: what no real server says on demand.
    watches: Arc<Mutex<VecDeque<String>>>,
}

impl Fault {
    async fn store(&self, place: &Place) -> KubernetesStore {
        let path = place.kubeconfig(place.address(), place.kubernetes.admin_token());
        let file = Kubeconfig::read_from(path).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config = config.unwrap();
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let real = Client::try_from(config).unwrap();
        let fault = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (fault, real) = (fault.clone(), real.clone());
            async move { fault.answer(&real, request).await }
        });
        let client = Client::new(service, namespace);
        KubernetesStore::with_client(client, KubernetesOptions::new()).unwrap()
    }

    async fn answer(
        &self,
        real: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let put = request.method() == Method::PUT;
        self.sent.lock().unwrap().push(request.method().clone());
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|q| q.contains("watch=true"));
        let made = self.watches.lock().unwrap().pop_front();
        if let (true, Some(body)) = (is_watch, made) {
            return Ok(Response::new(Body::from(body.into_bytes())));
        }
        let answer = real.send(request).await?;
        if put && self.lose_put.swap(false, Ordering::SeqCst) {
            return Err(kube::Error::Service("the connection broke".into()));
        }
        Ok(answer)
    }

    fn take_sent(&self) -> Vec<Method> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_is_unknown_and_found_again() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let fault = Fault::default();
    let store = fault.store(&place).await;
    let request = request("lost", "me", 600);
    fault.lose_put.store(true, Ordering::SeqCst);
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.may_have_worked(), "it went through");
    let seen = held(&place.store(), "lost").await;
    assert_eq!(seen.attempt, Some(request.attempt));
    match store.acquire(&request).await.unwrap() {
        Acquired::Granted(lease) => assert_eq!(lease.token, seen.token, "one attempt, one tenure"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_renewal_and_a_release_whose_answers_are_lost_can_be_repeated() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let fault = Fault::default();
    let store = fault.store(&place).await;
    let lease = take(&store, "again", "me").await;
    fault.lose_put.store(true, Ordering::SeqCst);
    let error = store
        .renew(&lease, Duration::from_secs(9))
        .await
        .unwrap_err();
    assert!(error.may_have_worked());
    // The version that we know is old now: holder and token count.
    let renewed = store.renew(&lease, Duration::from_secs(9)).await.unwrap();
    let Renewed::Renewed(renewed, _) = renewed else {
        panic!("{renewed:?}");
    };
    fault.lose_put.store(true, Ordering::SeqCst);
    assert!(store.release(&renewed).await.unwrap_err().may_have_worked());
    assert_eq!(store.release(&renewed).await.unwrap(), Released::NotHeld);
    assert_eq!(store.read(&key("again")).await.unwrap(), None);
}

/// What is billed: a renewal is one request, also after somebody else's; so is a look.
#[tokio::test]
async fn a_renewal_is_one_request_and_a_refused_acquire_too() {
    let Some(place) = Place::shared().await else {
        return;
    };
    let fault = Fault::default();
    let store = fault.store(&place).await;
    let mut lease = take(&store, "cheap", "me").await;
    assert_eq!(fault.take_sent(), [Method::GET, Method::POST, Method::PUT]);
    for _ in 0..3 {
        let renewed = store.renew(&lease, Duration::from_secs(600)).await.unwrap();
        let Renewed::Renewed(next, _) = renewed else {
            panic!("{renewed:?}");
        };
        lease = next;
        assert_eq!(fault.take_sent(), [Method::PUT]);
    }
    held(&store, "cheap").await;
    assert_eq!(fault.take_sent(), [Method::GET]);
    // Another wrote in between: the comparison fails, it is read and written again.
    let patch = serde_json::json!({ "metadata": { "labels": { "a": "b" } } });
    place.patch("cheap", patch).await;
    let renewed = store.renew(&lease, Duration::from_secs(600)).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)));
    assert_eq!(fault.take_sent(), [Method::PUT, Method::GET, Method::PUT]);
    let labels = &place.lease("cheap").await["metadata"]["labels"];
    assert_eq!(labels["a"], "b", "nothing of theirs was overwritten");
    let Renewed::Renewed(lease, _) = renewed else {
        return;
    };
    store.release(&lease).await.unwrap();
    assert_eq!(fault.take_sent(), [Method::PUT]);
    take(&store, "cheap", "me").await;
    assert_eq!(fault.take_sent(), [Method::GET, Method::PUT]);
}

/// 410 in the middle of a watch, an answer that is cut, one that is no JSON: the stream
/// ends, and a new one works. A mock says these, because no real server does on demand.
#[tokio::test]
async fn a_watch_that_the_server_ends_with_410_ends_and_can_be_begun_anew() {
    use futures_util::StreamExt as _;
    let Some(place) = Place::shared().await else {
        return;
    };
    let fault = Fault::default();
    let store = fault.store(&place).await;
    let lease = take(&store, "gone", "me").await;
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#;
    for body in [gone, "{\"type\":\"ADDED\",\"obj", "hello\n", ""] {
        fault.watches.lock().unwrap().push_back(body.to_owned());
        let mut notices = store.watch(&lease.key).await.unwrap();
        let next = tokio::time::timeout(crate::support::LONG, notices.next()).await;
        assert_eq!(next.unwrap(), None, "{body}");
    }
    // A bookmark is no change, and a stream that ends after it has begun is begun again.
    let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{}}\n";
    fault.watches.lock().unwrap().push_back(bookmark.to_owned());
    let mut notices = store.watch(&lease.key).await.unwrap();
    let next = tokio::time::timeout(crate::support::LONG, notices.next()).await;
    assert!(matches!(next.unwrap(), Some(Notice::Held(seen)) if seen.token == lease.token));
}

/// Deleted and made again by one who counts from the beginning, while the watch was begun
/// anew: the smaller token is a reason to look. A mock, because a real server would have to
/// end the watch at that moment.
#[tokio::test]
async fn a_record_that_was_made_anew_behind_a_watch_is_a_reason_to_look() {
    use futures_util::StreamExt as _;
    let Some(place) = Place::shared().await else {
        return;
    };
    let fault = Fault::default();
    let store = fault.store(&place).await;
    let lease = take(&store, "anew", "me").await;
    let ours = place.lease("anew").await;
    let mut other = ours.clone();
    other["spec"]["holderIdentity"] = "go".into();
    other["metadata"]["annotations"] = serde_json::Value::Null;
    for object in [ours, other] {
        let event = serde_json::json!({ "type": "ADDED", "object": object });
        let body = format!("{event}\n");
        fault.watches.lock().unwrap().push_back(body);
    }
    let mut notices = store.watch(&lease.key).await.unwrap();
    let first = tokio::time::timeout(crate::support::LONG, notices.next()).await;
    assert!(matches!(first.unwrap(), Some(Notice::Held(seen)) if seen.token == lease.token));
    let second = tokio::time::timeout(crate::support::LONG, notices.next()).await;
    assert_eq!(second.unwrap(), Some(Notice::Look));
}
