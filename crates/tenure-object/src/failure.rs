//! What a failed request means for the caller: try again, or fix what.

use http::StatusCode;
use object_store::Error as ObjectError;
use tenure::Error;

use crate::exchange::Seen;
use crate::place::Place;

/// How much of a service's own words is shown.
const WORDS_MAX: usize = 200;

/// A request that did not work.
#[derive(Debug)]
pub(crate) enum Failed {
    /// There is no such object.
    Absent,
    /// A condition did not hold, or two writes met: look what is there now.
    Conflict,
    /// The object is as the caller knows it.
    NotModified,
    /// Anything else, for the caller's caller.
    Error(Error),
}

/// What was asked for, for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Read,
    Write,
    List,
    Delete,
}

/// Sorts a failure by what the service said; by the client crate's word where nobody saw it.
pub(crate) fn failed(place: &Place, wanted: Wanted, error: &ObjectError, seen: &Seen) -> Failed {
    let text = error.to_string();
    let code = code(&text);
    match error {
        ObjectError::NotModified { .. } => return Failed::NotModified,
        ObjectError::NotImplemented { .. } | ObjectError::NotSupported { .. } => {
            return Failed::Error(Error::unsupported(format!(
                "{place} cannot write under a condition, so it cannot hold leases: choose another store"
            )));
        }
        _ => {}
    }
    if seen.ours && !seen.began {
        return Failed::Error(Error::misconfigured(format!(
            "no credentials for {place} ({}): {}",
            words(&text),
            place.credentials()
        )));
    }
    // An answer that began well and broke off says nothing.
    let status = status(error, &text, seen).filter(|status| !status.is_success());
    let Some(status) = status else {
        return Failed::Error(unanswered(place, &text, seen));
    };
    match status {
        StatusCode::NOT_FOUND if place.is_missing(code) => {
            Failed::Error(Error::misconfigured(place.missing()))
        }
        // A write under a condition finds no object where there was one.
        StatusCode::NOT_FOUND if wanted == Wanted::Write => Failed::Conflict,
        StatusCode::NOT_FOUND => Failed::Absent,
        StatusCode::PRECONDITION_FAILED => Failed::Conflict,
        StatusCode::CONFLICT if wanted == Wanted::Write => Failed::Conflict,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Failed::Error(refused(place, wanted, code, &text))
        }
        status if status.is_server_error() || is_busy(status) => {
            Failed::Error(Error::unavailable(format!(
                "{place} cannot answer now ({status}{}): try again",
                said(code, &text)
            )))
        }
        status => Failed::Error(Error::misconfigured(format!(
            "{place} refuses to {} ({status}{}): check endpoint, region and addressing style",
            wanted.as_str(),
            said(code, &text)
        ))),
    }
}

/// The status of the answer: as it was seen, else by the word of the client crate.
pub(crate) fn status(error: &ObjectError, text: &str, seen: &Seen) -> Option<StatusCode> {
    let by_kind = match error {
        ObjectError::NotFound { .. } => Some(StatusCode::NOT_FOUND),
        ObjectError::Precondition { .. } => Some(StatusCode::PRECONDITION_FAILED),
        ObjectError::AlreadyExists { .. } => Some(StatusCode::CONFLICT),
        ObjectError::PermissionDenied { .. } => Some(StatusCode::FORBIDDEN),
        ObjectError::Unauthenticated { .. } => Some(StatusCode::UNAUTHORIZED),
        _ => None,
    };
    let in_text = || {
        let (_, rest) = text.split_once("status code: ")?;
        rest.get(..3)?.parse().ok()
    };
    seen.status.or(by_kind).or_else(in_text)
}

/// Whether the service said that nothing was done, so that there is nothing to look for.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::REQUEST_TIMEOUT
    )
}

fn unanswered(place: &Place, text: &str, seen: &Seen) -> Error {
    let words = words(text);
    if seen.ours && !seen.sent {
        return Error::unreachable(format!("{place} cannot be reached: {words}"));
    }
    Error::unavailable(format!("no answer from {place}: {words}"))
}

fn refused(place: &Place, wanted: Wanted, code: Option<&str>, text: &str) -> Error {
    let said = said(code, text);
    let fix = match code {
        Some("RequestTimeTooSkewed") => {
            "the clock of this machine is too far off for its signatures: set it".to_owned()
        }
        Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "AuthenticationFailed") => {
            format!("the credentials are wrong: {}", place.credentials())
        }
        Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            format!("the credentials have expired: {}", place.credentials())
        }
        _ => place.right(wanted),
    };
    Error::misconfigured(format!(
        "{place} does not let us {}{said}: {fix}",
        wanted.as_str()
    ))
}

impl Wanted {
    fn as_str(self) -> &'static str {
        match self {
            Wanted::Read => "read",
            Wanted::Write => "write",
            Wanted::List => "list",
            Wanted::Delete => "delete",
        }
    }
}

/// The code of an error answer: all three services send XML.
fn code(text: &str) -> Option<&str> {
    between(text, "<Code>", "</Code>").filter(|code| code.len() <= 64)
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

fn said(code: Option<&str>, text: &str) -> String {
    let message = between(text, "<Message>", "</Message>").map(words);
    match (code, message) {
        (Some(code), Some(message)) => format!(" ({code}: {message})"),
        (Some(code), None) => format!(" ({code})"),
        (None, _) => String::new(),
    }
}

/// One line, cut short, without the address that the client crate puts before it.
fn words(text: &str) -> String {
    let text = text.rsplit_once(" - ").map_or(text, |(_, words)| words);
    let text = text.strip_prefix("HTTP error: ").unwrap_or(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    let mut short: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(WORDS_MAX)
        .collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}
