//! Servers in company: poolers, standbys, clusters, sentinels, and who may come in.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

use std::process::Command;

use tenure_testbed::{
    EtcdOptions, Postgres, PostgresOptions, Redis, RedisCluster, RedisOptions, RedisSentinel,
    Reply, Server,
};

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

/// `psql URL -c SQL`: what it printed, or its error.
fn psql(url: &str, sql: &str) -> Result<String, String> {
    let mut command = Command::new("psql");
    let output = command
        .args(["-X", "-A", "-t", url, "-c", sql])
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

#[test]
fn pgbouncer_pools_transactions_with_and_without_a_password() {
    for password in [None, Some("p@ss w'rd")] {
        let mut options = PostgresOptions::new();
        if let Some(password) = password {
            options = options.password(password);
        }
        let Some(pg) = options.start() else { return };
        let Some(bouncer) = pg.pgbouncer() else {
            return;
        };
        assert_eq!(psql(&bouncer.url(), "SELECT 1").unwrap(), "1");
        let error = psql(&bouncer.url(), "SET a.b = 1; LISTEN x; SELECT nonsense").unwrap_err();
        assert!(error.contains("nonsense"), "{error}");
        let stranger = Postgres::url_for(bouncer.address(), "stranger", None, "postgres");
        psql(&stranger, "SELECT 1").unwrap_err();
    }
}

#[test]
fn a_standby_follows_and_takes_no_writes() {
    let Some(pg) = PostgresOptions::new().password("secret").start() else {
        return;
    };
    let standby = pg.standby();
    pg.sql("CREATE TABLE t (a text)");
    pg.sql("INSERT INTO t VALUES ('streamed')");
    let seen = "SELECT count(*) FROM pg_tables WHERE tablename = 't'";
    let limit = std::time::Duration::from_secs(30);
    tenure_testbed::wait_until("the table on the standby", limit, || {
        (standby.sql(seen) == "1" && standby.sql("SELECT a FROM t") == "streamed").then_some(())
    });
    let error = psql(&standby.url(), "INSERT INTO t VALUES ('no')").unwrap_err();
    assert!(error.contains("read-only"), "{error}");
}

#[test]
fn postgres_asks_for_password_tls_and_certificate() {
    let options = PostgresOptions::new()
        .password("secret")
        .client_certificate();
    let Some(pg) = options.start() else { return };
    let certs = pg.certs().unwrap();
    let tls = format!("sslmode=verify-full&sslrootcert={}", certs.ca().display());
    let client = format!(
        "sslcert={}&sslkey={}",
        certs.client_cert().display(),
        certs.client_key().display()
    );
    assert_eq!(
        psql(&format!("{}?{tls}&{client}", pg.url()), "SELECT 1").unwrap(),
        "1"
    );
    let error = psql(&format!("{}?{tls}&sslcert=none", pg.url()), "SELECT 1").unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    let error = psql(&format!("{}?sslmode=disable", pg.url()), "SELECT 1").unwrap_err();
    assert!(error.contains("no encryption"), "{error}");
    let wrong = Postgres::url_for(pg.address(), "postgres", Some("wrong"), "postgres");
    let error = psql(&format!("{wrong}?{tls}&{client}"), "SELECT 1").unwrap_err();
    assert!(error.contains("password authentication failed"), "{error}");
}

#[test]
fn a_postgres_user_without_rights_has_none() {
    let Some(pg) = Postgres::shared() else { return };
    pg.create_user("nobody_at_all", Some("pw"));
    let url = Postgres::url_for(pg.address(), "nobody_at_all", Some("pw"), "postgres");
    assert_eq!(psql(&url, "SELECT 1").unwrap(), "1");
    psql(&url, "CREATE TABLE public.mine (a text)").unwrap_err();
}

#[test]
fn redis_cluster_serves_all_slots_on_three_nodes() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 3);
    for key in ["a", "b", "c", "d", "e"] {
        let node = cluster.node_of(key);
        assert_eq!(node.command(&["SET", key, "v"]), text("OK"));
    }
    cluster.nodes()[1].restart();
    cluster.wait_until_whole();
}

#[test]
fn sentinels_move_to_the_replica_when_the_primary_dies() {
    let Some(set) = RedisSentinel::start() else {
        return;
    };
    let old = set.primary().clone();
    assert_eq!(old.command(&["SET", "a", "kept"]), text("OK"));
    assert_eq!(old.command(&["WAIT", "1", "10000"]), Reply::Int(1));
    old.kill();
    let new = set.failed_over_from(&old);
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command(&["GET", "a"]), text("kept"));
    old.start_again();
    assert_eq!(set.replica().port(), old.port());
}

#[test]
fn redis_asks_for_password_tls_and_rights() {
    let options = RedisOptions::new().password("secret").client_certificate();
    let Some(redis) = options.start() else { return };
    assert!(redis.url().starts_with("rediss://:secret@127.0.0.1:"));
    redis.create_user("app", "pw", &["~app:*", "+get"]);
    let certs = redis.certs().unwrap();
    let cli = |extra: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args([
            "-p",
            &redis.port().to_string(),
            "--tls",
            "--no-auth-warning",
        ]);
        command.arg("--cacert").arg(certs.ca()).args(extra);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let client = [
        "--cert".to_owned(),
        certs.client_cert().display().to_string(),
        "--key".to_owned(),
        certs.client_key().display().to_string(),
    ];
    let with = |words: &[&str]| {
        let mut all: Vec<&str> = client.iter().map(String::as_str).collect();
        all.extend_from_slice(words);
        cli(&all)
    };
    assert_eq!(with(&["-a", "secret", "SET", "app:a", "1"]).trim(), "OK");
    assert!(with(&["GET", "app:a"]).contains("NOAUTH"));
    assert_eq!(
        with(&["--user", "app", "-a", "pw", "GET", "app:a"]).trim(),
        "1"
    );
    assert!(with(&["--user", "app", "-a", "pw", "SET", "app:a", "2"]).contains("NOPERM"));
    let without = cli(&["-a", "secret", "GET", "app:a"]);
    assert!(!without.trim().eq("1"), "{without}");
}

#[test]
fn a_forgetful_redis_forgets() {
    let Some(redis) = RedisOptions::new().forgetful().start() else {
        return;
    };
    redis.command(&["SET", "a", "1"]);
    redis.restart();
    assert_eq!(redis.command(&["GET", "a"]), Reply::Nil);
}

#[test]
fn etcd_goes_on_without_one_of_three() {
    let Some(etcd) = EtcdOptions::new().members(3).start() else {
        return;
    };
    let ports: Vec<u16> = etcd.members().iter().map(Server::port).collect();
    assert_eq!(ports.len(), 3);
    assert_eq!(etcd.ctl(&["put", "a", "kept"]), "OK");
    let leader = etcd.leader().clone();
    leader.kill();
    assert_ne!(etcd.leader().port(), leader.port());
    assert_eq!(etcd.ctl(&["get", "a"]), "a\nkept");
    leader.start_again();
    assert_eq!(etcd.ctl(&["put", "a", "b"]), "OK");
}

#[test]
fn etcd_asks_for_password_tls_and_rights() {
    let options = EtcdOptions::new()
        .root_password("secret")
        .client_certificate();
    let Some(etcd) = options.start() else { return };
    assert!(etcd.url().starts_with("etcds://root:secret@127.0.0.1:"));
    etcd.create_user("app", "pw", &[("readwrite", "app/")]);
    etcd.create_user("nobody", "pw", &[]);
    let certs = etcd.certs().unwrap();
    let ctl = |login: &str, words: &[&str]| {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=https://{}", etcd.server().address()))
            .arg(format!("--cacert={}", certs.ca().display()))
            .arg(format!("--cert={}", certs.client_cert().display()))
            .arg(format!("--key={}", certs.client_key().display()))
            .arg(format!("--user={login}"))
            .args(words);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text + &String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(ctl("app:pw", &["put", "app/a", "1"]).trim(), "OK");
    assert!(ctl("app:pw", &["put", "other", "1"]).contains("permission denied"));
    assert!(ctl("nobody:pw", &["get", "app/a"]).contains("permission denied"));
    assert!(ctl("app:wrong", &["get", "app/a"]).contains("authentication failed"));
}

#[test]
fn paused_servers_hold_their_connections_and_go_on() {
    let Some(redis) = Redis::start() else { return };
    redis.command(&["SET", "a", "1", "PX", "50"]);
    redis.pause();
    assert!(redis.is_running());
    std::thread::sleep(std::time::Duration::from_millis(100));
    redis.resume();
    assert_eq!(redis.command(&["GET", "a"]), Reply::Nil);
    let Some(pg) = Postgres::start() else { return };
    pg.pause();
    // The kernel accepts for it, and nobody answers.
    let ask = format!("{}?connect_timeout=2", pg.url());
    psql(&ask, "SELECT 1").unwrap_err();
    pg.resume();
    assert_eq!(psql(&ask, "SELECT 1").unwrap(), "1");
}
