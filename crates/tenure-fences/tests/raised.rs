//! The first act of a new leader: its fences are raised before its work begins.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{assert_stale, two_leaders};
use tenure::{Elector, Key, MemoryStore, Settings, Timing, Token};
use tenure_fences::file::FileFence;
use tenure_fences::{FenceError, Fences};

fn raising(
    file: &FileFence,
) -> impl Fn(tenure::Tenure) -> futures_util::future::Ready<tenure_fences::Result<()>> + use<> {
    let file = file.clone();
    move |tenure| futures_util::future::ready(file.raise(&tenure))
}

#[tokio::test]
async fn all_are_raised_and_the_first_that_fails_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = two_leaders().await;
    let files = ["a", "b"].map(|name| FileFence::new(folder.path().join(name)));
    let fences = Fences::new()
        .and("a", raising(&files[0]))
        .and("b", raising(&files[1]));
    assert_eq!(format!("{fences:?}"), r#"["a", "b"]"#);
    fences.raise(&new.tenure).await.unwrap();
    for file in &files {
        assert_eq!(file.seen().unwrap(), Token(9));
    }
    assert_stale(fences.raise(&old.tenure).await, 7, 9);
}

/// No work begins before the fence is up, however often that takes.
#[tokio::test]
async fn work_begins_after_the_fence_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileFence::new(folder.path().join("journal"));
    let tries = Arc::new(AtomicUsize::new(0));
    let fences = {
        let (file, tries) = (file.clone(), tries.clone());
        Fences::new().and("journal", move |tenure| {
            let (file, tries) = (file.clone(), tries.clone());
            async move {
                if tries.fetch_add(1, Ordering::SeqCst) < 2 {
                    let resource = "journal".to_owned();
                    return Err(FenceError::Busy { resource });
                }
                file.raise(&tenure)
            }
        })
    };
    let elector = Elector::start(MemoryStore::new(), Settings::new("k").unwrap()).unwrap();
    fences
        .lead(&elector, |tenure| {
            let (file, elector) = (file.clone(), elector.clone());
            async move {
                assert_eq!(file.seen().unwrap(), tenure.token());
                tokio::spawn(async move { elector.stop().await });
                tenure.told_to_stop().await;
            }
        })
        .await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

/// A leader whose token the resource has already passed resigns, and does no work.
#[tokio::test]
async fn a_leader_that_is_turned_away_resigns() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileFence::new(folder.path().join("journal"));
    let greatest = support::Leader::with_token(tenure_fences::TOKEN_MAX).await;
    file.raise(&greatest.tenure).unwrap();
    let fences = Fences::new().and("journal", raising(&file));
    let store = MemoryStore::new();
    let timing = Timing::with_ttl(std::time::Duration::from_secs(60));
    let settings = Settings::new(Key::new("k").unwrap())
        .unwrap()
        .timing(timing);
    let elector = Elector::start(store, settings).unwrap();
    let mut events = elector.events();
    let leading = {
        let elector = elector.clone();
        tokio::spawn(async move {
            fences
                .lead(&elector, |_| async { panic!("it has no business here") })
                .await;
        })
    };
    loop {
        match events.next().await {
            Some(tenure::Event::Lost { reason, .. }) => {
                assert_eq!(reason, tenure::EndReason::Resigned);
                break;
            }
            Some(_) => {}
            None => panic!("the elector stopped"),
        }
    }
    elector.stop().await;
    leading.await.unwrap();
}
