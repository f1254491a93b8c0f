//! Cluster: slots that move, nodes that die, and answers that are lost on the way.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use tenure::{ErrorKind, Renewed, Store};
use tenure_redis::RedisStore;
use tenure_testbed::{Proxy, Redis, RedisCluster, RedisOptions, Reply};

use crate::support::{
    LONG, assert_did_not_run, calls, granted, key, lease_of, number, open, record, request, until,
    until_ok,
};

fn id(node: &Redis) -> String {
    node.command(&["CLUSTER", "MYID"]).text().unwrap()
}

/// The node that has this record, and another one.
fn both<'a>(cluster: &'a RedisCluster, name: &str) -> (&'a Redis, &'a Redis) {
    let owner = cluster.node_of(&record(name));
    let mut nodes = cluster.nodes().iter();
    let other = nodes.find(|node| node.port() != owner.port());
    (owner, other.unwrap())
}

fn slot(node: &Redis, name: &str) -> String {
    number(&node.command(&["CLUSTER", "KEYSLOT", &record(name)])).to_string()
}

#[tokio::test]
async fn slot_that_moved_is_followed() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let store = open(&cluster.url());
    granted(&store, "somewhere", "a", LONG).await;
    let (from, to) = both(&cluster, "moved");
    let slot = slot(from, "moved");
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]);
    }
    let lease = granted(&store, "moved", "a", LONG).await;
    let there = to.command(&["GET", &record("moved")]);
    assert_eq!(there.text().as_deref(), Some("a"));
    let renewed = store.renew_many(&[(lease, LONG)]).await;
    assert!(
        matches!(renewed[0], Ok(Renewed::Renewed(..))),
        "{renewed:?}"
    );
}

/// While a slot moves, a lease is renewed where it is, before and after it has moved. A
/// key with nothing on either side cannot be taken before the slot has settled, since
/// Redis runs nothing on two keys then, and says so.
#[tokio::test]
async fn slot_that_is_moving_is_followed() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let store = open(&cluster.url());
    let lease = granted(&store, "{moving}/k", "a", LONG).await;
    let (from, to) = both(&cluster, "{moving}/k");
    let slot = slot(from, "{moving}/k");
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)));
    let fresh = store.acquire(&request("{moving}/new", "a", LONG)).await;
    assert_did_not_run(fresh, "moving this key");
    let record = record("{moving}/k");
    let port = to.port().to_string();
    let moved = from.command(&[
        "MIGRATE",
        "127.0.0.1",
        &port,
        "",
        "0",
        "5000",
        "KEYS",
        &record,
        &format!("tenure::{record}"),
    ]);
    assert_eq!(moved.text().as_deref(), Some("OK"));
    // The transfer has moved the expiries of both a little; it is ours all the same.
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    let renewed = store.renew_many(&[(lease.clone(), LONG)]).await;
    assert!(
        matches!(renewed[0], Ok(Renewed::Renewed(..))),
        "{renewed:?}"
    );
    for node in [to, from] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]);
    }
    // A transfer between nodes whose clocks differ by a minute, and that took a while.
    let beside = format!("tenure::{record}");
    for (name, by) in [(&record, 60_040), (&beside, 60_360)] {
        let ends = number(&to.command(&["PEXPIRETIME", name])) + by;
        to.command(&["PEXPIREAT", name, &ends.to_string()]);
    }
    assert_eq!(
        store.read(&lease.key).await.unwrap().unwrap().token,
        lease.token
    );
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    // What others have written under our name is not ours here either.
    to.command(&["PSETEX", &record, "590000", "a"]);
    let lost = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(lost, Renewed::Lost(_)), "{lost:?}");
    granted(&store, "{moving}/new", "a", LONG).await;
}

#[tokio::test]
async fn dead_node_is_unreachable_and_found_when_it_is_back() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let store = open(&cluster.url());
    let lease = granted(&store, "k", "a", LONG).await;
    let (owner, other) = both(&cluster, "k");
    // A key of a node that goes on, which takes no writes either without the whole.
    let elsewhere = (0..).map(|n| format!("elsewhere/{n}"));
    let mut elsewhere =
        elsewhere.filter(|name| cluster.node_of(&record(name)).port() == other.port());
    let elsewhere = elsewhere.next().unwrap();
    owner.kill();
    until("the cluster to be down", async || {
        let error = store.acquire(&request(&elsewhere, "a", LONG)).await.err()?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        error
            .to_string()
            .contains("cluster is down")
            .then(|| assert!(!error.may_have_worked()))
    })
    .await;
    assert_did_not_run(store.renew(&lease, LONG).await, "");
    owner.start_again();
    let renewed = until_ok("the node", async || store.renew(&lease, LONG).await).await;
    assert!(matches!(renewed, Renewed::Renewed(l, None) if l.token == lease.token));
}

/// A node that hangs costs a dropped call, and not every call after it.
#[tokio::test]
async fn hanging_node_does_not_keep_the_others_from_answering() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let store = open(&cluster.url());
    let (owner, other) = both(&cluster, "k");
    let lease = granted(&store, "k", "a", LONG).await;
    let names = (0..).map(|n| format!("elsewhere/{n}"));
    let mut names = names.filter(|name| cluster.node_of(&record(name)).port() == other.port());
    let elsewhere = key(&names.next().unwrap());
    owner.pause();
    let dropped = tokio::time::timeout(Duration::from_millis(200), store.renew(&lease, LONG)).await;
    assert!(dropped.is_err(), "it hangs");
    // Reading needs no whole cluster for as long as it is not known to be broken.
    let read = tokio::time::timeout(Duration::from_secs(1), store.read(&elsewhere)).await;
    assert!(read.is_ok(), "the others are asked first");
    owner.resume();
    until_ok("the node", async || store.renew(&lease, LONG).await).await;
}

/// The node that has `cut-key`, told to name a proxy as its own address.
async fn proxied(cluster: &RedisCluster) -> (&Redis, Proxy) {
    let (owner, _) = both(cluster, "cut-key");
    let proxy = owner.proxy();
    let port = proxy.address().port().to_string();
    owner.command(&["CONFIG", "SET", "cluster-announce-port", &port]);
    until("all nodes to name the proxy", async || {
        let named = cluster.nodes().iter().all(|node| {
            let slots = format!("{:?}", node.command(&["CLUSTER", "SLOTS"]));
            slots.contains(&format!("Int({port})"))
        });
        named.then_some(())
    })
    .await;
    (owner, proxy)
}

async fn cut_and_found_again(store: &RedisStore, owner: &Redis, proxy: &Proxy) {
    // The script is known to this node.
    let lease = granted(store, "cut-key", "warm", LONG).await;
    store.release(&lease).await.unwrap();
    assert!(
        proxy.traffic().connections > 0,
        "the way leads through the proxy"
    );
    owner.command(&["CONFIG", "RESETSTAT"]);
    let cut = proxy.cut_answer_to("cut-key");
    let asked = request("cut-key", "a", LONG);
    let error = store.acquire(&asked).await.unwrap_err();
    assert!(error.may_have_worked(), "{error}");
    assert!(cut.is_done());
    assert_eq!(calls(owner, "evalsha"), 1, "sent once");
    assert_eq!(calls(owner, "eval"), 0);
    let written = owner.command(&["HGET", "tenure:{app_runtime_leases:cut-key}", "token"]);
    let again = until_ok("the node", async || store.acquire(&asked).await).await;
    let again = lease_of(Ok(again));
    assert_eq!(Some(again.token.to_string()), written.text());
    store.release(&again).await.unwrap();
}

#[tokio::test]
async fn answer_cut_in_a_cluster_is_unknown_and_not_sent_again() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let (owner, proxy) = proxied(&cluster).await;
    cut_and_found_again(&open(&cluster.url()), owner, &proxy).await;
    // The same by the cluster client of the caller, told not to retry.
    let nodes = cluster.nodes().iter().map(Redis::url);
    let client = ClusterClientBuilder::new(nodes).retries(0).build().unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let store = RedisStore::with_cluster_connection(connection);
    cut_and_found_again(&store, owner, &proxy).await;
}

/// Another node takes the slots over: the store finds it, with the leases that it has.
#[tokio::test]
async fn failover_in_a_cluster_is_followed() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let store = open(&cluster.url());
    let lease = granted(&store, "k", "a", LONG).await;
    let (owner, _) = both(&cluster, "k");
    let replica = RedisOptions::new()
        .setting("cluster-enabled", "yes")
        .setting("cluster-node-timeout", "2000")
        .start()
        .unwrap();
    let Reply::List(bus) = owner.command(&["CONFIG", "GET", "cluster-port"]) else {
        panic!("no bus port");
    };
    let (port, bus) = (owner.port().to_string(), bus[1].text().unwrap());
    replica.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    let done = |reply: Reply| (reply.text().as_deref() == Some("OK")).then_some(());
    let owner_id = id(owner);
    until("the replica to know all", async || {
        done(replica.command(&["CLUSTER", "REPLICATE", &owner_id]))
    })
    .await;
    until("the replica to follow", async || {
        let info = replica.command(&["INFO", "replication"]).text()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    until("all nodes to know of the replica", async || {
        let knows = |node: &Redis| {
            let info = node.command(&["CLUSTER", "INFO"]).text();
            info.is_some_and(|info| info.contains("cluster_known_nodes:4"))
        };
        cluster.nodes().iter().all(knows).then_some(())
    })
    .await;
    // Without a vote, which takes its time among nodes that hardly know one another.
    done(replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"])).unwrap();
    let port = format!("Int({})", replica.port());
    until("all nodes to know of it", async || {
        let knows = |node: &Redis| {
            let Reply::List(ranges) = node.command(&["CLUSTER", "SLOTS"]) else {
                return false;
            };
            // The primary of a range stands first.
            let primary = |range: &Reply| matches!(range, Reply::List(range) if format!("{:?}", range[2]).contains(&port));
            ranges.iter().any(primary)
        };
        cluster.nodes().iter().all(knows).then_some(())
    })
    .await;
    owner.kill();
    let renewed = until_ok("the new primary", async || store.renew(&lease, LONG).await).await;
    assert!(matches!(renewed, Renewed::Renewed(l, None) if l.token == lease.token));
    let there = replica.command(&["GET", &record("k")]);
    assert_eq!(there.text().as_deref(), Some("a"));
}
