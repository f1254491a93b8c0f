//! Every server of the testbed starts, answers, keeps its data and comes back.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use tenure_testbed::{Etcd, Postgres, Redis, Reply};

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

#[test]
fn postgres_keeps_its_data_over_kill_and_restart() {
    let Some(pg) = Postgres::start() else { return };
    assert!(pg.url().starts_with("postgres://postgres@127.0.0.1:"));
    pg.sql("CREATE TABLE t (a text)");
    pg.sql("INSERT INTO t VALUES ('kept')");
    let port = pg.port();
    pg.kill();
    assert!(!pg.is_running());
    pg.start_again();
    assert_eq!(pg.sql("SELECT a FROM t"), "kept");
    pg.restart();
    assert_eq!(pg.sql("SELECT a FROM t"), "kept");
    assert_eq!(pg.port(), port);
}

#[test]
fn redis_keeps_its_data_over_kill_and_restart() {
    let Some(redis) = Redis::start() else { return };
    assert_eq!(redis.command(&["SET", "a", "kept"]), text("OK"));
    redis.kill();
    assert!(!redis.is_running());
    redis.start_again();
    assert_eq!(redis.command(&["GET", "a"]), text("kept"));
    redis.restart();
    assert_eq!(redis.command(&["GET", "a"]), text("kept"));
}

#[test]
fn etcd_keeps_its_data_over_kill_and_restart() {
    let Some(etcd) = Etcd::start() else { return };
    assert_eq!(etcd.ctl(&["put", "a", "kept"]), "OK");
    etcd.server().kill();
    assert!(!etcd.server().is_running());
    etcd.server().start_again();
    assert_eq!(etcd.ctl(&["get", "a"]), "a\nkept");
    etcd.server().restart();
    assert_eq!(etcd.ctl(&["get", "a"]), "a\nkept");
}
