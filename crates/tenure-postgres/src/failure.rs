//! What the server and the driver say, as errors that tell the caller what to do.

use std::error::Error as _;
use std::io;

use tenure::Error;
use tokio_postgres::Error as PgError;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::options::PostgresOptions;

/// What messages name: never a secret.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    table: String,
    role: String,
    several: bool,
}

impl Place {
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        let role = options.user.as_deref().map(crate::names::quoted);
        Self {
            url: options.shown(),
            table: options.table.to_string(),
            role: role.unwrap_or_else(|| "the role".into()),
            several: options.servers.len() > 1,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The command that makes what is missing.
    fn init(&self) -> String {
        match self.url.starts_with("postgres:") {
            true => format!("`tenure init --store '{}'`", self.url),
            false => "`tenure init`, or run what `PostgresOptions::schema` gives".into(),
        }
    }

    /// No connection could be had, so nothing was sent.
    pub(crate) fn of_connect(&self, error: &PgError) -> Error {
        let url = &self.url;
        if let Some(said) = error.as_db_error() {
            return self.of_refused(said);
        }
        let why = text(error);
        // The driver has no public kinds; its own words are the only sign.
        match error.to_string().as_str() {
            "authentication error" => Error::misconfigured(format!(
                "{url} cannot be logged in to ({why}): name the user and the password (in the URL, password-file=FILE or TENURE_STORE_PASSWORD)"
            )),
            "invalid configuration" => Error::misconfigured(format!(
                "{url} cannot be logged in to ({why}): name the user and the password (in the URL, password-file=FILE or TENURE_STORE_PASSWORD)"
            )),
            "error performing TLS handshake" if is_tls_verdict(error) => {
                Error::misconfigured(format!(
                    "{url} cannot be reached safely ({why}): check sslmode, tls-ca, tls-cert and the server's certificate"
                ))
            }
            _ if is_read_only_host(error) && !self.several => self.read_only(),
            _ => Error::unreachable(format!("{url} cannot be reached ({why}): try again")),
        }
    }

    /// What the server said instead of letting us in.
    fn of_refused(&self, said: &DbError) -> Error {
        let (url, message) = (&self.url, said.message());
        match said.code().code() {
            "28P01" => Error::misconfigured(format!(
                "{url} does not accept the password ({message}): check it (in the URL, password-file=FILE or TENURE_STORE_PASSWORD)"
            )),
            "28000" => Error::misconfigured(format!(
                "{url} does not let this user in ({message}): check the user, sslmode and the server's pg_hba.conf"
            )),
            "3D000" => Error::misconfigured(format!(
                "{url} has no such database ({message}): check its name, or create it with `createdb`"
            )),
            "42501" => Error::misconfigured(format!(
                "{url} does not let {} in ({message}): GRANT CONNECT ON DATABASE to it",
                self.role
            )),
            // Poolers say so of what they do not know.
            "08P01" if message.contains("unsupported startup parameter") => {
                Error::misconfigured(format!(
                    "{url} refuses the connection ({message}): set ignore_startup_parameters in the pooler"
                ))
            }
            _ => Error::unreachable(format!("{url} cannot be used now ({message}): try again")),
        }
    }

    /// The statement was only prepared, so nothing has happened.
    pub(crate) fn of_preparing(&self, error: &PgError) -> Error {
        match error.as_db_error() {
            Some(said) if is_usable_after(error) => self.of_answer(said),
            _ => self.unreachable(&text(error)),
        }
    }

    /// Something went wrong with a statement that was sent.
    pub(crate) fn of_statement(&self, error: &PgError) -> Error {
        let url = &self.url;
        match error.as_db_error() {
            Some(said) => self.of_answer(said),
            None => Error::unavailable(format!(
                "{url} did not answer ({}): what was asked for may have happened; try again",
                text(error)
            )),
        }
    }

    /// The server's answer. An ERROR undoes the whole statement, so nothing has
    /// happened; FATAL can come after a commit.
    fn of_answer(&self, said: &DbError) -> Error {
        let (url, table, message) = (&self.url, &self.table, said.message());
        if said.parsed_severity() != Some(Severity::Error) {
            return Error::unavailable(format!(
                "{url} broke off ({message}): what was asked for may have happened; try again"
            ));
        }
        let init = self.init();
        let code = said.code();
        match code.code() {
            "42P01" | "3F000" => Error::misconfigured(format!(
                "the table {table} is missing in {url}: create it with {init}"
            )),
            "42703" => Error::misconfigured(format!(
                "the table {table} lacks a column ({message}): add it with {init}"
            )),
            "42501" => Error::misconfigured(format!(
                "{} lacks a right ({message}): GRANT SELECT, INSERT, UPDATE ON {table} and USAGE ON its schema, as `tenure schema` prints it",
                self.role
            )),
            "42P10" => Error::misconfigured(format!(
                "the table {table} has no primary key on lease_name ({message}): add one, or use another table with {init}"
            )),
            "25006" => self.read_only(),
            "55P03" => Error::unreachable(format!(
                "the record in {table} is locked by another session ({message}): nothing was changed; see who with pg_stat_activity"
            )),
            "53100" => Error::unreachable(format!(
                "the disk of {url} is full ({message}): make room; nothing was changed"
            )),
            "22021" | "22P05" => Error::invalid(format!(
                "the database of {url} cannot hold this name in its encoding ({message}): use a database in UTF8, or another name"
            )),
            "XX001" | "XX002" => Error::corrupt(format!(
                "the table {table} is damaged ({message}): look at it with `psql`, and at the server's log"
            )),
            _ if is_of_class(code, &["42", "23", "22", "0A"]) => Error::misconfigured(format!(
                "the table {table} is not as it has to be ({message}): compare it with what `tenure schema` prints"
            )),
            _ => Error::unreachable(format!(
                "{url} cannot do it now ({message}): nothing was changed; try again"
            )),
        }
    }

    pub(crate) fn read_only(&self) -> Error {
        Error::misconfigured(format!(
            "{} takes no writes (a replica, or set read-only): name the primary, or all hosts so that it is found",
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

    /// A statement gave no row although it has to.
    pub(crate) fn no_answer(&self) -> Error {
        Error::misconfigured(format!(
            "the table {} swallowed a record: remove the trigger, rule or row policy on it",
            self.table
        ))
    }
}

fn is_of_class(code: &SqlState, classes: &[&str]) -> bool {
    classes.iter().any(|class| code.code().starts_with(class))
}

/// The driver's words and the causes behind them, in one line.
fn text(error: &PgError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

/// Whether it was TLS itself that said no, and not a connection that broke off.
fn is_tls_verdict(error: &PgError) -> bool {
    let io = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    match io {
        Some(io) => matches!(
            io.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        ),
        None => true,
    }
}

fn is_read_only_host(error: &PgError) -> bool {
    let io = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    io.is_some_and(|io| io.to_string() == "database does not allow writes")
}

/// Whether the connection can be used for the next statement.
pub(crate) fn is_usable_after(error: &PgError) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|said| said.parsed_severity() == Some(Severity::Error))
}
