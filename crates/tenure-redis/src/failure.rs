//! What Redis, the network and TLS say, as errors that tell the caller what to do.

use std::io;

use redis::RedisError;
use tenure::Error;

/// What is known of the place that an error comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The server as people know it: `host:port`.
    pub server: &'a str,
    /// Whether the next connection may lead to another server (Sentinel, Cluster).
    pub moves: bool,
}

/// The command that shows the rights which are needed.
const SCHEMA: &str = "see what is needed with `tenure schema --store …`";

/// No connection could be made: nothing was sent.
pub(crate) fn of_connecting(place: Place<'_>, error: &io::Error) -> Error {
    let server = place.server;
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(why)) => Error::misconfigured(format!(
            "the certificate of {server} is not accepted ({why}): name its authority with tls-ca=FILE, and the server as the certificate does"
        )),
        Some(rustls::Error::AlertReceived(alert)) => Error::misconfigured(format!(
            "{server} refuses the TLS connection ({alert:?}): if it wants a client certificate, name it with tls-cert=FILE and tls-key=FILE"
        )),
        Some(rustls::Error::InvalidMessage(_)) => Error::misconfigured(format!(
            "{server} does not speak TLS: use its TLS port, or redis:// without tls=on"
        )),
        None if is_closed(error) => Error::unreachable(format!(
            "Redis at {server} closed the connection before it could be used: try again; if it wants TLS, use rediss:// or tls=on"
        )),
        _ => Error::unreachable(format!(
            "cannot connect to Redis at {server} ({error}): see that it runs and can be reached"
        )),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// The server does not take us in: no lease call was sent.
pub(crate) fn of_greeting(place: Place<'_>, code: &str, detail: &str) -> Error {
    let server = place.server;
    if let Some(known) = of_code(place, code, detail) {
        return known;
    }
    // The text is not repeated: it may be made of what was sent to log in.
    Error::misconfigured(format!(
        "Redis at {server} does not take the log-in or the database number ({code}): check user, password and database"
    ))
}

fn wrong_password(server: &str) -> Error {
    Error::misconfigured(format!(
        "Redis at {server} refuses the user or the password: check both; a password is taken from the URL, password-file=, TENURE_STORE_PASSWORD_FILE or TENURE_STORE_PASSWORD"
    ))
}

/// A call was sent, and the connection failed: it may have worked.
pub(crate) fn of_call(place: Place<'_>, error: &RedisError) -> Error {
    if let Some(code) = error.code() {
        return of_answer(place, code, error.detail().unwrap_or_default());
    }
    Error::unavailable(format!(
        "the connection to Redis at {} broke before the answer came ({}): try again",
        place.server,
        error.category()
    ))
}

/// The server answered with an error.
pub(crate) fn of_answer(place: Place<'_>, code: &str, detail: &str) -> Error {
    if let Some(known) = of_code(place, code, detail) {
        return known;
    }
    // Before Redis 7 the code of an error in a script stands within its text.
    let words = detail.split(|c: char| !c.is_ascii_uppercase());
    let inner = words
        .filter(|word| word.len() > 2 && *word != "ERR")
        .find_map(|word| of_code(place, word, detail));
    inner.unwrap_or_else(|| {
        Error::unavailable(format!(
            "Redis at {} answers with an error ({}): try again",
            place.server,
            shown(code, detail)
        ))
    })
}

/// The error of a code that is known. Unless it says otherwise, nothing has happened.
fn of_code(place: Place<'_>, code: &str, detail: &str) -> Option<Error> {
    let server = place.server;
    let not_now = |what: &str| Some(Error::unreachable(format!("Redis at {server} {what}")));
    match code {
        "NOAUTH" | "WRONGPASS" => Some(wrong_password(server)),
        "NOPERM" => Some(Error::misconfigured(format!(
            "the user lacks a right on Redis at {server} ({}): {SCHEMA}",
            shown(code, detail)
        ))),
        "READONLY" if place.moves => {
            not_now("is a replica by now: try again, the new primary will be asked for")
        }
        "READONLY" => Some(Error::misconfigured(format!(
            "Redis at {server} is a replica and takes no writes: name the primary, or use redis+sentinel:// or redis+cluster://"
        ))),
        "LOADING" => not_now("is still loading its data: try again"),
        "MASTERDOWN" => not_now("is a replica that lost its primary: try again"),
        "CLUSTERDOWN" => not_now("says that the cluster is down: try again"),
        "TRYAGAIN" => not_now("is moving this key to another server: try again"),
        "BUSY" => not_now("is busy with another script: try again"),
        "OOM" => not_now("has no memory left (maxmemory): make room, or raise it"),
        "MISCONF" => not_now("cannot write to its disk and takes no writes: make room there"),
        "NOREPLICAS" => not_now("has too few replicas to take writes (min-replicas-to-write)"),
        "ERR" if detail.contains("max number of clients") => {
            not_now("has no free connection (maxclients): close some, or raise it")
        }
        "ERR" if detail.contains("cluster support disabled") => Some(Error::misconfigured(
            format!("Redis at {server} is no cluster: use redis:// instead of redis+cluster://"),
        )),
        "ERR" if detail.contains("unknown command") || detail.contains("Unknown Redis command") => {
            Some(Error::misconfigured(format!(
                "Redis at {server} lacks a command ({}): tenure needs Redis 5 or later with EVAL and PEXPIREAT",
                shown(code, detail)
            )))
        }
        "ERR" if is_refused_in_script(detail) => Some(Error::misconfigured(format!(
            "the user lacks a right on Redis at {server}: {SCHEMA}"
        ))),
        _ => None,
    }
}

/// Whether a script was refused a command or a key, as Redis 6 and as Valkey say it.
pub(crate) fn is_refused_in_script(said: &str) -> bool {
    said.contains("can't run this command") || said.contains("ACL failure in script")
}

/// The server's text, without what it may repeat of our arguments, in one line.
fn shown(code: &str, detail: &str) -> String {
    let detail = detail
        .split(", with args")
        .next()
        .unwrap_or_default()
        .split(" script: ")
        .next()
        .unwrap_or_default();
    let text: String = format!("{code} {detail}")
        .chars()
        .filter(|c| !c.is_control())
        .take(160)
        .collect();
    text.trim().trim_end_matches('.').to_owned()
}

/// An answer that is no answer to what was asked.
pub(crate) fn no_sense(server: &str) -> Error {
    Error::unavailable(format!(
        "Redis at {server} gives an answer that makes no sense: see that nothing but Redis or Valkey is there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::ErrorKind;

    const HERE: Place<'_> = Place {
        server: "db:6379",
        moves: false,
    };

    #[test]
    fn what_did_not_run_is_told_apart_from_what_may_have() {
        for (code, detail) in [
            ("LOADING", "Redis is loading the dataset in memory"),
            ("OOM", "command not allowed when used memory > 'maxmemory'."),
            ("ERR", "max number of clients reached"),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:3: OOM command not allowed",
            ),
        ] {
            let error = of_answer(HERE, code, detail);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(!error.may_have_worked(), "{error}");
        }
        let error = of_answer(HERE, "ERR", "something new");
        assert!(error.may_have_worked());
    }

    #[test]
    fn what_has_to_be_mended_is_named() {
        let replica = "You can't write against a read only replica.";
        let error = of_answer(HERE, "READONLY", replica);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("replica"));
        let moves = Place {
            moves: true,
            ..HERE
        };
        assert!(!of_answer(moves, "READONLY", replica).may_have_worked());
        assert_eq!(
            of_answer(moves, "READONLY", replica).kind(),
            ErrorKind::Unavailable
        );
        let error = of_answer(
            HERE,
            "NOPERM",
            "User app has no permissions to run the 'hset' command script: abc, on @user_script:9.",
        );
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("'hset'"), "{error}");
        assert!(error.to_string().contains("tenure schema"), "{error}");
    }

    #[test]
    fn arguments_that_a_server_repeats_are_not_shown() {
        let detail = "unknown command 'AUTH', with args beginning with: 'me' 'hunter2' ";
        let error = of_answer(HERE, "ERR", detail);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
