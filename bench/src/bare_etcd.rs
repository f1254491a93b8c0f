//! tonic alone: etcd's own calls, a lease of etcd's beside a transaction that uses it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::{Bare, Side, fresh, now};

const TXN: &str = "/etcdserverpb.KV/Txn";
const PUT: &str = "/etcdserverpb.KV/Put";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const TTL_SECONDS: i64 = 15;

pub(crate) struct Client {
    holder: Channel,
    waiter: Channel,
    key: String,
    held: String,
    lease: i64,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true);
        let mut client = Self {
            holder: endpoint.connect().await?,
            waiter: endpoint.connect().await?,
            key: fresh("again"),
            held: fresh("held"),
            lease: 0,
        };
        client.lease = acquire(&client.holder, &client.held).await?;
        Ok(client)
    }
}

#[async_trait]
impl Side for Client {
    async fn acquire_release(&mut self) -> Result<()> {
        acquire(&self.holder, &self.key).await?;
        release(&self.holder, &self.key).await
    }

    async fn renew(&mut self) -> Result<()> {
        let keep = LeaseId { id: self.lease };
        let read = Txn {
            success: vec![Op::range(&self.held)],
            ..Txn::default()
        };
        let (kept, read) = tokio::join!(
            call::<_, KeptAlive>(&self.holder, KEEP_ALIVE, keep),
            call::<_, Done>(&self.holder, TXN, read),
        );
        read?;
        ensure!(kept?.ttl > 0, "{} is lost", self.held);
        Ok(())
    }

    async fn handover(&mut self, wait: Duration) -> Result<Duration> {
        let key = fresh("handover");
        acquire(&self.holder, &key).await?;
        let watch = WatchRequest {
            create: Some(WatchCreate {
                key: key.as_bytes().to_vec(),
            }),
        };
        let mut grpc = Grpc::new(self.waiter.clone());
        grpc.ready().await?;
        let requests = stream::iter([watch]).chain(stream::pending());
        let codec = ProstCodec::<WatchRequest, Watched>::default();
        let path = PathAndQuery::from_static(WATCH);
        let mut events = grpc
            .streaming(Request::new(requests), path, codec)
            .await?
            .into_inner();
        ensure!(events.message().await?.is_some_and(|first| first.created));
        tokio::time::sleep(wait).await;
        let waiting = async {
            let pushed = events.message().await?.context("the watch ended")?;
            ensure!(pushed.events.iter().any(|event| event.kind == 1));
            acquire(&self.waiter, &key).await?;
            anyhow::Ok(now())
        };
        let began = now();
        let (released, got) = tokio::join!(release(&self.holder, &key), waiting);
        released?;
        Ok(got? - began)
    }
}

#[async_trait]
impl Bare for Client {
    async fn round_trip(&mut self) -> Result<()> {
        let put = Put {
            key: b"one".to_vec(),
            value: b"bare".to_vec(),
            lease: 0,
        };
        call::<_, Nothing>(&self.holder, PUT, put).await?;
        Ok(())
    }
}

/// Grants and takes side by side; if the transaction came first, once more.
async fn acquire(channel: &Channel, key: &str) -> Result<i64> {
    let id = fastrand::Rng::new().i64(1..);
    let grant = Grant {
        ttl: TTL_SECONDS,
        id,
    };
    let take = Txn {
        compare: vec![Compare {
            target: 1,
            key: key.as_bytes().to_vec(),
            create_revision: Some(0),
            ..Compare::default()
        }],
        success: vec![Op::put(key, id)],
    };
    let (granted, taken) = tokio::join!(
        call::<_, Nothing>(channel, GRANT, grant),
        call::<_, Done>(channel, TXN, take.clone()),
    );
    granted?;
    let taken = match taken {
        Err(status) if status.message().contains("lease not found") => {
            call::<_, Done>(channel, TXN, take).await?
        }
        taken => taken?,
    };
    if !taken.succeeded {
        bail!("{key} is held");
    }
    Ok(id)
}

async fn release(channel: &Channel, key: &str) -> Result<()> {
    let free = Txn {
        compare: vec![Compare {
            target: 3,
            key: key.as_bytes().to_vec(),
            value: Some(b"bare".to_vec()),
            ..Compare::default()
        }],
        success: vec![Op::delete(key)],
    };
    let freed: Done = call(channel, TXN, free).await?;
    ensure!(freed.succeeded, "{key} was not held");
    Ok(())
}

async fn call<Q, A>(channel: &Channel, path: &'static str, message: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(message), path, codec).await?;
    Ok(answer.into_inner())
}

// The messages, as far as they are needed; numbers as in etcd's rpc.proto.

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseId {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeptAlive {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyOnly {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(oneof = "Action", tags = "1, 2, 3")]
    action: Option<Action>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Action {
    #[prost(message, tag = "1")]
    Range(KeyOnly),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(KeyOnly),
}

impl Op {
    fn range(key: &str) -> Self {
        let key = key.as_bytes().to_vec();
        Self {
            action: Some(Action::Range(KeyOnly { key })),
        }
    }

    fn put(key: &str, lease: i64) -> Self {
        let put = Put {
            key: key.as_bytes().to_vec(),
            value: b"bare".to_vec(),
            lease,
        };
        Self {
            action: Some(Action::Put(put)),
        }
    }

    fn delete(key: &str) -> Self {
        let key = key.as_bytes().to_vec();
        Self {
            action: Some(Action::Delete(KeyOnly { key })),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    /// 1: created at, 3: value.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    value: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
struct Done {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Watched {
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    /// 1: deleted.
    #[prost(int32, tag = "1")]
    kind: i32,
}
