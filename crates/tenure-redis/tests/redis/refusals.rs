//! What a server refuses, and the kind of error that each becomes.

use std::time::Duration;

use tenure::{ErrorKind, HolderRequest, Released, Renewed, Store};
use tenure_testbed::{Redis, RedisOptions, Reply, wait_until};

use crate::support::{
    LIMIT, LONG, assert_did_not_run, assert_kind, beside, granted, key, lease_of, open, record,
    request, until, until_ok,
};

#[tokio::test]
async fn wrong_password_is_misconfigured_and_never_shown() {
    let Some(redis) = RedisOptions::new().password("right").start() else {
        return;
    };
    granted(&open(&redis.url()), "k", "a", LONG).await;
    for (user, password) in [
        ("", Some("hunter2")),
        ("nobody", Some("hunter2")),
        ("", None),
    ] {
        let store = open(&redis.url_for(redis.address(), user, password));
        let error = assert_kind(
            store.read(&key("k")).await,
            ErrorKind::Misconfigured,
            "refuses the user or the password",
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
        let watched = store.watch(&key("k")).await.map(|_| ());
        assert_kind(watched, ErrorKind::Misconfigured, "password");
    }
}

#[tokio::test]
async fn database_that_is_not_there_is_misconfigured() {
    let Some(redis) = Redis::start() else { return };
    let url = format!("{}/99", redis.url().trim_end_matches('/'));
    let error = open(&url).read(&key("k")).await;
    assert_kind(error, ErrorKind::Misconfigured, "database");
    // And those that are there are apart, in what they have and in what they push.
    let (zero, five) = (
        open(&redis.url()),
        open(&format!("{}/5", redis.url().trim_end_matches('/'))),
    );
    granted(&zero, "k", "a", LONG).await;
    granted(&five, "k", "b", LONG).await;
    assert_eq!(
        zero.read(&key("k")).await.unwrap().unwrap().holder.as_str(),
        "a"
    );
}

#[tokio::test]
async fn server_without_free_connections_was_sent_nothing() {
    let Some(redis) = RedisOptions::new().setting("maxclients", "3").start() else {
        return;
    };
    let store = open(&redis.url());
    let mut others = Vec::new();
    // The last ones are refused, so all places are taken.
    for _ in 0..5 {
        others.push(std::net::TcpStream::connect(redis.address()).unwrap());
    }
    until("a full server", async || {
        let said = store.acquire(&request("k", "a", LONG)).await;
        match said {
            Err(error) => {
                assert_did_not_run::<()>(Err(error), "maxclients");
                Some(())
            }
            // Somebody was quicker than the others; try with one less place.
            Ok(_) => None,
        }
    })
    .await;
    drop(others);
    until_ok("a free place", async || store.read(&key("k")).await).await;
}

#[tokio::test]
async fn replica_is_misconfigured() {
    let Some(redis) = Redis::start() else { return };
    let of = format!("127.0.0.1 {}", redis.port());
    let replica = RedisOptions::new()
        .setting("replicaof", &of)
        .start()
        .unwrap();
    wait_until("the replica to follow", LIMIT, || {
        let info = replica.command(&["INFO", "replication"]).text()?;
        info.contains("master_link_status:up").then_some(())
    });
    let store = open(&replica.url());
    let taken = store.acquire(&request("k", "a", LONG)).await;
    assert_kind(taken, ErrorKind::Misconfigured, "is a replica");
    // One that lost its primary, and was told not to show what it may have missed.
    replica.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    redis.kill();
    until("a stale replica", async || {
        let error = store.read(&key("k")).await.err()?;
        assert_did_not_run::<()>(Err(error), "lost its primary");
        Some(())
    })
    .await;
}

#[tokio::test]
async fn server_that_loads_its_data_was_not_asked_yet() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "a", LONG).await;
    for number in 0..40 {
        redis.command(&["SET", &format!("filler/{number}"), &"x".repeat(2000)]);
    }
    redis.command(&[
        "CONFIG",
        "SET",
        "loading-process-events-interval-bytes",
        "1024",
    ]);
    redis.command(&["CONFIG", "SET", "key-load-delay", "50000"]);
    let loading = tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.command(&["DEBUG", "RELOAD"])
    });
    until("a server that loads", async || {
        let error = store.renew(&lease, LONG).await.err()?;
        assert_did_not_run::<()>(Err(error), "loading");
        Some(())
    })
    .await;
    let fresh = open(&redis.url());
    let asked = fresh.read(&key("k")).await;
    if loading.is_finished() {
        return; // It was quicker than we are.
    }
    assert_did_not_run(asked, "loading");
    loading.await.unwrap();
    until_ok("the server", async || store.renew(&lease, LONG).await).await;
}

/// A full server takes no new lease, but those that are held are renewed and released.
#[tokio::test]
async fn full_server_refuses_new_leases_and_keeps_those_that_are() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let asked = request("k", "a", LONG);
    let lease = lease_of(store.acquire(&asked).await);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let again = lease_of(store.acquire(&asked).await);
    assert_eq!(again.token, lease.token, "a lost answer is found again");
    let taken = store.acquire(&request("new", "a", LONG)).await;
    assert_did_not_run(taken, "no memory left");
    assert_eq!(
        redis.command(&["EXISTS", &record("new"), &beside("new")]),
        Reply::Int(0)
    );
    let renewed = store.renew(&lease, LONG * 2).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    granted(&store, "k", "b", LONG).await;
}

/// The nearest to a full disk: the server cannot save, and takes no writes.
#[tokio::test]
async fn server_that_cannot_save_takes_no_writes() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "a", LONG).await;
    redis.command(&["CONFIG", "SET", "save", "3600 1000000"]);
    // A file cannot take the place of a folder.
    std::fs::create_dir(redis.folder().join("dump.rdb")).unwrap();
    redis.command(&["BGSAVE"]);
    until("a failed save", async || {
        let error = store.renew(&lease, LONG).await.err()?;
        assert_did_not_run::<()>(Err(error), "cannot write to its disk");
        Some(())
    })
    .await;
    assert!(
        store.read(&lease.key).await.unwrap().is_some(),
        "reading goes on"
    );
    redis.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    store.renew(&lease, LONG).await.unwrap();
}

#[tokio::test]
async fn server_with_too_few_replicas_takes_no_writes() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let taken = store.acquire(&request("k", "a", LONG)).await;
    assert_did_not_run(taken, "too few replicas");
}

#[tokio::test]
async fn server_that_is_busy_with_a_script_was_sent_nothing() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let lease = granted(&store, "k", "a", LONG).await;
    redis.command(&["CONFIG", "SET", "busy-reply-threshold", "20"]);
    let busy = tokio::task::spawn_blocking({
        let redis = redis.clone();
        move || redis.command(&["EVAL", "while true do end", "0"])
    });
    until("a busy server", async || {
        let renewed = tokio::time::timeout(Duration::from_secs(5), store.renew(&lease, LONG)).await;
        let error = renewed.ok()?.err()?;
        assert_did_not_run::<()>(Err(error), "busy");
        Some(())
    })
    .await;
    redis.command(&["SCRIPT", "KILL"]);
    busy.await.unwrap();
    store.renew(&lease, LONG).await.unwrap();
}

#[tokio::test]
async fn other_kinds_of_servers_are_misconfigured() {
    let Some(redis) = Redis::start() else { return };
    let address = redis.address();
    let cluster = open(&format!("redis+cluster://{address}"));
    let error = cluster.acquire(&request("k", "a", LONG)).await;
    assert_kind(error, ErrorKind::Misconfigured, "no cluster");
    let sentinel = open(&format!("redis+sentinel://{address}/mymaster"));
    let error = sentinel.acquire(&request("k", "a", LONG)).await;
    assert_kind(error, ErrorKind::Misconfigured, "no Sentinel");
}

/// What cannot be read is never overwritten: each call says so and names the key.
#[tokio::test]
async fn record_that_cannot_be_read_is_left_as_it_is() {
    let Some(redis) = Redis::start() else { return };
    let store = open(&redis.url());
    let make = |name: &str| {
        let (record, beside) = (record(name), beside(name));
        match name {
            "list" => redis.command(&["RPUSH", &record, "x"]),
            "no end" => redis.command(&["SET", &record, "x"]),
            "nobody" => redis.command(&["PSETEX", &record, "600000", ""]),
            "control" => redis.command(&["PSETEX", &record, "600000", "a\nb"]),
            "beside is text" => redis.command(&["SET", &beside, "x"]),
            "no token" => redis.command(&["HSET", &beside, "holder", "x"]),
            "token is text" => redis.command(&["HSET", &beside, "token", "many"]),
            "token is half" => redis.command(&["HSET", &beside, "token", "1.5"]),
            "token is too great" => redis.command(&["HSET", &beside, "token", "9007199254740993"]),
            other => panic!("no such case: {other}"),
        }
    };
    let template = granted(&store, "fine", "a", LONG).await;
    for name in [
        "list",
        "no end",
        "nobody",
        "control",
        "beside is text",
        "no token",
        "token is text",
        "token is half",
        "token is too great",
    ] {
        make(name);
        let dumps = || {
            let dump = |name: &str| redis.command(&["OBJECT", "ENCODING", name]);
            let text = |name: &str| match redis.command(&["TYPE", name]).text().as_deref() {
                Some("hash") => redis.command(&["HGETALL", name]),
                Some("string") => redis.command(&["GET", name]),
                Some("list") => redis.command(&["LRANGE", name, "0", "-1"]),
                _ => Reply::Nil,
            };
            let (record, beside) = (record(name), beside(name));
            (dump(&record), text(&record), dump(&beside), text(&beside))
        };
        let before = dumps();
        let mut lease = template.clone();
        lease.key = key(name);
        let says = |error: tenure::Result<()>| {
            let error = assert_kind(error, ErrorKind::Corrupt, name);
            assert!(error.to_string().contains("redis-cli"), "{error}");
        };
        let asked = request(name, "a", LONG);
        says(store.acquire(&asked).await.map(|_| ()));
        says(store.read(&lease.key).await.map(|_| ()));
        says(store.renew(&lease, LONG).await.map(|_| ()));
        let many = store.renew_many(&[(lease.clone(), LONG)]).await;
        says(many.into_iter().next().unwrap().map(|_| ()));
        if !matches!(name, "nobody" | "control") {
            says(store.release(&lease).await.map(|_| ()));
        } else {
            // It is somebody's, whoever that is, and not ours.
            assert_eq!(store.release(&lease).await.unwrap(), Released::NotHeld);
        }
        says(
            store
                .ask(&lease.key, HolderRequest::StepDown)
                .await
                .map(|_| ()),
        );
        assert_eq!(dumps(), before, "{name}: it was changed");
    }
    // One that cannot be read does not hide the others.
    let listed = store.list("", 100).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, template.key);
}
