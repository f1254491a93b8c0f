//! The calls to etcd that a store makes.

use std::sync::Arc;
use std::time::Duration;

use tenure::Error;

use crate::failure::Failure;
use crate::link::{Answers, Link};
use crate::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};

const TXN: &str = "/etcdserverpb.KV/Txn";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// How long tidying up behind a tenure may take before it is left to the etcd lease's end.
const REVOKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Not at once: whoever waits for the key writes now, and shall not wait for this write.
const REVOKE_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    link: Arc<Link>,
}

/// What a keep-alive was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The etcd lease lives, for this many seconds from now.
    Alive { seconds: i64, term: u64 },
    /// There is no such etcd lease (any more).
    Gone,
}

impl Kept {
    /// Whether the etcd lease surely lives on from after the call was sent.
    ///
    /// A keep-alive goes through no quorum. Some versions of etcd answer it from a leader
    /// that has been replaced without knowing it. But whatever was confirmed beside it by
    /// a quorum has a term: a keep-alive of an earlier term proves nothing; one of the
    /// same or a later term does, because a leader that came after gives every lease its
    /// whole ttl anew.
    pub(crate) fn proves(self, quorum: Option<&ResponseHeader>) -> bool {
        let quorum = quorum.map_or(u64::MAX, |header| header.raft_term);
        matches!(self, Kept::Alive { term, .. } if term >= quorum)
    }
}

impl Client {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link: Arc::new(link),
        }
    }

    pub(crate) fn whose(&self) -> &str {
        self.link.whose()
    }

    pub(crate) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Failure> {
        self.link.call(TXN, txn).await
    }

    /// Reads, linearizably, as one state.
    pub(crate) async fn read(&self, reads: Vec<RequestOp>) -> Result<TxnResponse, Failure> {
        let txn = TxnRequest {
            success: reads,
            ..TxnRequest::default()
        };
        self.txn(txn).await
    }

    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<(), Failure> {
        let request = LeaseGrantRequest { ttl: seconds, id };
        let answer: LeaseGrantResponse = self.link.call(GRANT, request).await?;
        if answer.ttl < seconds {
            let whose = self.whose();
            return Err(Failure::Other(Error::unreachable(format!(
                "{whose} granted a lease of {} s instead of {seconds} s",
                answer.ttl
            ))));
        }
        Ok(())
    }

    pub(crate) async fn keep(&self, id: i64) -> Result<Kept, Failure> {
        let request = LeaseKeepAliveRequest { id };
        let answer: LeaseKeepAliveResponse = self.link.call(KEEP_ALIVE, request).await?;
        Ok(kept(&answer))
    }

    /// Keeps many alive over one stream; the answers stand in their order. Those after a
    /// failure have failed too.
    pub(crate) async fn keep_many(&self, ids: &[i64]) -> Vec<Result<Kept, Error>> {
        let mut answers = Vec::with_capacity(ids.len());
        let requests = ids.iter().map(|id| LeaseKeepAliveRequest { id: *id });
        let failed = match self
            .link
            .stream(KEEP_ALIVE, requests.collect(), false)
            .await
        {
            Ok(mut stream) => self.kept(&mut stream, ids, &mut answers).await,
            Err(failure) => Error::from(failure),
        };
        answers.resize(ids.len(), Err(failed));
        answers
    }

    /// Collects the answers in order, until all are there or something is wrong.
    async fn kept(
        &self,
        stream: &mut Answers<LeaseKeepAliveResponse>,
        ids: &[i64],
        answers: &mut Vec<Result<Kept, Error>>,
    ) -> Error {
        while answers.len() < ids.len() {
            match self.link.next(stream).await {
                Ok(Some(answer)) if ids[answers.len()] == answer.id => {
                    answers.push(Ok(kept(&answer)));
                }
                Ok(_) => break,
                Err(failure) => return failure.into(),
            }
        }
        // Used only if an answer is lacking.
        Error::unavailable(format!("{} ended the keep-alives half way", self.whose()))
    }

    pub(crate) async fn time_to_live(&self, id: i64) -> Result<LeaseTimeToLiveResponse, Failure> {
        let request = LeaseTimeToLiveRequest { id };
        match self.link.call(TIME_TO_LIVE, request).await {
            // Newer servers say it so, older ones with a ttl of -1.
            Err(Failure::LeaseNotFound) => Ok(LeaseTimeToLiveResponse {
                ttl: -1,
                granted_ttl: 0,
            }),
            other => other,
        }
    }

    /// Removes an etcd lease that has no keys any more, later and without waiting. If that
    /// does not work, it ends by itself.
    pub(crate) fn revoke_later(&self, id: i64) {
        let link = self.link.clone();
        tokio::spawn(async move {
            tokio::time::sleep(REVOKE_AFTER).await;
            let request = LeaseRevokeRequest { id };
            let revoke = link.call::<_, LeaseRevokeResponse>(REVOKE, request);
            let _ = tokio::time::timeout(REVOKE_TIME_MAX, revoke).await;
        });
    }

    pub(crate) async fn watch(
        &self,
        requests: Vec<WatchRequest>,
    ) -> Result<Answers<WatchResponse>, Failure> {
        self.link.stream(WATCH, requests, true).await
    }

    pub(crate) async fn next_watched(
        &self,
        stream: &mut Answers<WatchResponse>,
    ) -> Result<Option<WatchResponse>, Failure> {
        self.link.next(stream).await
    }
}

fn kept(answer: &LeaseKeepAliveResponse) -> Kept {
    match answer.ttl {
        seconds @ 1.. => Kept::Alive {
            seconds,
            term: answer.header.as_ref().map_or(0, |header| header.raft_term),
        },
        _ => Kept::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_of_an_earlier_term_proves_nothing() {
        let header = |raft_term| ResponseHeader {
            revision: 1,
            raft_term,
        };
        let kept = Kept::Alive {
            seconds: 3,
            term: 5,
        };
        assert!(kept.proves(Some(&header(5))));
        assert!(kept.proves(Some(&header(4))));
        assert!(!kept.proves(Some(&header(6))));
        assert!(!kept.proves(None));
        assert!(!Kept::Gone.proves(Some(&header(5))));
    }
}
