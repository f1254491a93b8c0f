//! SQLite: a guard in the caller's own transaction.
//!
//! The greatest token of each resource is one row of the same database. A transaction that
//! has raised it is the only one that writes until it ends, so the check and the writes are
//! one step. There is no round trip here: the guard costs one statement.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure::{Tenure, Token};

use crate::error::{FenceError, Result};
use crate::token::{check, kept, sendable, signed};

/// Makes the table. Once, by whoever makes the tables of the application.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS tenure_fences (
  resource TEXT PRIMARY KEY,
  token INTEGER NOT NULL
)";

/// Raises the fence of resource `?1` to token `?2`. No row comes back if a greater token
/// has been there: then roll back.
pub const RAISE: &str = "INSERT INTO tenure_fences (resource, token) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE tenure_fences.token <= excluded.token
RETURNING token";

const SEEN: &str = "SELECT token FROM tenure_fences WHERE resource = ?1";

/// The fence of one resource: a name that all its writers agree on, such as `outbox`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> { tokio::runtime::Runtime::new()?.block_on(async {
/// use rusqlite::Connection;
/// use tenure::{Elector, MemoryStore, Settings};
/// use tenure_fences::sqlite::SqliteFence;
///
/// let mut connection = Connection::open_in_memory()?;
/// SqliteFence::init(&connection)?;
/// connection.execute_batch("CREATE TABLE jobs (name TEXT)")?;
///
/// let elector = Elector::start(MemoryStore::new(), Settings::new("jobs")?)?;
/// let tenure = elector.elected().await?;
/// let fence = SqliteFence::new("jobs")?;
/// let transaction = fence.begin(&mut connection, &tenure)?;
/// transaction.execute("INSERT INTO jobs VALUES ('nightly')", [])?;
/// transaction.commit()?;
/// assert_eq!(fence.seen(&connection)?, tenure.token());
/// # elector.stop().await; Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteFence {
    resource: String,
}

impl SqliteFence {
    /// The fence of this resource.
    pub fn new(resource: impl Into<String>) -> Result<Self> {
        let resource = crate::names::resource(resource)?;
        Ok(Self { resource })
    }

    /// Makes the table if it is not there.
    pub fn init(connection: &Connection) -> Result<()> {
        Ok(connection.execute_batch(TABLE)?)
    }

    /// Begins a transaction whose first statement is the guard. It waits for other writers
    /// as long as the connection's `busy_timeout` says.
    pub fn begin<'c>(
        &self,
        connection: &'c mut Connection,
        tenure: &Tenure,
    ) -> Result<Transaction<'c>> {
        sendable(tenure)?;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.guard(begun, tenure)
    }

    /// Guards a transaction: it comes back only if no greater token has been here, and is
    /// rolled back otherwise.
    pub fn guard<'c>(
        &self,
        mut transaction: Transaction<'c>,
        tenure: &Tenure,
    ) -> Result<Transaction<'c>> {
        match self.raise(&transaction, tenure) {
            Ok(()) => Ok(transaction),
            Err(error) => {
                // Whatever the caller has set for a transaction that is dropped.
                transaction.set_drop_behavior(rusqlite::DropBehavior::Rollback);
                Err(error)
            }
        }
    }

    /// Raises the fence and nothing else: the first act of a new leader.
    pub fn raise(&self, connection: &Connection, tenure: &Tenure) -> Result<()> {
        let token = sendable(tenure)?;
        let mut statement = connection.prepare_cached(RAISE)?;
        let mut rows = statement.query(params![self.resource, signed(token)])?;
        let is_raised = rows.next()?.is_some();
        // To the very end: outside a transaction the last step is the commit, and may fail.
        while rows.next()?.is_some() {}
        if is_raised {
            return Ok(());
        }
        check(token, self.seen(connection)?)?;
        // Refused, and then somebody lowered the row by hand.
        let resource = self.resource.clone();
        Err(FenceError::Busy { resource })
    }

    /// The greatest token that has been here.
    pub fn seen(&self, connection: &Connection) -> Result<Token> {
        let mut statement = connection.prepare_cached(SEEN)?;
        let number = statement
            .query_row([&self.resource], |row| row.get(0))
            .optional()?;
        match number {
            Some(number) => kept(&self.resource, number),
            None => Err(FenceError::NeverFenced {
                resource: self.resource.clone(),
            }),
        }
    }
}

impl From<rusqlite::Error> for FenceError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => FenceError::Busy {
                resource: "the database".to_owned(),
            },
            _ => FenceError::resource(error),
        }
    }
}
