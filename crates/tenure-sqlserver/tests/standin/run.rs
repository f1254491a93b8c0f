//! Runs a batch, statement by statement, among others that run at the same time: it gives
//! way after each. Reads see what was committed (as with READ_COMMITTED_SNAPSHOT), update
//! locks are held to the end of the transaction.
//!
//! It also refuses what our batches must not do, with an error of its own (59999): to write
//! outside a transaction, or what it has not locked before; to insert without the lock of
//! the gap; to write by a clock that was read before the lock.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use super::database::{Database, Fault, Row, Value};
use super::parse::{Expr, Statement, Type, parse};
use super::values::{DAY, check_columns, fit, operate};

const BROKEN_RULE: u32 = 59_999;

/// One session of the server.
pub struct Session {
    pub id: u64,
    database: Database,
    pub transactions: u32,
    pending: Option<(String, String, Row)>,
    locked: Option<Locked>,
}

struct Locked {
    gap: bool,
    clock_read: bool,
}

/// The names and values of one result.
#[derive(Default)]
pub struct Answer {
    pub names: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

struct Run<'a> {
    session: &'a mut Session,
    variables: HashMap<String, (Type, Value)>,
    row_count: i64,
    answer: Answer,
    caught: Option<Fault>,
    options: Vec<String>,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'a>>;

fn broken(text: &str) -> Fault {
    Fault::new(BROKEN_RULE, text)
}

impl Session {
    pub fn new(id: u64, database: Database) -> Self {
        Self {
            id,
            database,
            transactions: 0,
            pending: None,
            locked: None,
        }
    }

    pub async fn run(&mut self, batch: &str, parameters: Vec<Value>) -> Result<Answer, Fault> {
        let statements = parse(batch).map_err(|why| Fault::new(102, format!("syntax: {why}")))?;
        let named = parameters.into_iter().zip(1..);
        let variables = named.map(|(value, n)| {
            let kind = match value {
                Value::Number(_) => Type::BigInt,
                _ => Type::Text(4000),
            };
            (format!("@P{n}"), (kind, value))
        });
        let mut run = Run {
            variables: variables.collect(),
            session: self,
            row_count: 0,
            answer: Answer::default(),
            caught: None,
            options: Vec::new(),
        };
        run.all(&statements).await?;
        for option in [
            "XACT_ABORT ON",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
        ] {
            if !run.options.iter().any(|set| set == option) {
                return Err(broken(&format!("without SET {option}")));
            }
        }
        Ok(run.answer)
    }

    pub fn end_transaction(&mut self, commit: bool) {
        let mut inner = self.database.lock();
        if let Some((table, index, row)) = self.pending.take()
            && commit
            && let Some(table) = inner.tables.get_mut(&table)
        {
            table.rows.insert(index, row);
        }
        inner.locks.retain(|_, id| *id != self.id);
        self.transactions = 0;
        self.locked = None;
        self.database.freed.notify_waiters();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_transaction(false);
    }
}

impl Run<'_> {
    fn all<'a>(&'a mut self, statements: &'a [Statement]) -> Running<'a> {
        Box::pin(async move {
            for statement in statements {
                self.one(statement).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    async fn one(&mut self, statement: &Statement) -> Result<(), Fault> {
        match statement {
            Statement::Option(text) => self.options.push(text.clone()),
            Statement::Declare(name, kind, value) => {
                let value = match value {
                    Some(value) => fit(kind, self.value(value, None)?)?,
                    None => Value::Null,
                };
                self.variables.insert(name.clone(), (kind.clone(), value));
            }
            Statement::Set(name, value) => {
                let value = self.value(value, None)?;
                self.assign(name, value)?;
            }
            Statement::If(condition, then, other) => {
                let holds = self.value(condition, None)? == Value::Number(1);
                self.all(if holds { then } else { other }).await?;
            }
            Statement::Try(tried, caught) => {
                if let Err(fault) = self.all(tried).await {
                    // As XACT_ABORT has it, all is undone, whatever the CATCH says.
                    self.caught = Some(fault);
                    self.all(caught).await?;
                }
            }
            Statement::Begin => self.session.transactions += 1,
            Statement::Commit => self.session.end_transaction(true),
            Statement::Rollback => self.session.end_transaction(false),
            Statement::Throw(Some((number, text))) => return Err(Fault::new(*number, text)),
            Statement::Throw(None) => return Err(self.caught.clone().unwrap_or(broken("THROW"))),
            Statement::Look(items, table, hints) => self.look(items, table, hints).await?,
            Statement::Answer(items) => {
                if self.session.transactions != 0 {
                    return Err(broken("an answer before COMMIT"));
                }
                let row = items.iter().map(|(value, _)| self.value(value, None));
                let row = row.collect::<Result<_, _>>()?;
                self.answer.names = items.iter().map(|(_, name)| name.clone()).collect();
                self.answer.rows.push(row);
            }
            Statement::List(items, table, condition) => self.list(items, table, condition)?,
            Statement::Insert(table, columns, values) => {
                if !self
                    .session
                    .locked
                    .as_ref()
                    .is_some_and(|locked| locked.gap)
                {
                    return Err(broken("INSERT without the lock of the gap"));
                }
                let values = values.iter().map(|value| self.value(value, None));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                self.write(table, columns.iter().cloned().zip(values).collect(), true)?;
            }
            Statement::Update(table, set) => {
                let set = set
                    .iter()
                    .map(|(column, value)| Ok((column.clone(), self.value(value, None)?)));
                let set = set.collect::<Result<_, Fault>>()?;
                self.write(table, set, false)?;
            }
        }
        Ok(())
    }

    fn assign(&mut self, name: &str, value: Value) -> Result<(), Fault> {
        let variable = self.variables.get_mut(name);
        let (kind, old) = variable.ok_or_else(|| Fault::new(137, format!("declare {name}")))?;
        *old = fit(kind, value)?;
        Ok(())
    }

    fn key(&self) -> String {
        match &self.variables["@key"] {
            (_, Value::Text(key)) => key.clone(),
            _ => String::new(),
        }
    }

    async fn look(
        &mut self,
        items: &[(String, Expr)],
        table: &str,
        hints: &[String],
    ) -> Result<(), Fault> {
        let has = |hint: &str| hints.iter().any(|h| h == hint);
        let key = self.key();
        let mut row = loop {
            let freed = self.session.database.freed.clone();
            let waiting = freed.notified();
            {
                let mut inner = self.session.database.lock();
                let index = inner.index(&key);
                let name = table.to_owned();
                let missing = || Fault::new(208, format!("Invalid object name '{name}'."));
                let found = inner.tables.get(table).ok_or_else(missing)?;
                for (_, column) in items {
                    check_columns(column, &found.columns.keys().collect::<Vec<_>>())?;
                }
                let row = found.rows.get(&index).cloned();
                if !has("UPDLOCK") {
                    break row;
                }
                let place = (name, index);
                let owner = inner.locks.get(&place).copied();
                if owner.is_none() || owner == Some(self.session.id) {
                    if self.session.transactions != 0 && (row.is_some() || has("HOLDLOCK")) {
                        inner.locks.insert(place, self.session.id);
                        let gap =
                            has("HOLDLOCK") || self.session.locked.as_ref().is_some_and(|l| l.gap);
                        let clock_read = false;
                        self.session.locked = Some(Locked { gap, clock_read });
                    }
                    break row;
                }
            }
            waiting.await;
        };
        if let Some((_, _, pending)) = &self.session.pending {
            row = Some(pending.clone());
        }
        self.row_count = i64::from(row.is_some());
        if let Some(row) = row {
            for (name, value) in items {
                let value = self.value(value, Some(&row))?;
                self.assign(name, value)?;
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        items: &[(Expr, String)],
        table: &str,
        condition: &Expr,
    ) -> Result<(), Fault> {
        let rows = {
            let inner = self.session.database.lock();
            let found = inner.tables.get(table);
            let missing = || Fault::new(208, format!("Invalid object name '{table}'."));
            let rows = found.ok_or_else(missing)?.rows.values().cloned();
            // In no order, so that nobody relies on one.
            rows.rev().collect::<Vec<_>>()
        };
        self.answer.names = items.iter().map(|(_, name)| name.clone()).collect();
        for row in rows {
            if self.value(condition, Some(&row))? == Value::Number(1) {
                let values = items.iter().map(|(value, _)| self.value(value, Some(&row)));
                let values = values.collect::<Result<_, _>>()?;
                self.answer.rows.push(values);
            }
        }
        Ok(())
    }

    fn write(&mut self, table: &str, set: Row, insert: bool) -> Result<(), Fault> {
        let key = self.key();
        let session = &mut *self.session;
        let Some(locked) = session
            .locked
            .as_ref()
            .filter(|_| session.transactions == 1)
        else {
            return Err(broken("a write of what is not locked in a transaction"));
        };
        if !locked.clock_read {
            return Err(broken("a write by a clock that was read before the lock"));
        }
        let inner = session.database.lock();
        if inner.read_only {
            return Err(Fault::new(
                3906,
                "Failed to update database \"app\" because the database is read-only.",
            ));
        }
        let index = inner.index(&key);
        let found = &inner.tables[table];
        let row = found.rows.get(&index);
        if insert && row.is_some() {
            return Err(Fault::new(2627, "Violation of PRIMARY KEY constraint."));
        }
        let Some(mut row) = row.cloned().or_else(|| insert.then(Row::new)) else {
            return Ok(());
        };
        for (column, value) in set {
            let missing = || Fault::new(207, format!("Invalid column name '{column}'."));
            let kind = found.columns.get(&column).ok_or_else(missing)?;
            if let (Type::Text(units), Value::Text(text)) = (kind, &value)
                && text.encode_utf16().count() > *units
            {
                let text = format!(
                    "String or binary data would be truncated in table '{table}', column '{column}'."
                );
                return Err(Fault::new(2628, text));
            }
            row.insert(column, fit(kind, value)?);
        }
        drop(inner);
        session.pending = Some((table.into(), index, row));
        Ok(())
    }

    /// Booleans are 1, 0 and NULL.
    fn value(&mut self, expr: &Expr, row: Option<&Row>) -> Result<Value, Fault> {
        Ok(match expr {
            Expr::Null => Value::Null,
            Expr::Number(number) => Value::Number(*number),
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Variable(name) if name == "@@ROWCOUNT" => Value::Number(self.row_count),
            Expr::Variable(name) if name == "@@TRANCOUNT" => {
                Value::Number(self.session.transactions.into())
            }
            Expr::Variable(name) => match self.variables.get(name) {
                Some((_, value)) => value.clone(),
                None => return Err(Fault::new(137, format!("declare {name}"))),
            },
            Expr::Column(name) => {
                let value = row.and_then(|row| row.get(name));
                value.cloned().unwrap_or(match name.as_str() {
                    "Token" => Value::Number(0),
                    _ => Value::Null,
                })
            }
            Expr::Not(inner) => match self.value(inner, row)? {
                Value::Number(one) => Value::Number(1 - one),
                _ => Value::Null,
            },
            Expr::IsNull(inner, not) => {
                let is = self.value(inner, row)? == Value::Null;
                Value::Number((is != *not).into())
            }
            Expr::Case(condition, then, other) => {
                let holds = self.value(condition, row)? == Value::Number(1);
                self.value(if holds { then } else { other }, row)?
            }
            Expr::Collate(inner) => self.value(inner, row)?,
            Expr::Convert(kind, inner) => fit(kind, self.value(inner, row)?)?,
            Expr::Binary(left, sign, right) => {
                let binary = [left, right]
                    .iter()
                    .any(|e| matches!(***e, Expr::Collate(_)));
                let (left, right) = (self.value(left, row)?, self.value(right, row)?);
                operate(&left, sign, &right, binary)?
            }
            Expr::Call(name, arguments) => self.call(name, arguments, row)?,
        })
    }

    fn call(&mut self, name: &str, arguments: &[Expr], row: Option<&Row>) -> Result<Value, Fault> {
        let part = match arguments.first() {
            Some(Expr::Column(part)) => part.clone(),
            _ => String::new(),
        };
        let skip =
            usize::from(name.starts_with("DATE") && name != "DATALENGTH" && !part.is_empty());
        let skip = if name == "DATABASEPROPERTYEX" {
            0
        } else {
            skip
        };
        let values = arguments[skip..].iter().map(|value| self.value(value, row));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        if name != "ISNULL" && values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        Ok(match (name, values.as_slice()) {
            ("SYSUTCDATETIME", []) => {
                if let Some(locked) = &mut self.session.locked {
                    locked.clock_read = true;
                }
                Value::Time(self.session.database.lock().now())
            }
            ("DB_NAME", []) => Value::Text("app".into()),
            ("DATABASEPROPERTYEX", _) => {
                // Only what a secondary says; a database set read-only says it with the write.
                Value::Text("READ_WRITE".into())
            }
            ("ISNULL", [value, other]) => match value {
                Value::Null => other.clone(),
                value => value.clone(),
            },
            ("DATALENGTH", [Value::Text(text)]) => {
                Value::Number(i64::try_from(text.encode_utf16().count() * 2).unwrap())
            }
            ("SUBSTRING", [Value::Text(text), Value::Number(1), Value::Number(units)]) => {
                let units = text.encode_utf16().take(usize::try_from(*units).unwrap());
                Value::Text(String::from_utf16_lossy(&units.collect::<Vec<_>>()))
            }
            ("DATEADD", [Value::Number(count), Value::Time(time)]) => {
                if i32::try_from(*count).is_err() {
                    return Err(Fault::new(8115, "Arithmetic overflow error"));
                }
                let unit = match part.as_str() {
                    "second" => 10_000_000,
                    "millisecond" => 10_000,
                    _ => return Err(broken(&part)),
                };
                Value::Time(time + count * unit)
            }
            ("DATEDIFF", [Value::Time(from), Value::Time(to)]) => {
                // Boundaries that were crossed, as an int.
                let unit = match part.as_str() {
                    "day" => DAY,
                    "second" => 10_000_000,
                    _ => return Err(broken(&part)),
                };
                let crossed = to.div_euclid(unit) - from.div_euclid(unit);
                i32::try_from(crossed).map_err(|_| Fault::new(535, "overflow in DATEDIFF"))?;
                Value::Number(crossed)
            }
            ("DATEPART", [Value::Time(time)]) if part == "microsecond" => {
                Value::Number(time.rem_euclid(10_000_000) / 10)
            }
            _ => return Err(Fault::new(195, format!("{name} of {values:?}"))),
        })
    }
}
