//! A cut answer with each real server: the write is there, and the client was not told.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_testbed::{Etcd, EtcdOptions, Postgres, Redis, Reply, Server, wait_until};

#[test]
fn postgres_has_committed_what_was_cut() {
    let Some(pg) = Postgres::shared() else { return };
    pg.sql("CREATE TABLE cut (a text)");
    let proxy = pg.proxy();
    let insert = |value: &str| {
        let sql = format!("INSERT INTO cut VALUES ('{value}')");
        let mut command = Command::new("psql");
        command.args(["-X", &pg.url_at(proxy.address()), "-c", &sql]);
        command.output().unwrap()
    };
    assert!(insert("told").status.success());
    let cut = proxy.cut_answer_to("untold");
    assert!(insert("another").status.success());
    assert!(!insert("untold").status.success());
    assert!(cut.is_done());
    assert_eq!(pg.sql("SELECT count(*) FROM cut WHERE a = 'untold'"), "1");
    assert!(insert("later").status.success());
}

#[test]
fn redis_has_written_what_was_cut() {
    let Some(redis) = Redis::shared() else { return };
    let proxy = redis.proxy();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let cut = proxy.cut_answer_to("untold");
    client.write_all(b"SET told 1\r\n").unwrap();
    let mut answer = [0; 5];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    client.write_all(b"SET untold 1\r\n").unwrap();
    client.read_exact(&mut answer).unwrap_err();
    assert!(cut.is_done());
    assert_eq!(
        redis.command(&["GET", "untold"]),
        Reply::Text("1".to_owned())
    );
}

#[test]
fn etcd_has_written_what_was_cut() {
    let Some(etcd) = Etcd::shared() else { return };
    let proxy = etcd.server().proxy();
    let put = |key: &str| {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", proxy.address()))
            .args(["put", key, "1"]);
        command.output().unwrap()
    };
    assert!(put("told").status.success());
    for round in 0..5 {
        let key = format!("untold-{round}");
        let cut = proxy.cut_answer_to(&key);
        assert!(!put(&key).status.success());
        assert!(cut.is_done());
        assert_eq!(etcd.ctl(&["get", &key]), format!("{key}\n1"));
    }
}

/// etcd's transport answers bytes at once, long before etcd answers the request.
#[test]
fn an_etcd_without_a_majority_has_not_answered() {
    let Some(etcd) = EtcdOptions::new().members(3).start() else {
        return;
    };
    let leader = etcd.leader().clone();
    let proxy = leader.proxy();
    let others = etcd
        .members()
        .iter()
        .filter(|member| member.port() != leader.port());
    others.clone().for_each(Server::pause);
    let cut = proxy.cut_answer_to("untold");
    let before = proxy.traffic();
    let mut command = Command::new("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={}", proxy.address()))
        .args(["put", "untold", "1"]);
    let mut client = command.stderr(Stdio::null()).spawn().unwrap();
    // The connection's greeting, and then the request.
    wait_until("bytes to go through", Duration::from_secs(20), || {
        let sent = proxy.traffic().bytes_to_server - before.bytes_to_server;
        (sent > 150).then_some(())
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!cut.is_done());
    others.for_each(Server::resume);
    assert!(!client.wait().unwrap().success());
    assert!(cut.is_done());
}
