//! The stand-in's one table: committed rows, what each session has not committed yet, locks
//! by key, and the rules that a batch has to keep.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::{BootClock, Clock};
use tokio::sync::Notify;

use super::parse::Type;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Number(i64),
    Text(String),
    /// In ticks of 100 ns since 1970.
    Time(i64),
}

/// An error as the server tells it.
#[derive(Clone, Debug)]
pub struct Fault {
    pub number: u32,
    pub class: u8,
    pub text: String,
}

impl Fault {
    pub fn new(number: u32, text: impl Into<String>) -> Self {
        let class = match number {
            1205 => 13,
            _ => 16,
        };
        let text = text.into();
        Self {
            number,
            class,
            text,
        }
    }
}

pub type Row = BTreeMap<String, Value>;

/// Shared by all connections.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Mutex<Inner>>,
    pub freed: Arc<Notify>,
}

pub struct Inner {
    /// `schema.table` to its columns; LeaseKey has a unique index.
    pub tables: HashMap<String, Table>,
    /// Who has the update lock of a key, there or not.
    pub locks: HashMap<(String, String), u64>,
    pub ignores_case: bool,
    pub read_only: bool,
    /// Added to the machine's clock.
    pub clock_ahead_ticks: i64,
}

#[derive(Clone, Default)]
pub struct Table {
    pub columns: BTreeMap<String, Type>,
    pub rows: BTreeMap<String, Row>,
}

impl Database {
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                tables: HashMap::new(),
                locks: HashMap::new(),
                ignores_case: false,
                read_only: false,
                clock_ahead_ticks: 0,
            })),
            freed: Arc::new(Notify::new()),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The article's table, or the one that our `init` makes.
    pub fn create(&self, table: &str, units: usize) {
        let columns = [
            ("LeaseKey", Type::Text(units)),
            ("OwnerId", Type::Text(units)),
            ("ExpiresAtUtc", Type::Time(3)),
        ];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind)).into();
        let rows = BTreeMap::new();
        let mut inner = self.lock();
        inner.tables.insert(table.into(), Table { columns, rows });
    }

    pub fn delete(&self, table: &str, key: &str) {
        let mut inner = self.lock();
        if let Some(table) = inner.tables.get_mut(table) {
            table
                .rows
                .retain(|_, row| row.get("LeaseKey") != Some(&Value::Text(key.into())));
        }
    }

    /// The article's MERGE, by the client's clock: taken if missing or ended.
    pub fn article_acquires(
        &self,
        table: &str,
        key: &str,
        owner: &str,
        now: i64,
        ttl: i64,
    ) -> bool {
        let mut inner = self.lock();
        let index = inner.index(key);
        let rows = &mut inner.tables.get_mut(table).unwrap().rows;
        let ended = |row: &Row| matches!(row["ExpiresAtUtc"], Value::Time(end) if end <= now);
        if rows.get(&index).is_some_and(|row| !ended(row)) {
            return false;
        }
        let row = rows.entry(index).or_default();
        row.insert("LeaseKey".into(), Value::Text(key.into()));
        row.insert("OwnerId".into(), Value::Text(owner.into()));
        row.insert("ExpiresAtUtc".into(), Value::Time(to_scale(now + ttl, 3)));
        true
    }

    /// The article's renewal.
    pub fn article_renews(&self, table: &str, key: &str, owner: &str, now: i64, ttl: i64) -> bool {
        let mut inner = self.lock();
        let index = inner.index(key);
        let rows = &mut inner.tables.get_mut(table).unwrap().rows;
        match rows.get_mut(&index) {
            Some(row)
                if row["OwnerId"] == Value::Text(owner.into())
                    && matches!(row["ExpiresAtUtc"], Value::Time(end) if end > now) =>
            {
                row.insert("ExpiresAtUtc".into(), Value::Time(to_scale(now + ttl, 3)));
                true
            }
            _ => false,
        }
    }
}

impl Inner {
    pub fn now(&self) -> i64 {
        let since = BootClock
            .wall()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        i64::try_from(since.as_nanos() / 100).unwrap() + self.clock_ahead_ticks
    }

    /// What the index of LeaseKey takes for one: blanks at the end never count.
    pub fn index(&self, key: &str) -> String {
        let key = key.trim_end_matches(' ');
        match self.ignores_case {
            true => key.to_lowercase(),
            false => key.to_owned(),
        }
    }
}

/// As datetime2 of this scale keeps it: rounded, halves up.
pub fn to_scale(ticks: i64, scale: u8) -> i64 {
    let unit = 10_i64.pow(7 - u32::from(scale));
    (ticks + unit / 2).div_euclid(unit) * unit
}
