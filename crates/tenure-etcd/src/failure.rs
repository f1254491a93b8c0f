//! What a failed call means for the caller: not done, unknown, or wrongly set up.

use std::error::Error as _;

use tenure::Error;
use tonic::{Code, ConnectError, Status};

/// Why a call to etcd gave no answer that could be used.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The etcd lease that was named does not exist: nothing was written.
    LeaseNotFound,
    /// Anything else, as the caller of the store shall see it.
    Other(Error),
}

/// What the link does about a failed call before it gives it up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Nothing was done there: another member may be asked.
    AnotherMember,
    /// Refused before anything was done, because of the auth token: get a new one.
    NewToken,
    /// Give up; and this connection is to be left if so said.
    GiveUp { leave: bool },
}

pub(crate) fn cure(status: &Status) -> Cure {
    let says = |text| status.message().contains(text);
    if connect_error(status).is_some() || turned_away(status) {
        return Cure::AnotherMember;
    }
    // etcd looks at the token before it proposes anything, and at the revision of its
    // users and roles before it applies anything.
    if says("invalid auth token")
        || says("revision of auth store is old")
        || says("user name is empty")
    {
        return Cure::NewToken;
    }
    let leave = matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unimplemented
    );
    Cure::GiveUp { leave }
}

/// Whether this member cannot serve now and has said so before doing anything.
fn turned_away(status: &Status) -> bool {
    let refusals = ["no leader", "not supported for learner", "not capable"];
    refusals.iter().any(|text| status.message().contains(text))
}

impl Failure {
    /// The failure that this status means. `whose` says which etcd was asked, and as whom.
    pub(crate) fn of(status: &Status, whose: &str) -> Self {
        if status.code() == Code::NotFound && status.message().contains("lease not found") {
            return Self::LeaseNotFound;
        }
        Self::Other(error(status, whose))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Other(error) => error,
            Failure::LeaseNotFound => Error::unreachable(
                "the etcd lease was gone before the key could be bound to it: nothing was written",
            ),
        }
    }
}

fn connect_error(status: &Status) -> Option<&ConnectError> {
    chain(status.source()?).find_map(|error| error.downcast_ref())
}

fn error(status: &Status, whose: &str) -> Error {
    let said = status.message();
    let says = |text| said.contains(text);
    if let Some(connect) = connect_error(status) {
        return unconnected(connect, whose);
    }
    if turned_away(status) {
        return Error::unreachable(format!(
            "{whose} cannot serve just now ({said}): nothing was done"
        ));
    }
    if says("database space exceeded") {
        return Error::unreachable(format!(
            "the database of {whose} is full, so nothing was written: compact and defragment it, then run `etcdctl alarm disarm`"
        ));
    }
    if says("too many requests") {
        return Error::unreachable(format!(
            "{whose} has too many requests just now: nothing was done"
        ));
    }
    if says("lease already exists") {
        return Error::unreachable(format!(
            "{whose} has a lease of the number that was drawn: nothing was written, try again"
        ));
    }
    match status.code() {
        Code::PermissionDenied => Error::misconfigured(format!(
            "{whose} refuses this user the keys: `tenure schema --store URL` prints the role that it needs, for an administrator to run"
        )),
        Code::Unauthenticated => {
            Error::misconfigured(format!("{whose} does not accept who we are: {said}"))
        }
        Code::InvalidArgument if says("authentication failed") => Error::misconfigured(format!(
            "{whose} refuses this user or its password: check both, the password also in its file or in TENURE_STORE_PASSWORD"
        )),
        Code::InvalidArgument if says("user name is empty") => Error::misconfigured(format!(
            "{whose} asks for a user and a password: name them in the URL, etcd://user@host, the password also in a file or in TENURE_STORE_PASSWORD"
        )),
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
            Error::invalid(format!("{whose} does not accept the request: {said}"))
        }
        Code::Unimplemented => Error::misconfigured(format!(
            "{whose} does not speak etcd's v3 API: check host and port"
        )),
        // May have been done: the answer is lacking.
        _ => Error::unavailable(format!("{whose} gave no answer: {}", reason(status))),
    }
}

fn unconnected(connect: &ConnectError, whose: &str) -> Error {
    let reason = deepest(connect);
    // rustls hands its refusals on as invalid data; a refused connection never is.
    let tls = chain(connect).any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData)
    });
    if tls {
        return Error::misconfigured(format!(
            "no TLS with {whose}: {reason}; check tls-ca, tls-cert and tls-key, and the server's name"
        ));
    }
    Error::unreachable(format!("no connection to {whose}: {reason}"))
}

fn reason(status: &Status) -> String {
    match status.source() {
        Some(source) => deepest(source),
        None => status.message().to_owned(),
    }
}

fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(
        Some(error),
        |error: &&'a (dyn std::error::Error + 'static)| (*error).source(),
    )
}

/// The innermost error says most, in one line.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let last = chain(error).last().map(ToString::to_string);
    last.unwrap_or_default().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    fn meaning(code: Code, text: &str) -> Error {
        Failure::of(&Status::new(code, text), "etcd at h").into()
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        for (code, text, kind, may_have_worked) in [
            (
                Code::Unavailable,
                "etcdserver: no leader",
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                ErrorKind::Unavailable,
                true,
            ),
            (
                Code::Unavailable,
                "etcdserver: leader changed",
                ErrorKind::Unavailable,
                true,
            ),
            (
                Code::Unknown,
                "transport error",
                ErrorKind::Unavailable,
                true,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: lease already exists",
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                ErrorKind::Misconfigured,
                false,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                ErrorKind::Misconfigured,
                false,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                ErrorKind::Misconfigured,
                false,
            ),
            (Code::Unimplemented, "", ErrorKind::Misconfigured, false),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                ErrorKind::Invalid,
                false,
            ),
        ] {
            let error = meaning(code, text);
            assert_eq!(
                (error.kind(), error.may_have_worked()),
                (kind, may_have_worked),
                "{text}: {error}"
            );
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn only_what_was_not_done_is_asked_elsewhere() {
        let cure_of = |code, text| cure(&Status::new(code, text));
        assert_eq!(
            cure_of(Code::Unavailable, "etcdserver: no leader"),
            Cure::AnotherMember
        );
        assert_eq!(
            cure_of(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Cure::NewToken
        );
        assert_eq!(
            cure_of(
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old"
            ),
            Cure::NewToken
        );
        for text in [
            "etcdserver: leader changed",
            "etcdserver: request timed out",
            "transport error",
        ] {
            assert_eq!(
                cure_of(Code::Unavailable, text),
                Cure::GiveUp { leave: true }
            );
        }
        assert_eq!(
            cure_of(Code::PermissionDenied, "etcdserver: permission denied"),
            Cure::GiveUp { leave: false }
        );
    }
}
