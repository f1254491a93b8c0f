//! Lost answers, conflicts, hangs, and what happens to the object behind our back.

use std::time::Duration;

use tenure::{Acquired, ErrorKind, Loss, Released, Renewed, Store};
use tenure_testbed::{Direction, Minio, unique};

use crate::support::{delete, get, granted, held, key, open, put, request, store};
use crate::wrapped::{Between, Deed};

/// What S3 answers when two conditional writes meet.
const MET: &str = "<Error><Code>ConditionalRequestConflict</Code></Error>";
const STALE: &str = "<Error><Code>PreconditionFailed</Code></Error>";
const BROKEN: &str = "<Error><Code>InternalError</Code></Error>";

#[tokio::test]
async fn an_answer_that_was_lost_is_found_by_the_nonce() {
    let Some(minio) = Minio::shared() else { return };
    // The first write of each store goes through, and nobody hears of it.
    let deeds: [fn() -> Deed; 4] = [
        || Deed::LoseAnswer,
        || Deed::AnswerInstead(500, BROKEN),
        // Somebody in between has sent it again, and hears the second answer.
        || Deed::AnswerInstead(412, STALE),
        || Deed::AnswerInstead(409, MET),
    ];
    for deed in deeds {
        let prefix = unique("lost");
        let key = key("k");
        let between = Between::choosing(move |number, method| match (number, method) {
            (1, "PUT") => deed(),
            _ => Deed::Pass,
        });
        let lease = granted(&between.store(minio, &prefix), &request(&key, "a", 1)).await;
        assert_eq!(between.taken().len(), 3, "one look more");
        assert_eq!(
            held(&store(minio, &prefix), &request(&key, "b", 2))
                .await
                .version,
            lease.version
        );
        let first = move |number: usize, _: &str| if number == 0 { deed() } else { Deed::Pass };
        let between = Between::choosing(first);
        let renewed = between
            .store(minio, &prefix)
            .renew(&lease, lease.ttl)
            .await
            .unwrap();
        let Renewed::Renewed(lease, None) = renewed else {
            panic!("{renewed:?}");
        };
        assert_eq!(between.taken().len(), 2);
        let released = Between::choosing(first)
            .store(minio, &prefix)
            .release(&lease)
            .await;
        assert_eq!(released.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn a_conflict_is_no_loss() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("met");
    let key = key("k");
    for status in [409, 412] {
        let refuse_first = move |_: usize, method: &str| {
            use std::sync::atomic::{AtomicBool, Ordering};
            static DONE: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
            let done = &DONE[usize::from(status == 412)];
            if method == "PUT" && !done.swap(true, Ordering::SeqCst) {
                return Deed::Answer(status, MET);
            }
            Deed::Pass
        };
        let between = Between::choosing(refuse_first);
        let store = between.store(minio, &prefix);
        let lease = granted(&store, &request(&key, "a", 1)).await;
        assert_eq!(
            between.taken(),
            [
                "GET 404".to_owned(),
                format!("PUT {status}"),
                "GET 404".into(),
                "PUT 200".into()
            ]
        );
        store.release(&lease).await.unwrap();
        delete(minio, &prefix, &key).await;
    }
}

#[tokio::test]
async fn conflicts_without_end_are_an_error_in_the_end() {
    let Some(minio) = Minio::shared() else { return };
    let between = Between::choosing(|_, method| match method {
        "PUT" => Deed::Answer(409, MET),
        _ => Deed::Pass,
    });
    let store = between.store(minio, &unique("endless"));
    let error = store
        .acquire(&request(&key("k"), "a", 1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_worked(), "all were refused: {error}");
}

#[tokio::test]
async fn a_write_that_was_not_seen_to_arrive_is_unknown() {
    let Some(minio) = Minio::shared() else { return };
    for (status, body) in [(500, BROKEN), (503, "<Error><Code>SlowDown</Code></Error>")] {
        let between = Between::choosing(move |_, method| match method {
            "PUT" => Deed::Answer(status, body),
            _ => Deed::Pass,
        });
        let store = between.store(minio, &unique("unknown"));
        let error = store
            .acquire(&request(&key("k"), "a", 1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.may_have_worked(), "{error}");
        let looks = if status == 503 { 0 } else { 1 };
        assert_eq!(
            between.taken().len(),
            2 + looks,
            "a busy service is not asked more"
        );
    }
}

#[tokio::test]
async fn an_answer_cut_on_the_wire_is_found_again() {
    let Some(minio) = Minio::shared() else { return };
    let proxy = minio.proxy();
    let prefix = unique("wire");
    let store = open(&minio.url_at(proxy.address(), &prefix));
    let key = key("k");
    let asked = request(&key, "somebody", 1);
    let cut = proxy.cut_answer_to("\"holderId\":\"somebody\"");
    let lease = granted(&store, &asked).await;
    assert!(cut.is_done());
    let cut = proxy.cut_answer_to("\"holderId\":\"somebody\"");
    let renewed = store.renew(&lease, lease.ttl).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    assert!(cut.is_done());
}

#[tokio::test]
async fn an_endpoint_that_hangs_after_taking_the_request_is_no_permission() {
    let Some(minio) = Minio::shared() else { return };
    let proxy = minio.proxy();
    let prefix = unique("hang");
    let key = key("k");
    let hung = open(&minio.url_at(proxy.address(), &prefix));
    let asked = request(&key, "a", 1);
    assert_eq!(hung.read(&key).await.unwrap(), None);
    proxy.hold(Direction::ToClient);
    let waited = tokio::time::timeout(Duration::from_millis(600), hung.acquire(&asked)).await;
    assert!(waited.is_err(), "it hangs: {waited:?}");
    proxy.heal();
    // Given up, and repeated: one attempt, one tenure, whatever became of the first.
    let lease = granted(&hung, &asked).await;
    let other = held(&store(minio, &prefix), &request(&key, "b", 2)).await;
    assert_eq!(other.token, lease.token);
    proxy.refuse();
    let error = hung.renew(&lease, lease.ttl).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    proxy.heal();
    proxy.reset();
    hung.renew(&lease, lease.ttl).await.unwrap();
}

#[tokio::test]
async fn nothing_is_sent_to_a_closed_port() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let store = open(&format!("s3://K:S@b?endpoint=http%3A%2F%2F{address}"));
    let error = store.read(&key("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_worked(), "{error}");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_record_that_is_gone_replaced_or_emptied_while_held() {
    let Some(minio) = Minio::shared() else { return };
    let prefix = unique("behind");
    let store = store(minio, &prefix);
    let gone = key("gone");
    let lease = granted(&store, &request(&gone, "a", 1)).await;
    delete(minio, &prefix, &gone).await;
    let lost = store.renew(&lease, lease.ttl).await.unwrap();
    assert_eq!(lost, Renewed::Lost(Loss::Deleted));
    assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
    assert_eq!(
        store.read(&gone).await.unwrap(),
        None,
        "nothing was made anew"
    );
    let long = "x".repeat(100_000);
    for (name, body) in [
        ("empty", ""),
        ("other", "{\"my\":\"file\"}"),
        ("long", &long),
    ] {
        let key = key(name);
        let lease = granted(&store, &request(&key, "a", 1)).await;
        put(minio, &prefix, &key, body.to_owned()).await;
        let begin: String = body.chars().take(10).collect();
        let begin = begin.replace('"', "\\\"");
        let answers = [
            store.renew(&lease, lease.ttl).await.map(|_| ()),
            store.release(&lease).await.map(|_| ()),
            store.acquire(&request(&key, "b", 2)).await.map(|_| ()),
            store.acquire(&request(&key, "a", 1)).await.map(|_| ()),
            store.read(&key).await.map(|_| ()),
            store
                .ask(&key, tenure::HolderRequest::StepDown)
                .await
                .map(|_| ()),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(&begin) && text.len() < 1_000,
                "it is shown: {text}"
            );
        }
        assert_eq!(
            get(minio, &prefix, &key).await,
            body,
            "nothing was overwritten"
        );
    }
    // It hides nothing from a list.
    granted(&store, &request(&key("whole"), "a", 1)).await;
    let listed = store.list("", 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|lease| lease.key.as_str()).collect();
    assert_eq!(listed, ["whole"]);
}

#[tokio::test]
async fn an_outage_is_no_permission() {
    let Some(minio) = Minio::start() else { return };
    let store = store(&minio, "outage");
    let key = key("k");
    let lease = granted(&store, &request(&key, "a", 1)).await;
    minio.kill();
    let error = store.acquire(&request(&key, "b", 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(store.renew(&lease, lease.ttl).await.is_err());
    tokio::task::spawn_blocking({
        let minio = minio.clone();
        move || minio.start_again()
    })
    .await
    .unwrap();
    let answer = store.acquire(&request(&key, "b", 2)).await.unwrap();
    assert!(matches!(answer, Acquired::Held(_)), "{answer:?}");
    assert!(matches!(
        store.renew(&lease, lease.ttl).await.unwrap(),
        Renewed::Renewed(..)
    ));
}
