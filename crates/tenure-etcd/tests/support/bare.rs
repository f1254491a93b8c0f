//! etcd without the store: single calls, and MaksIT.HAMode's rules made of them.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "../../src/proto.rs"]
#[allow(unreachable_pub, reason = "the store's own messages")]
pub mod proto;

use std::net::SocketAddr;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use proto::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, KeyValue, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, PutRequest, RangeRequest, Request, RequestOp, Response, TxnRequest,
    TxnResponse,
};

/// One connection to one member.
#[derive(Clone)]
pub struct Bare {
    channel: Channel,
}

impl Bare {
    pub fn to(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self {
            channel: endpoint.connect_lazy(),
        }
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> A
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        let answer = grpc
            .unary(
                tonic::Request::new(request),
                path,
                ProstCodec::<Q, A>::default(),
            )
            .await;
        answer.unwrap().into_inner()
    }

    pub async fn txn(&self, txn: TxnRequest) -> TxnResponse {
        self.call("/etcdserverpb.KV/Txn", txn).await
    }

    pub async fn grant(&self, seconds: i64) -> i64 {
        let id = fastrand::Rng::new().i64(1..);
        let request = LeaseGrantRequest { ttl: seconds, id };
        let _: LeaseGrantResponse = self.call("/etcdserverpb.Lease/LeaseGrant", request).await;
        id
    }

    pub async fn keep(&self, id: i64) -> i64 {
        let request = LeaseKeepAliveRequest { id };
        let answer: LeaseKeepAliveResponse = self
            .call("/etcdserverpb.Lease/LeaseKeepAlive", request)
            .await;
        answer.ttl
    }

    pub async fn revoke(&self, id: i64) {
        let request = LeaseRevokeRequest { id };
        let _: LeaseRevokeResponse = self.call("/etcdserverpb.Lease/LeaseRevoke", request).await;
    }

    pub async fn get(&self, key: &str) -> Option<KeyValue> {
        let txn = TxnRequest {
            success: vec![op(Request::Range(RangeRequest {
                key: key.into(),
                ..RangeRequest::default()
            }))],
            ..TxnRequest::default()
        };
        let answer = self.txn(txn).await.responses.pop();
        match answer.and_then(|op| op.response) {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            other => panic!("{other:?}"),
        }
    }

    pub async fn put(&self, key: &str, value: &[u8], lease: i64) {
        let txn = TxnRequest {
            success: vec![put(key, value, lease)],
            ..TxnRequest::default()
        };
        self.txn(txn).await;
    }
}

/// MaksIT.HAMode 1.0.6, by its own steps.
pub struct HaMode {
    pub bare: Bare,
    pub prefix: String,
}

impl HaMode {
    /// Grant; put if there is nobody; else put if the value is the holder; else revoke.
    pub async fn try_acquire(&self, name: &str, holder: &str, seconds: i64) -> bool {
        let key = format!("{}{name}", self.prefix);
        let lease = self.bare.grant(seconds).await;
        let free = compare(&key, CompareTarget::Create, CompareWith::CreateRevision(0));
        let own = compare(
            &key,
            CompareTarget::Value,
            CompareWith::Value(holder.into()),
        );
        for condition in [free, own] {
            let txn = TxnRequest {
                compare: vec![condition],
                success: vec![put(&key, holder.as_bytes(), lease)],
                failure: Vec::new(),
            };
            if self.bare.txn(txn).await.succeeded {
                return true;
            }
        }
        self.bare.revoke(lease).await;
        false
    }

    /// Deletes the key if the value is the holder.
    pub async fn release(&self, name: &str, holder: &str) {
        let key = format!("{}{name}", self.prefix);
        let txn = TxnRequest {
            compare: vec![compare(
                &key,
                CompareTarget::Value,
                CompareWith::Value(holder.into()),
            )],
            success: vec![op(Request::DeleteRange(DeleteRangeRequest {
                key: key.into_bytes(),
                prev_kv: false,
            }))],
            failure: Vec::new(),
        };
        self.bare.txn(txn).await;
    }
}

pub fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

pub fn put(key: &str, value: &[u8], lease: i64) -> RequestOp {
    op(Request::Put(PutRequest {
        key: key.into(),
        value: value.to_vec(),
        lease,
    }))
}

pub fn compare(key: &str, target: CompareTarget, with: CompareWith) -> Compare {
    Compare {
        target: target.into(),
        key: key.into(),
        with: Some(with),
    }
}
