//! Who has a key, or which keys are had: what read, list and a refused acquire tell.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::{Key, Lease, Result};

use crate::keys::{self, found};
use crate::proto::{KeyValue, LeaseTimeToLiveResponse, RangeRequest};
use crate::record::Record;
use crate::store::EtcdStore;

/// How many leases are read at a time: a transaction may have 128 operations.
const PAGE: usize = 100;

impl EtcdStore {
    pub(crate) async fn record(&self, key: &Key) -> Result<Option<Record>> {
        let answer = self.client().read(self.keys().read(key)).await?;
        keys::record(key, answer)
    }

    /// The lease of this record with the rest of its term, which etcd tells by itself only;
    /// None if it has just ended.
    pub(crate) async fn told(&self, key: &Key, record: &Record) -> Result<Option<Lease>> {
        let answer = self.client().time_to_live(record.bound_to).await?;
        Ok(lease(key, record, &answer))
    }

    pub(crate) async fn list_pages(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let begin = format!("{}{prefix}", self.keys().prefix()).into_bytes();
        let end = keys::range_end(&begin);
        let mut leases = Vec::new();
        let mut from = begin;
        while leases.len() < limit {
            let wanted = (limit - leases.len()).min(PAGE);
            let page = self.page(&from, &end, wanted).await?;
            let Some(last) = page.last() else {
                break;
            };
            from = [&last.key[..], b"\0"].concat();
            let more = page.len() == wanted;
            leases.extend(self.leases(&page).await?);
            if !more {
                break;
            }
        }
        Ok(leases)
    }

    async fn page(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>> {
        let range = RangeRequest {
            key: from.to_vec(),
            range_end: end.to_vec(),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            ..RangeRequest::default()
        };
        let answer = self.client().read(vec![keys::range(range)]).await?;
        Ok(found(answer).into_iter().flatten().collect())
    }

    /// The leases of these records, with their notes and the rest of their terms.
    async fn leases(&self, page: &[KeyValue]) -> Result<Vec<Lease>> {
        // What lies there under a name that no key can have is nobody's lease.
        let named: Vec<_> = page
            .iter()
            .filter_map(|main| Some((self.keys().name(&main.key)?, main)))
            .collect();
        let reads = named
            .iter()
            .map(|(key, _)| keys::get(self.keys().note(key)));
        let rests = named
            .iter()
            .map(|(_, main)| self.client().time_to_live(main.lease));
        let (notes, rests) = tokio::join!(self.client().read(reads.collect()), join_all(rests));
        let notes = found(notes?);
        let mut leases = Vec::with_capacity(named.len());
        for ((n, (key, main)), rest) in named.iter().enumerate().zip(rests) {
            let note = notes.get(n).and_then(|kvs| kvs.first());
            if let Some(record) = Record::read(key, Some(main), note)? {
                leases.extend(lease(key, &record, &rest?));
            }
        }
        Ok(leases)
    }
}

fn lease(key: &Key, record: &Record, answer: &LeaseTimeToLiveResponse) -> Option<Lease> {
    // Whole seconds, rounded down: the term may last for the next one too. Below zero
    // there is no such etcd lease any more.
    let whole = u64::try_from(answer.ttl).ok()?;
    let granted = Duration::from_secs(u64::try_from(answer.granted_ttl).unwrap_or(0));
    let ttl = record.note.as_ref().map_or(granted, |note| note.ttl());
    let rest = Duration::from_secs(whole.saturating_add(1));
    Some(record.lease(key, ttl, Some(rest)))
}
