//! Redis, on a real server and on a real cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use support::turns::Turns;
use support::{Leader, two_leaders};
use support::{assert_ended, assert_never_fenced, assert_stale, assert_unreadable, from_docs};
use tenure::Token;
use tenure_fences::FenceError;
use tenure_fences::redis::{RedisFence, SCRIPT};
use tenure_testbed::{Redis, RedisCluster, RedisOptions, unique};

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn set(key: &str, value: &str) -> redis::Cmd {
    let mut command = cmd("SET");
    command.arg(key).arg(value);
    command
}

async fn get(connection: &mut MultiplexedConnection, key: &str) -> Option<String> {
    cmd("GET").arg(key).query_async(connection).await.unwrap()
}

#[tokio::test]
async fn an_old_leader_is_turned_away() {
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let (old, new) = two_leaders().await;
    let key = unique("data");
    let fence = RedisFence::new(format!("{key}:fence")).unwrap();
    assert_never_fenced(fence.seen(&mut connection).await);
    let write = async |leader: &Leader, value: &str| {
        let mut connection = connection.clone();
        let command = set(&key, value);
        fence
            .write::<()>(&mut connection, &leader.tenure, &[&key], &command)
            .await
    };
    write(&old, "old").await.unwrap();
    // The first act of the new leader is enough: no real work has come yet.
    let mut other = connect(&url).await;
    fence.raise(&mut other, &new.tenure).await.unwrap();
    assert_stale(write(&old, "late").await, 7, 9);
    assert_stale(fence.raise(&mut other, &old.tenure).await, 7, 9);
    assert_eq!(get(&mut other, &key).await.as_deref(), Some("old"));
    write(&new, "new").await.unwrap();
    assert_eq!(get(&mut other, &key).await.as_deref(), Some("new"));
    assert_eq!(fence.seen(&mut other).await.unwrap(), Token(9));
}

#[tokio::test]
async fn answers_of_every_kind_come_back() {
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let new = Leader::with_token(9).await;
    let key = unique("list");
    let fence = RedisFence::new(format!("{key}:fence")).unwrap();
    let mut push = cmd("RPUSH");
    push.arg(&key).arg("a").arg(b"\xff\0".as_slice());
    let keys = [key.as_str()];
    let length: i64 = fence
        .write(&mut connection, &new.tenure, &keys, &push)
        .await
        .unwrap();
    assert_eq!(length, 2);
    let mut range = cmd("LRANGE");
    range.arg(&key).arg(0).arg(-1);
    let all: Vec<Vec<u8>> = fence
        .write(&mut connection, &new.tenure, &keys, &range)
        .await
        .unwrap();
    assert_eq!(all, [b"a".to_vec(), b"\xff\0".to_vec()]);
    let mut pop = cmd("LPOP");
    pop.arg("nothing there");
    let none: Option<String> = fence
        .write(&mut connection, &new.tenure, &["nothing there"], &pop)
        .await
        .unwrap();
    assert_eq!(none, None);
    // A command that Redis refuses is its own error, and an empty one is not sent.
    let wrong = set(&key, "x").arg("NONSENSE").to_owned();
    let refused = fence
        .write::<()>(&mut connection, &new.tenure, &keys, &wrong)
        .await;
    assert!(
        matches!(refused, Err(FenceError::Resource(_))),
        "{refused:?}"
    );
    let refused = fence
        .write::<()>(&mut connection, &new.tenure, &[], &redis::Cmd::new())
        .await;
    assert!(
        matches!(refused, Err(FenceError::Invalid(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_tenure_that_has_ended_does_not_even_ask() {
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let old = Leader::with_token(7).await;
    old.expire();
    let key = unique("data");
    let fence = RedisFence::new(format!("{key}:fence")).unwrap();
    let command = set(&key, "late");
    let keys = [key.as_str()];
    let write = fence.write::<()>(&mut connection, &old.tenure, &keys, &command);
    assert_ended(write.await);
    assert_ended(fence.raise(&mut connection, &old.tenure).await);
    assert_never_fenced(fence.seen(&mut connection).await);
}

#[tokio::test]
async fn a_fence_that_cannot_be_read_is_not_overwritten() {
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let new = Leader::with_token(9).await;
    let key = unique("fence");
    let fence = RedisFence::new(&key).unwrap();
    for garbage in [
        "nine",
        "",
        "-1",
        "09",
        "9007199254740992",
        "99999999999999999999",
    ] {
        let _: () = set(&key, garbage)
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_unreadable(fence.raise(&mut connection, &new.tenure).await);
        assert_unreadable(fence.seen(&mut connection).await);
        assert_eq!(get(&mut connection, &key).await.as_deref(), Some(garbage));
    }
}

/// Tokens are compared as whole numbers, up to the last digit of the greatest one.
#[tokio::test]
async fn great_tokens_are_told_apart() {
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let greatest = tenure_fences::TOKEN_MAX;
    let (old, new) = (
        Leader::with_token(greatest - 1).await,
        Leader::with_token(greatest).await,
    );
    let fence = RedisFence::new(unique("fence")).unwrap();
    let small = Leader::with_token(999).await;
    fence.raise(&mut connection, &small.tenure).await.unwrap();
    fence.raise(&mut connection, &new.tenure).await.unwrap();
    assert_stale(
        fence.raise(&mut connection, &old.tenure).await,
        greatest - 1,
        greatest,
    );
    assert_stale(
        fence.raise(&mut connection, &small.tenure).await,
        999,
        greatest,
    );
}

/// For other languages: the text on the docs page is the script, and says what is no token.
#[tokio::test]
async fn the_script_on_the_docs_page_is_this_one() {
    assert_eq!(from_docs("lua", "NOTOKEN"), SCRIPT);
    let Some(url) = Redis::shared_url() else {
        return;
    };
    let mut connection = connect(&url).await;
    let key = unique("fence");
    for bad in ["nine", "", "-1", "0", "1.5", "1e3", "9007199254740992"] {
        let mut eval = cmd("EVAL");
        eval.arg(SCRIPT).arg(1).arg(&key).arg(bad);
        let error = eval
            .query_async::<redis::Value>(&mut connection)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some("NOTOKEN"), "{bad}: {error}");
    }
    let mut eval = cmd("EVAL");
    eval.arg(SCRIPT).arg(1).arg(&key);
    let error = eval
        .query_async::<redis::Value>(&mut connection)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("NOTOKEN"), "{error}");
    assert_eq!(get(&mut connection, &key).await, None);
}

#[tokio::test]
async fn what_was_seen_survives_a_crash_of_a_durable_server() {
    let Some(server) = RedisOptions::new().durable().start() else {
        return;
    };
    let (old, new) = two_leaders().await;
    let fence = RedisFence::new("fence").unwrap();
    fence
        .raise(&mut connect(&server.url()).await, &new.tenure)
        .await
        .unwrap();
    server.kill();
    server.start_again();
    let mut again = connect(&server.url()).await;
    assert_stale(fence.raise(&mut again, &old.tenure).await, 7, 9);
}

#[tokio::test]
async fn the_guard_costs_no_round_trip() {
    let Some(server) = Redis::start() else {
        return;
    };
    let new = Leader::with_token(9).await;
    let turns = Turns::before(server.address()).await;
    let mut connection = connect(&server.url_at(turns.address)).await;
    let fence = RedisFence::new("fence").unwrap();
    let command = set("data", "x");
    // The first use brings the script to the server.
    fence
        .write::<()>(&mut connection, &new.tenure, &["data"], &command)
        .await
        .unwrap();
    let before = turns.so_far();
    command.query_async::<()>(&mut connection).await.unwrap();
    let bare = turns.so_far() - before;
    fence
        .write::<()>(&mut connection, &new.tenure, &["data"], &command)
        .await
        .unwrap();
    assert_eq!((bare, turns.so_far() - before - bare), (1, 1));
}

#[tokio::test]
async fn in_a_cluster_fence_and_data_share_a_slot() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let nodes: Vec<String> = cluster
        .addresses()
        .iter()
        .map(|at| format!("redis://{at}"))
        .collect();
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    let mut connection = client.get_async_connection().await.unwrap();
    let (old, new) = two_leaders().await;
    let fence = RedisFence::new("{orders}:fence").unwrap();
    let command = set("{orders}:today", "new");
    let keys = ["{orders}:today"];
    fence
        .write::<()>(&mut connection, &new.tenure, &keys, &command)
        .await
        .unwrap();
    let late = fence
        .write::<()>(&mut connection, &old.tenure, &keys, &command)
        .await;
    assert_stale(late, 7, 9);
    let elsewhere = set("unrelated", "x");
    let refused = fence
        .write::<()>(&mut connection, &new.tenure, &["unrelated"], &elsewhere)
        .await;
    assert!(
        matches!(refused, Err(FenceError::Resource(_))),
        "{refused:?}"
    );
}
