//! What one request to the service and its answer were, seen from below the client crate.
//!
//! The client crate tells neither the `Date` of an answer nor, for each of its errors,
//! whether the request was sent. The connector notes both here, for the request whose
//! object is being asked for; requests for credentials pass by unnoticed.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};
use percent_encoding::percent_decode_str;

/// What was seen of one exchange. Nothing at all if the caller's own client was used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The connector is ours, so what is missing here did not happen.
    pub(crate) ours: bool,
    /// The request began to be sent to the service.
    pub(crate) began: bool,
    /// It may have reached the service.
    pub(crate) sent: bool,
    pub(crate) status: Option<StatusCode>,
    /// The service's clock when it answered, in whole seconds.
    pub(crate) date: Option<DateTime<Utc>>,
    /// When the object was written, by the same clock.
    pub(crate) last_modified: Option<DateTime<Utc>>,
}

#[derive(Debug)]
struct Watch {
    /// The end of the path of the request that is meant.
    object: String,
    seen: Mutex<Seen>,
}

tokio::task_local! {
    static WATCH: Arc<Watch>;
}

/// Runs a request about this object and tells what was seen of it.
pub(crate) async fn watched<T>(object: &str, request: impl Future<Output = T>) -> (T, Seen) {
    let watch = Arc::new(Watch {
        object: object.to_owned(),
        seen: Mutex::default(),
    });
    let answer = WATCH.scope(watch.clone(), request).await;
    let seen = watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
    (answer, seen.clone())
}

/// The notes of a request that is about to be sent; none if nobody asks.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Option<Arc<Watch>>);

impl Notes {
    pub(crate) fn begin(path: &str) -> Self {
        let watch = WATCH.try_with(Arc::clone).ok();
        if let Some(watch) = &watch {
            let mut seen = watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.ours = true;
        }
        let path = percent_decode_str(path).decode_utf8_lossy();
        let notes = Self(watch.filter(|watch| path.ends_with(&watch.object)));
        notes.note(|seen| {
            seen.began = true;
            seen.sent = true;
        });
        notes
    }

    pub(crate) fn not_sent(&self) {
        self.note(|seen| seen.sent = false);
    }

    pub(crate) fn answered(&self, status: StatusCode, headers: &HeaderMap) {
        self.note(|seen| {
            seen.status = Some(status);
            seen.date = time(headers, &header::DATE);
            seen.last_modified = time(headers, &header::LAST_MODIFIED);
        });
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        if let Some(watch) = &self.0 {
            let mut seen = watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut seen);
        }
    }
}

fn time(headers: &HeaderMap, name: &header::HeaderName) -> Option<DateTime<Utc>> {
    let text = headers.get(name)?.to_str().ok()?;
    let time = DateTime::parse_from_rfc2822(text).ok()?;
    Some(time.to_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_request_for_the_object_is_noted() {
        let ((), seen) = watched("p/a%20b.json", async {
            let token = Notes::begin("/latest/api/token");
            token.answered(StatusCode::NOT_FOUND, &HeaderMap::new());
        })
        .await;
        assert!(seen.ours && !seen.began && seen.status.is_none());
        let ((), seen) = watched("p/a%20b.json", async {
            let notes = Notes::begin("/bucket/p/a%2520b.json");
            let mut headers = HeaderMap::new();
            let date = "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap();
            headers.insert(header::DATE, date);
            notes.answered(StatusCode::NOT_MODIFIED, &headers);
        })
        .await;
        assert!(seen.began && seen.sent);
        assert_eq!(seen.status, Some(StatusCode::NOT_MODIFIED));
        assert_eq!(seen.date.unwrap().timestamp(), 784_111_777);
        assert_eq!(seen.last_modified, None);
    }
}
