//! What the server and the driver say, as errors that tell the caller what to do.

use tenure::Error;
use tiberius::error::Error as SqlError;
use tiberius::error::{IoErrorKind, TokenError};

use crate::batches::{OPEN_TRANSACTION, READ_ONLY};
use crate::options::SqlServerOptions;

/// From here on the server ends the connection, and may have committed before.
const FATAL_CLASS: u8 = 20;
/// From here on it lacks resources: another connection is worth a try.
const RESOURCE_CLASS: u8 = 17;
const DEADLOCK: u32 = 1205;

/// What messages name: never a secret.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    table: String,
    user: String,
}

impl Place {
    pub(crate) fn new(options: &SqlServerOptions) -> Self {
        let user = options.user.as_deref().map(crate::names::quoted);
        Self {
            url: options.shown(),
            table: options.table.to_string(),
            user: user.unwrap_or_else(|| "the user".into()),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The command that makes what is missing.
    fn init(&self) -> String {
        match self.url.starts_with("sqlserver:") {
            true => format!("`tenure init --store '{}'`", self.url),
            false => "`SqlServerStore::init`, or run what `SqlServerOptions::schema` gives".into(),
        }
    }

    /// No connection could be had, so nothing was sent.
    pub(crate) fn of_connect(&self, error: &SqlError) -> Error {
        let url = &self.url;
        match error {
            SqlError::Server(said) => self.of_refused(said),
            SqlError::Tls(why) if why.contains("certificate") => Error::misconfigured(format!(
                "the certificate of {url} is not trusted ({}): name its authority with tls-ca=FILE, its name with hostNameInCertificate=NAME, or trust whoever answers with trustServerCertificate=true",
                first_sentence(why)
            )),
            SqlError::Tls(why) => Error::misconfigured(format!(
                "no encryption could be agreed on with {url} ({}): check encrypt and tls-ca",
                first_sentence(why)
            )),
            SqlError::Protocol(why) if why.contains("encryption level") => {
                Error::misconfigured(format!(
                    "{url} refuses encryption: give the server a certificate, or, where nobody can listen in between, set encrypt=off"
                ))
            }
            // rustls tells alerts and broken records so.
            SqlError::Io { kind, message } if *kind == IoErrorKind::InvalidData => {
                Error::misconfigured(format!(
                    "no encryption could be agreed on with {url} ({message}): check that it is a SQL Server, and encrypt (strict needs SQL Server 2022)"
                ))
            }
            error => self.unreachable(&error.to_string()),
        }
    }

    /// What the server said instead of letting us in.
    fn of_refused(&self, said: &TokenError) -> Error {
        let (url, message) = (&self.url, said.message());
        match said.code() {
            18456 | 18452 | 18470 | 18486 | 18487 | 18488 => Error::misconfigured(format!(
                "{url} does not let us in ({message}): check the user and the password (in the URL, password-file=FILE or TENURE_STORE_PASSWORD), and that the server takes SQL logins"
            )),
            4060 | 911 | 916 => Error::misconfigured(format!(
                "{url} has no such database for {} ({message}): check its name, or create the user in it",
                self.user
            )),
            976 | 978 | 979 => self.read_only(),
            _ => Error::unreachable(format!("{url} cannot be used now ({message}): try again")),
        }
    }

    /// Something went wrong with a batch that was sent.
    pub(crate) fn of_batch(&self, error: &SqlError) -> Error {
        match error {
            SqlError::Server(said) if said.class() < FATAL_CLASS => self.of_answer(said),
            error => Error::unavailable(format!(
                "{} did not answer ({}): what was asked for may have happened; try again",
                self.url,
                text(error)
            )),
        }
    }

    /// The server's answer. Below class 20 everything was undone, so nothing has happened.
    fn of_answer(&self, said: &TokenError) -> Error {
        let (url, table, message) = (&self.url, &self.table, said.message());
        let init = self.init();
        match said.code() {
            208 | 2760 => Error::misconfigured(format!(
                "the table {table} is missing in {url}: create it with {init}"
            )),
            207 => Error::misconfigured(format!(
                "the table {table} lacks a column ({message}): add it with {init}"
            )),
            229 | 230 | 262 => Error::misconfigured(format!(
                "{} lacks a right ({message}): GRANT SELECT, INSERT, UPDATE ON {table}, as `tenure schema` prints it",
                self.user
            )),
            8622 => Error::misconfigured(format!(
                "the table {table} has no index on LeaseKey: make it the primary key, or use another table with {init}"
            )),
            2627 | 2601 => Error::unreachable(format!(
                "the record stands in {table} already ({message}): nothing was changed; try again"
            )),
            2628 | 8152 => Error::invalid(format!(
                "the key or the holder is longer than its column in {table} ({message}): choose a shorter one, or widen the column to what `tenure schema` prints"
            )),
            3906 | 3908 | READ_ONLY => self.read_only(),
            OPEN_TRANSACTION => Error::misconfigured(format!(
                "the connection to {url} has a transaction open, in which nothing can be confirmed: give the store one of its own"
            )),
            1222 => Error::unreachable(format!(
                "the record in {table} is locked by another session ({message}): nothing was changed; see who with sys.dm_tran_locks"
            )),
            DEADLOCK => Error::unreachable(format!(
                "{url} chose us as the victim of one deadlock after another ({message}): nothing was changed; try again"
            )),
            1101 | 1105 | 9002 => Error::unreachable(format!(
                "{url} has no room left ({message}): make room; nothing was changed"
            )),
            102 | 156 | 195 | 206 | 241 | 245 | 257 | 259 | 334 | 402 | 515 | 547 | 4902 | 8114
            | 8115 | 10794 => Error::misconfigured(format!(
                "the table {table} is not as it has to be ({message}): compare it with what `tenure schema` prints"
            )),
            _ => Error::unreachable(format!(
                "{url} cannot do it now ({message}): nothing was changed; try again"
            )),
        }
    }

    fn read_only(&self) -> Error {
        Error::misconfigured(format!(
            "{} takes no writes (a secondary replica, or set read-only): name the primary or the listener of the availability group",
            self.url
        ))
    }

    /// No answer in time.
    pub(crate) fn timed_out(&self) -> Error {
        Error::unavailable(format!(
            "{} did not answer in time: what was asked for may have happened; try again, or allow more with command_timeout=TIME",
            self.url
        ))
    }

    /// No free connection in time.
    pub(crate) fn exhausted(&self) -> Error {
        Error::unreachable(format!(
            "all connections to {} are in use: nothing was sent; try again, or allow more with pool=NUMBER",
            self.url
        ))
    }

    pub(crate) fn unreachable(&self, why: &str) -> Error {
        Error::unreachable(format!("{} cannot be reached ({why}): try again", self.url))
    }

    /// A batch gave no record although it has to.
    pub(crate) fn no_answer(&self) -> Error {
        Error::misconfigured(format!(
            "the table {} swallowed a record: remove the trigger or the row policy on it",
            self.table
        ))
    }

    /// What was written is not what was meant to be.
    pub(crate) fn cut_short(&self) -> Error {
        Error::misconfigured(format!(
            "the column ExpiresAtUtc of {} does not keep milliseconds, or a trigger changes it: make it a datetime2(3)",
            self.table
        ))
    }
}

pub(crate) fn is_deadlock(error: &SqlError) -> bool {
    error.code() == Some(DEADLOCK)
}

/// Whether the connection can be used for the next batch: it told a clear no, which has
/// undone its transaction.
pub(crate) fn is_usable_after(error: &SqlError) -> bool {
    match error {
        SqlError::Server(said) => said.class() < RESOURCE_CLASS && said.code() != OPEN_TRANSACTION,
        _ => false,
    }
}

fn text(error: &SqlError) -> String {
    match error {
        SqlError::Server(said) => said.message().to_owned(),
        SqlError::Io { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// The driver goes on to name its own settings, which are not ours.
fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").unwrap_or(text.len());
    let sentence = &text[..end];
    let known = "the server's certificate was rejected during the TLS handshake: ";
    sentence.strip_prefix(known).unwrap_or(sentence)
}
