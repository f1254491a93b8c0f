//! Watch: changes are pushed; or the right refusal.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::{ErrorKind, Key, Notice, Released};

use crate::stage::{Stage, key, ok};

/// A push that takes longer is none.
const PUSH_TIME_MAX: Duration = Duration::from_secs(10);

/// The notices of a key; None from a store that says that it cannot push, and refuses.
async fn watch(stage: &Stage, key: &Key) -> Option<BoxStream<'static, Notice>> {
    let answer = stage.store().watch(key).await;
    if stage.traits.watch {
        return Some(ok("watch", answer));
    }
    match answer {
        Err(e) if e.kind() == ErrorKind::Unsupported => None,
        Err(e) => panic!("the right refusal is unsupported, not {}: {e}", e.kind()),
        Ok(_) => panic!("the store says that it cannot push changes, but gives a stream"),
    }
}

/// Waits for a notice that fits; others may come before it.
async fn wait_for(
    notices: &mut BoxStream<'static, Notice>,
    what: &str,
    fits: impl Fn(&Notice) -> bool,
) {
    let found = async {
        while let Some(notice) = notices.next().await {
            if fits(&notice) {
                return true;
            }
        }
        false
    };
    match tokio::time::timeout(PUSH_TIME_MAX, found).await {
        Ok(true) => {}
        Ok(false) => panic!("the stream ended before {what} was pushed"),
        Err(_) => panic!("{what} was not pushed within {PUSH_TIME_MAX:?}"),
    }
}

/// Whoever watches learns of a new holder.
pub(crate) async fn watch_pushes_an_acquire(stage: &Stage) {
    let key = key("acquired");
    let Some(mut notices) = watch(stage, &key).await else {
        return;
    };
    let lease = stage.take(&key, "a").await;
    wait_for(&mut notices, "an acquire", |notice| match notice {
        Notice::Held(seen) => (&seen.holder, seen.token) == (&lease.holder, lease.token),
        other => *other == Notice::Look,
    })
    .await;
}

/// Whoever waits for a lease learns of its release: no polling interval is lost.
pub(crate) async fn watch_pushes_a_release(stage: &Stage) {
    let key = key("released");
    let lease = stage.take(&key, "a").await;
    let (Some(mut one), Some(mut two)) = (watch(stage, &key).await, watch(stage, &key).await)
    else {
        return;
    };
    assert_eq!(stage.release(&lease).await, Released::Released);
    for notices in [&mut one, &mut two] {
        wait_for(notices, "a release", |notice| {
            matches!(notice, Notice::Free | Notice::Look)
        })
        .await;
    }
    // A watcher that went away harms nobody.
    drop(one);
    let next = stage.take(&key, "b").await;
    wait_for(&mut two, "the next acquire", |notice| match notice {
        Notice::Held(seen) => seen.token == next.token,
        other => *other == Notice::Look,
    })
    .await;
}

/// The notices are of the key that was asked for, and of no key that begins like it.
pub(crate) async fn watch_is_of_one_key(stage: &Stage) {
    let key_watched = key("watched");
    let Some(mut notices) = watch(stage, &key_watched).await else {
        return;
    };
    for other in ["other", "watched/too", "watche", "Watched"] {
        stage.take(&key(other), "other").await;
    }
    let lease = stage.take(&key_watched, "a").await;
    wait_for(&mut notices, "an acquire", |notice| match notice {
        Notice::Held(seen) => {
            assert_eq!(seen.key, key_watched, "a notice of another key");
            assert_eq!((&seen.holder, seen.token), (&lease.holder, lease.token));
            true
        }
        other => *other == Notice::Look,
    })
    .await;
}
