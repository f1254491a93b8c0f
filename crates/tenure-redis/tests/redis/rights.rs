//! The rights that are needed: those of `schema` are enough, and without one of them
//! the error says so and leaves nothing behind.

use futures_util::StreamExt;
use tenure::{Asked, ErrorKind, HolderRequest, Notice, Released, Renewed, Store};
use tenure_redis::RedisOptions;
use tenure_testbed::{Redis, RedisCluster, RedisSentinel, Reply};

use crate::support::{LONG, assert_kind, beside, granted, held, key, open, record, request, soon};

/// The words of the ACL rule in a schema, as a shell would take them apart.
fn rules(options: &RedisOptions) -> Vec<String> {
    let schema = options.schema();
    let line = schema.lines().find(|line| line.starts_with("redis-cli"));
    let words = line.unwrap().split(' ').map(|word| word.trim_matches('\''));
    let words = words.skip_while(|word| *word != "on");
    // The password is the testbed's to set.
    let words = words.filter(|word| *word != "on" && !word.starts_with('>'));
    words.map(str::to_owned).collect()
}

fn create_user(redis: &Redis, name: &str, rules: &[String]) {
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    redis.create_user(name, "pw", &rules);
}

/// Everything that a store does.
async fn use_all(store: &dyn Store) {
    let mut notices = store.watch(&key("k")).await.unwrap();
    let lease = granted(store, "k", "a", LONG).await;
    let pushed = soon("a push", notices.next()).await;
    assert!(matches!(pushed, Some(Notice::Held(seen)) if seen.token == lease.token));
    held(store, "k", "b").await;
    let asked = store
        .ask(&lease.key, HolderRequest::StepDown)
        .await
        .unwrap();
    assert!(matches!(asked, Asked::Left { .. }));
    assert_eq!(soon("a push", notices.next()).await, Some(Notice::Look));
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(
        renewed,
        Renewed::Renewed(_, Some(HolderRequest::StepDown))
    ));
    assert_eq!(store.list("", 10).await.unwrap().len(), 1);
    for odd in ["{tag}/k", "a}b"] {
        let lease = granted(store, odd, "a", LONG).await;
        assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    }
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    assert_eq!(soon("a push", notices.next()).await, Some(Notice::Free));
}

#[tokio::test]
async fn rights_of_the_schema_are_enough() {
    let Some(redis) = Redis::start() else { return };
    let options = RedisOptions::from_url(&redis.url()).unwrap();
    create_user(&redis, "app", &rules(&options));
    let url = redis.url_for(redis.address(), "app", Some("pw"));
    let store = open(&url);
    use_all(&store).await;
    let said = store.init().await.unwrap();
    assert!(said.contains("nothing created"), "{said}");
}

/// A server before 7.0 has no PEXPIRETIME; a user who may not use it is the same to us.
#[tokio::test]
async fn servers_without_pexpiretime_work_too() {
    let Some(redis) = Redis::start() else { return };
    let options = RedisOptions::from_url(&redis.url()).unwrap();
    let mut rules = rules(&options);
    rules.retain(|rule| rule != "+pexpiretime");
    create_user(&redis, "old", &rules);
    let store = open(&redis.url_for(redis.address(), "old", Some("pw")));
    use_all(&store).await;
    let lease = granted(&store, "many", "a", LONG).await;
    for _ in 0..300 {
        let renewed = store.renew(&lease, LONG).await.unwrap();
        assert!(matches!(renewed, Renewed::Renewed(..)), "{renewed:?}");
    }
    // What others have written is not taken for ours here either.
    redis.command(&["PSETEX", &record("many"), "500000", "a"]);
    let lost = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(lost, Renewed::Lost(_)), "{lost:?}");
}

#[tokio::test]
async fn rights_of_the_schema_are_enough_on_a_cluster() {
    let Some(cluster) = RedisCluster::start() else {
        return;
    };
    let rules = rules(&RedisOptions::from_url(&cluster.url()).unwrap());
    for node in cluster.nodes() {
        create_user(node, "app", &rules);
    }
    let url = cluster.url().replace("://", "://app:pw@");
    use_all(&open(&url)).await;
}

#[tokio::test]
async fn rights_of_the_schema_are_enough_behind_sentinel() {
    let Some(sentinel) = RedisSentinel::start() else {
        return;
    };
    let rules = rules(&RedisOptions::from_url(&sentinel.url()).unwrap());
    for node in sentinel.nodes() {
        create_user(node, "app", &rules);
    }
    let url = sentinel.url().replace("://", "://app:pw@");
    use_all(&open(&url)).await;
}

#[tokio::test]
async fn missing_right_is_named_and_leaves_no_lease() {
    let Some(redis) = Redis::start() else { return };
    let all = rules(&RedisOptions::from_url(&redis.url()).unwrap());
    for (number, lacking) in [
        "get",
        "hmget",
        "hset",
        "psetex",
        "pexpireat",
        "evalsha",
        "time",
    ]
    .iter()
    .enumerate()
    {
        let user = format!("user{number}");
        let rules: Vec<_> = all
            .iter()
            .filter(|rule| **rule != format!("+{lacking}"))
            .cloned()
            .collect();
        create_user(&redis, &user, &rules);
        let store = open(&redis.url_for(redis.address(), &user, Some("pw")));
        let name = format!("lacking {lacking}");
        let taken = store.acquire(&request(&name, "a", LONG)).await;
        let error = assert_kind(taken, ErrorKind::Misconfigured, "tenure schema");
        assert!(!error.to_string().contains("pw"), "{error}");
        // At worst there is a record that ends by itself, and is nobody's of ours.
        let ends = redis.command(&["PTTL", &record(&name)]);
        assert_ne!(ends, Reply::Int(-1), "{lacking}: a record without an end");
        if *lacking != "pexpireat" {
            assert_eq!(ends, Reply::Int(-2), "{lacking}: a record was left");
        }
    }
    // Keys of others are out of reach: the rights are for these names only.
    create_user(&redis, "app", &all);
    let other = RedisOptions::from_url(&redis.url_for(redis.address(), "app", Some("pw")));
    let other = tenure_redis::RedisStore::open(other.unwrap().prefix("other:")).unwrap();
    let taken = other.acquire(&request("k", "a", LONG)).await;
    assert_kind(taken, ErrorKind::Misconfigured, "tenure schema");
}

/// Not being allowed to publish costs the push and not the lease.
#[tokio::test]
async fn lease_works_without_the_right_to_publish() {
    let Some(redis) = Redis::start() else { return };
    let mut rules = rules(&RedisOptions::from_url(&redis.url()).unwrap());
    rules.retain(|rule| !rule.starts_with('&'));
    create_user(&redis, "mute", &rules);
    let store = open(&redis.url_for(redis.address(), "mute", Some("pw")));
    let lease = granted(&store, "k", "a", LONG).await;
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    let watched = store.watch(&key("k")).await.map(|_| ());
    assert_kind(watched, ErrorKind::Misconfigured, "subscribe");
    assert_eq!(redis.command(&["EXISTS", &beside("k")]), Reply::Int(1));
}
