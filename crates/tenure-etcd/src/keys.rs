//! Where the records lie, and the transactions on them.

use tenure::{Error, Holder, Key, Result, Token};

use crate::proto::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    Request, RequestOp, Response, TxnRequest, TxnResponse,
};
use crate::record::{NOTES, Note, Record};

/// The prefix of all records of a store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        if prefix.is_empty() || prefix.chars().any(char::is_control) {
            return Err(Error::invalid(
                "the prefix of an etcd store has to have at least one character and no control characters",
            ));
        }
        // No record may lie where a note could.
        if prefix.starts_with(NOTES) || NOTES.starts_with(prefix) {
            return Err(Error::invalid(format!(
                "the prefix {prefix:?} of the etcd store collides with {NOTES:?}, where tenure keeps its notes: choose another"
            )));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn main(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }

    pub(crate) fn note(&self, key: &Key) -> Vec<u8> {
        format!("{NOTES}{}{key}", self.prefix).into_bytes()
    }

    /// The name of the key whose record lies here.
    pub(crate) fn name(&self, at: &[u8]) -> Option<Key> {
        let name = std::str::from_utf8(at).ok()?.strip_prefix(&self.prefix)?;
        Key::new(name).ok()
    }

    // Transactions

    /// Both keys as one state.
    pub(crate) fn read(&self, key: &Key) -> Vec<RequestOp> {
        vec![get(self.main(key)), get(self.note(key))]
    }

    /// Takes the key if nobody has it; else reads who has.
    pub(crate) fn take(&self, key: &Key, holder: &Holder, note: &Note, lease: i64) -> TxnRequest {
        TxnRequest {
            compare: vec![created(self.main(key), 0)],
            success: self.put(key, holder, Some(note), lease),
            failure: self.read(key),
        }
    }

    /// Binds the record to another etcd lease, if it is still the one that was read.
    pub(crate) fn rebind(
        &self,
        key: &Key,
        record: &Record,
        note: Option<&Note>,
        lease: i64,
    ) -> TxnRequest {
        TxnRequest {
            compare: self.unchanged(key, record),
            success: self.put(key, &record.holder, note, lease),
            failure: self.read(key),
        }
    }

    /// Writes the note of a record, if both are still as they were read.
    pub(crate) fn write_note(&self, key: &Key, record: &Record, note: &Note) -> TxnRequest {
        TxnRequest {
            compare: self.unchanged(key, record),
            success: vec![put(self.note(key), note.to_json(), record.bound_to)],
            failure: Vec::new(),
        }
    }

    /// Deletes the record if it is of this holder and token.
    pub(crate) fn free(&self, key: &Key, holder: &Holder, token: Token) -> TxnRequest {
        TxnRequest {
            compare: self.owned(key, holder, token),
            success: vec![delete(self.main(key)), delete(self.note(key))],
            failure: Vec::new(),
        }
    }

    fn owned(&self, key: &Key, holder: &Holder, token: Token) -> Vec<Compare> {
        let holder = holder.as_str().as_bytes().to_vec();
        // A token beyond what a revision can be is nobody's.
        let revision = i64::try_from(token.0).unwrap_or(-1);
        vec![
            compare(
                self.main(key),
                CompareTarget::Value,
                CompareWith::Value(holder),
            ),
            created(self.main(key), revision),
        ]
    }

    fn unchanged(&self, key: &Key, record: &Record) -> Vec<Compare> {
        let mut compares = self.owned(key, &record.holder, record.token);
        let lease = CompareWith::Lease(record.bound_to);
        compares.push(compare(self.main(key), CompareTarget::Lease, lease));
        let revision = CompareWith::ModRevision(record.note_revision);
        compares.push(compare(self.note(key), CompareTarget::Mod, revision));
        compares
    }

    fn put(&self, key: &Key, holder: &Holder, note: Option<&Note>, lease: i64) -> Vec<RequestOp> {
        let holder = holder.as_str().as_bytes().to_vec();
        let mut puts = vec![put(self.main(key), holder, lease)];
        puts.extend(note.map(|note| put(self.note(key), note.to_json(), lease)));
        puts
    }
}

/// What the reads of a transaction found, in their order.
pub(crate) fn found(answer: TxnResponse) -> Vec<Vec<KeyValue>> {
    let reads = answer.responses.into_iter().map(|op| match op.response {
        Some(Response::Range(range)) => range.kvs,
        Some(Response::DeleteRange(deleted)) => deleted.prev_kvs,
        _ => Vec::new(),
    });
    reads.collect()
}

/// The record that [`Keys::read`] found.
pub(crate) fn record(key: &Key, answer: TxnResponse) -> Result<Option<Record>> {
    let found = found(answer);
    let at = |index: usize| found.get(index).and_then(|kvs| kvs.first());
    Record::read(key, at(0), at(1))
}

/// The end of the range of all keys that begin so: no byte of UTF-8 is 255.
pub(crate) fn range_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

pub(crate) fn get(key: Vec<u8>) -> RequestOp {
    range(RangeRequest {
        key,
        ..RangeRequest::default()
    })
}

pub(crate) fn range(range: RangeRequest) -> RequestOp {
    RequestOp {
        request: Some(Request::Range(range)),
    }
}

fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    RequestOp {
        request: Some(Request::Put(PutRequest { key, value, lease })),
    }
}

fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp {
        request: Some(Request::DeleteRange(DeleteRangeRequest {
            key,
            prev_kv: true,
        })),
    }
}

fn created(key: Vec<u8>, revision: i64) -> Compare {
    compare(
        key,
        CompareTarget::Create,
        CompareWith::CreateRevision(revision),
    )
}

fn compare(key: Vec<u8>, target: CompareTarget, with: CompareWith) -> Compare {
    Compare {
        target: target.into(),
        key,
        with: Some(with),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_collides_with_the_notes_is_refused() {
        for prefix in ["", "t", "tenure/", "tenure", "tenure/x", "a\nb"] {
            assert!(Keys::new(prefix).is_err(), "{prefix:?}");
        }
        for prefix in ["app_runtime_leases/", "/", "x", "tenure-leases/", "Tenure/"] {
            assert!(Keys::new(prefix).is_ok(), "{prefix:?}");
        }
    }

    #[test]
    fn keys_lie_where_hamode_has_them() {
        let keys = Keys::new("app_runtime_leases/").unwrap();
        let key = Key::new("a/b").unwrap();
        assert_eq!(keys.main(&key), b"app_runtime_leases/a/b");
        assert_eq!(keys.note(&key), b"tenure/app_runtime_leases/a/b");
        assert_eq!(keys.name(b"app_runtime_leases/a/b"), Some(key));
        assert_eq!(keys.name(b"app_runtime_leases/"), None);
        assert_eq!(keys.name(b"app_runtime_leases/\xff"), None);
        assert_eq!(range_end(b"a/"), b"a0");
    }
}
