//! PostgreSQL: a guard in the caller's own transaction, or in the very statement that writes.
//!
//! The greatest token of each resource is one row. Raising it locks that row until the
//! caller's transaction ends, so that the check and all writes of the transaction are one
//! step: a newer leader waits until an older one's open transaction has ended, and an older
//! one waits and is then turned away.
//!
//! A leader that is paused inside a transaction thus makes its successor wait. Give the
//! role a bound on both sides, `idle_in_transaction_session_timeout` and `lock_timeout`.

use tenure::{Tenure, Token};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::error::{FenceError, Result};
use crate::token::{check, kept, sendable, signed};

/// Makes the table. Once, by whoever makes the tables of the application.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS tenure_fences (
  resource text PRIMARY KEY,
  token bigint NOT NULL
)";

/// Raises the fence of resource `$1` to token `$2`. No row comes back if a greater token
/// has been there: then roll back.
pub const RAISE: &str = "INSERT INTO tenure_fences (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE tenure_fences.token <= excluded.token
RETURNING token";

const SEEN: &str = "SELECT token FROM tenure_fences WHERE resource = $1";

/// The fence of one resource: a name that all its writers agree on, such as `outbox`.
///
/// ```no_run
/// # async fn write(client: &mut tokio_postgres::Client, tenure: &tenure::Tenure) -> tenure_fences::Result<()> {
/// use tenure_fences::postgres::PostgresFence;
///
/// let fence = PostgresFence::new("outbox")?;
/// let transaction = fence.begin(client, tenure).await?;
/// transaction
///     .execute("UPDATE outbox SET sent = true WHERE id = 7", &[])
///     .await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresFence {
    resource: String,
}

impl PostgresFence {
    /// The fence of this resource.
    pub fn new(resource: impl Into<String>) -> Result<Self> {
        let resource = crate::names::resource(resource)?;
        Ok(Self { resource })
    }

    /// Makes the table if it is not there.
    pub async fn init(client: &impl GenericClient) -> Result<()> {
        Ok(client.batch_execute(TABLE).await?)
    }

    /// Begins a transaction whose first statement is the guard.
    pub async fn begin<'c>(
        &self,
        client: &'c mut Client,
        tenure: &Tenure,
    ) -> Result<Transaction<'c>> {
        sendable(tenure)?;
        let transaction = client.transaction().await?;
        self.guard(transaction, tenure).await
    }

    /// Guards a transaction: it comes back only if no greater token has been here, and is
    /// rolled back otherwise. Guard first, so that what follows reads what the predecessor
    /// has written last; and guard the whole transaction, not a savepoint in it.
    pub async fn guard<'c>(
        &self,
        transaction: Transaction<'c>,
        tenure: &Tenure,
    ) -> Result<Transaction<'c>> {
        match self.admit(&transaction, tenure).await {
            Ok(()) => Ok(transaction),
            Err(error) => {
                // The refusal is what counts; the transaction is rolled back either way.
                let _ = transaction.rollback().await;
                Err(error)
            }
        }
    }

    /// The guard alone, for a transaction that a pool has wrapped. On an error do not
    /// commit: [`guard`](Self::guard) sees to that by itself.
    pub async fn admit(&self, transaction: &Transaction<'_>, tenure: &Tenure) -> Result<()> {
        self.raise_by(transaction, tenure).await
    }

    /// Raises the fence and nothing else: the first act of a new leader.
    pub async fn raise(&self, client: &impl GenericClient, tenure: &Tenure) -> Result<()> {
        self.raise_by(client, tenure).await
    }

    async fn raise_by(&self, client: &impl GenericClient, tenure: &Tenure) -> Result<()> {
        let token = sendable(tenure)?;
        let row = client
            .query_typed_opt(
                RAISE,
                &[(&self.resource, Type::TEXT), (&signed(token), Type::INT8)],
            )
            .await?;
        match row {
            Some(_) => Ok(()),
            None => Err(self.turned_away(client, token).await),
        }
    }

    /// Writes with the guard riding in the same statement: one round trip, as without it.
    ///
    /// The statement is an `INSERT`, `UPDATE` or `DELETE` that writes only if the guard let
    /// it: `… WHERE id = $1 AND EXISTS (SELECT FROM fence)`, or `… SELECT $1 FROM fence`. It
    /// must not depend on what it reads, because it sees the data as they were before it
    /// waited for the predecessor; where it does, use [`begin`](Self::begin).
    ///
    /// The parameters come with their types, so that nothing has to be prepared first.
    /// Returns how many rows were written.
    ///
    /// ```no_run
    /// # async fn write(client: &tokio_postgres::Client, tenure: &tenure::Tenure) -> tenure_fences::Result<()> {
    /// # use tenure_fences::postgres::PostgresFence;
    /// use tokio_postgres::types::Type;
    /// let fence = PostgresFence::new("outbox")?;
    /// let statement = "UPDATE outbox SET sent = true
    ///     WHERE id = $1 AND EXISTS (SELECT FROM fence)";
    /// fence.write(client, tenure, statement, &[(&7_i64, Type::INT8)]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn write(
        &self,
        client: &impl GenericClient,
        tenure: &Tenure,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64> {
        let token = sendable(tenure)?;
        let text = riding(statement, parameters.len())?;
        let signed = signed(token);
        let mut all = parameters.to_vec();
        all.extend([
            (&self.resource as &(dyn ToSql + Sync), Type::TEXT),
            (&signed, Type::INT8),
        ]);
        let written = client.execute_typed(&text, &all).await?;
        if written == 0 {
            // Turned away, or nothing to write: only now it is worth a second question.
            check(token, self.seen(client).await?)?;
        }
        Ok(written)
    }

    /// The greatest token that has been here.
    pub async fn seen(&self, client: &impl GenericClient) -> Result<Token> {
        let parameters: [(&(dyn ToSql + Sync), _); 1] = [(&self.resource, Type::TEXT)];
        match client.query_typed_opt(SEEN, &parameters).await? {
            Some(row) => kept(&self.resource, row.try_get(0)?),
            None => Err(FenceError::NeverFenced {
                resource: self.resource.clone(),
            }),
        }
    }

    async fn turned_away(&self, client: &impl GenericClient, token: Token) -> FenceError {
        match self.seen(client).await.and_then(|seen| check(token, seen)) {
            Err(error) => error,
            // Refused, and then somebody lowered or removed the row by hand.
            Ok(()) => FenceError::Busy {
                resource: self.resource.clone(),
            },
        }
    }
}

impl From<tokio_postgres::Error> for FenceError {
    fn from(error: tokio_postgres::Error) -> Self {
        if error.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE) {
            let resource = "the table tenure_fences".to_owned();
            return FenceError::Busy { resource };
        }
        // What the server said stands in its source, and not in the error's own text.
        match error.as_db_error() {
            Some(said) => FenceError::resource(said.to_string()),
            None => FenceError::resource(error),
        }
    }
}

/// The caller's statement behind the guard, whose parameters come after the caller's.
fn riding(statement: &str, parameters: usize) -> Result<String> {
    let words = statement
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let mut words = words.peekable();
    let first = words.peek().copied().unwrap_or_default();
    if !["insert", "update", "delete", "merge"].contains(&first.to_ascii_lowercase().as_str()) {
        return Err(FenceError::Invalid(
            "a guard rides in an INSERT, UPDATE, DELETE or MERGE: for anything else begin a fenced transaction"
                .to_owned(),
        ));
    }
    if !words.any(|word| word.eq_ignore_ascii_case("fence")) {
        return Err(FenceError::Invalid(
            "the statement does not ask its guard: let it write only if EXISTS (SELECT FROM fence)"
                .to_owned(),
        ));
    }
    let raise = RAISE
        .replace("$2", &format!("${}", parameters + 2))
        .replace("$1", &format!("${}", parameters + 1));
    Ok(format!("WITH fence AS (\n{raise}\n)\n{statement}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_s_parameters_come_after_the_caller_s() {
        let text = riding("UPDATE t SET a = $1 WHERE EXISTS (SELECT FROM fence)", 1).unwrap();
        assert!(text.contains("VALUES ($2, $3)"), "{text}");
        let text = riding("DELETE FROM t WHERE EXISTS (SELECT FROM fence)", 0).unwrap();
        assert!(text.contains("VALUES ($1, $2)"), "{text}");
    }

    #[test]
    fn a_statement_that_forgets_its_guard_is_refused() {
        assert!(riding("UPDATE t SET a = 1", 0).is_err());
        assert!(riding("UPDATE fences SET a = 1", 0).is_err());
        assert!(riding("SELECT 1 FROM fence", 0).is_err());
        assert!(riding("", 0).is_err());
    }
}
