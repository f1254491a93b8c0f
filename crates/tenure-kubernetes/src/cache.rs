//! The objects that this store has written last, so that a renewal is one request.
//!
//! Nothing rests on it: an object is used only for the lease of just that version, and the
//! API server compares the version again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::{Key, Lease};

use crate::record::Record;

/// More than one process leads by far; beyond it a renewal is two requests.
const RECORDS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<HashMap<Key, Record>>);

impl Cache {
    /// The object of this lease in the state that the caller knows.
    pub(crate) fn get(&self, lease: &Lease) -> Option<Record> {
        let records = self.lock();
        let record = records.get(&lease.key)?;
        (record.version() == lease.version).then(|| record.clone())
    }

    pub(crate) fn keep(&self, key: &Key, record: &Record) {
        let mut records = self.lock();
        if records.len() < RECORDS_MAX || records.contains_key(key) {
            records.insert(key.clone(), record.clone());
        }
    }

    pub(crate) fn drop(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
