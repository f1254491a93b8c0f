//! What a failed request means for the caller: not done, unknown, or wrongly set up.

use std::error::Error as StdError;

use http::StatusCode;
use hyper_util::client::legacy;
use kube::client::AuthError;
use tenure::Error;

use crate::answer::Answer;

/// A right that a request needs, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

impl Right {
    pub(crate) const fn leases(verb: &'static str) -> Self {
        let resource = "leases";
        Self { verb, resource }
    }

    /// Whether the request changes something.
    pub(crate) fn writes(self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}

/// The error of an answer that is no success.
pub(crate) fn refused(answer: &Answer, right: Right, whose: &str, namespace: &str) -> Error {
    let said = answer.message();
    let Right { verb, resource } = right;
    match answer.status {
        StatusCode::UNAUTHORIZED => Error::misconfigured(format!(
            "{whose} does not accept who we are ({said}): the token or certificate may have expired; check the kubeconfig's user, or the pod's service account"
        )),
        StatusCode::FORBIDDEN if said.contains("being terminated") => {
            Error::misconfigured(format!(
                "the namespace {namespace} is being deleted: use another one, or create it again with `kubectl create namespace {namespace}`"
            ))
        }
        StatusCode::FORBIDDEN => Error::misconfigured(format!(
            "{whose} refuses the right to {verb} {resource} in the namespace {namespace}: `tenure schema --store URL` prints the Role that gives it ({said})"
        )),
        StatusCode::NOT_FOUND if verb == "create" => Error::misconfigured(format!(
            "there is no namespace {namespace} at {whose}: create it with `kubectl create namespace {namespace}`, or name another one in the URL"
        )),
        StatusCode::NOT_FOUND => Error::misconfigured(format!(
            "{whose} has no {resource} ({said}): check that it is a Kubernetes API server, of 1.14 or later"
        )),
        // Turned away at the door, before anything was done.
        StatusCode::TOO_MANY_REQUESTS => Error::unreachable(match answer.retry_after {
            Some(seconds) => format!(
                "{whose} has too many requests and asks to wait for {seconds} s: nothing was done"
            ),
            None => format!("{whose} has too many requests: nothing was done"),
        }),
        StatusCode::BAD_REQUEST
        | StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::PAYLOAD_TOO_LARGE => {
            Error::invalid(format!("{whose} does not accept the request: {said}"))
        }
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => unknown(
            right,
            format!("{whose} could not {verb} {resource}: {said}"),
        ),
        status => Error::misconfigured(format!(
            "{whose} answers {status} ({said}): check that it is a Kubernetes API server"
        )),
    }
}

/// The error of a request that has no answer.
pub(crate) fn no_answer(error: &kube::Error, right: Right, whose: &str) -> Error {
    let source: &(dyn StdError + 'static) = match error {
        kube::Error::Service(source) => source.as_ref(),
        other => other,
    };
    let reason = deepest(source);
    let auth = chain(source).any(|error| error.is::<AuthError>());
    if auth || matches!(error, kube::Error::Auth(_)) {
        return Error::misconfigured(format!(
            "the credentials for {whose} cannot be had: {reason}; check the kubeconfig's user"
        ));
    }
    let connect = chain(source)
        .find_map(|error| error.downcast_ref::<legacy::Error>())
        .is_some_and(legacy::Error::is_connect);
    if !connect {
        return unknown(right, format!("{whose} gave no answer: {reason}"));
    }
    // rustls hands its refusals on as invalid data; a refused connection never is.
    let tls = chain(source).any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData)
    });
    match tls {
        true => Error::misconfigured(format!(
            "no TLS with {whose}: {reason}; check the cluster's certificate-authority in the kubeconfig"
        )),
        false => Error::unreachable(format!("no connection to {whose}: {reason}")),
    }
}

/// Whether the client's own worker is gone, with the runtime on which it was made: nothing
/// was sent, and nothing ever will be by this client.
pub(crate) fn is_client_gone(error: &kube::Error) -> bool {
    match error {
        kube::Error::Service(source) => {
            chain(source.as_ref()).any(|error| error.is::<tower::buffer::error::Closed>())
        }
        _ => false,
    }
}

/// What a request without a usable answer has done: a read nothing, a write perhaps.
pub(crate) fn unknown(right: Right, text: String) -> Error {
    match right.writes() {
        true => Error::unavailable(text),
        false => Error::unreachable(text),
    }
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        // An I/O error that wraps another hides it from `source`.
        let error: &'a (dyn StdError + 'static) = *error;
        let io = error.downcast_ref::<std::io::Error>();
        match io.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// The innermost error says most, in one line.
pub(crate) fn deepest(error: &(dyn StdError + 'static)) -> String {
    let last = chain(error).last().map(ToString::to_string);
    last.unwrap_or_default().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use tenure::ErrorKind;

    fn meaning(status: u16, verb: &'static str) -> Error {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer::new(status, &HeaderMap::new(), b"{\"message\":\"because\\nso\"}");
        refused(&answer, Right::leases(verb), "the API server at h", "ns")
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        use ErrorKind::{Invalid, Misconfigured, Unavailable};
        for (status, verb, kind, may_have_worked) in [
            (401, "get", Misconfigured, false),
            (403, "update", Misconfigured, false),
            (404, "create", Misconfigured, false),
            (404, "list", Misconfigured, false),
            (429, "update", Unavailable, false),
            (422, "update", Invalid, false),
            (400, "get", Invalid, false),
            (500, "update", Unavailable, true),
            (503, "update", Unavailable, true),
            (504, "update", Unavailable, true),
            (408, "update", Unavailable, true),
            (500, "get", Unavailable, false),
            (302, "get", Misconfigured, false),
            (418, "get", Misconfigured, false),
        ] {
            let error = meaning(status, verb);
            let shown = (error.kind(), error.may_have_worked());
            assert_eq!(shown, (kind, may_have_worked), "{status}: {error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn a_wait_that_the_server_asks_for_is_told() {
        let headers = HeaderMap::from_iter([(
            http::header::RETRY_AFTER,
            http::HeaderValue::from_static("7"),
        )]);
        let answer = Answer::new(StatusCode::TOO_MANY_REQUESTS, &headers, b"busy");
        let error = refused(&answer, Right::leases("update"), "it", "ns");
        assert!(error.to_string().contains("7 s"), "{error}");
    }
}
