//! What is refused, with which sentence, and that it stays as it was.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::time::Duration;

use tenure::{Acquired, ErrorKind, HolderRequest, Released, Store};
use tenure_postgres::{PostgresOptions as Options, PostgresStore};
use tenure_testbed::{Postgres, PostgresOptions};

use support::{Bed, LONG, blocking, failed, granted, held, key, request, soon, until};

const PASSWORD: &str = "hunter2 'and' \"more\"";

/// A call that must find the set-up wrong; gives the sentence.
async fn misconfigured(store: &PostgresStore) -> String {
    let error = failed(soon("a call", store.acquire(&request("k", "a", LONG))).await);
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(!error.to_string().contains('\n'), "one sentence: {error}");
    error.to_string()
}

#[tokio::test]
async fn wrong_password_user_and_database() {
    let options = PostgresOptions::new().password(PASSWORD);
    let Some(server) = blocking(move || options.start()).await else {
        return;
    };
    let bed = Bed::on(&server).await;
    granted(&bed.store(), "k", "a", LONG).await;
    assert!(!format!("{:?} {:?}", bed.store(), bed.options("")).contains("hunter2"));
    let at = |user, password, database| {
        let url = Postgres::url_for(server.address(), user, password, database);
        bed.elsewhere(&url).store()
    };
    let text = misconfigured(&at("postgres", Some("hunter22"), "postgres")).await;
    assert!(text.contains("password"), "{text}");
    let text = misconfigured(&at("postgres", None, "postgres")).await;
    assert!(text.contains("password"), "{text}");
    let text = misconfigured(&at("nobody", Some("hunter2"), "postgres")).await;
    assert!(text.contains("nobody"), "{text}");
    let text = misconfigured(&at("postgres", Some(PASSWORD), "nothing")).await;
    assert!(text.contains("no such database"), "{text}");
    // The listening connection says the same.
    let error = at("postgres", Some("hunter22"), "postgres")
        .watch(&key("k"))
        .await
        .err();
    assert_eq!(error.unwrap().kind(), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn password_from_a_file() {
    let options = PostgresOptions::new().password(PASSWORD);
    let Some(server) = blocking(move || options.start()).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let url = Postgres::url_for(server.address(), "postgres", None, "postgres");
    let url = format!("{url}?password-file={}", file.display());
    let store = PostgresStore::open(Options::from_url(&url).unwrap()).unwrap();
    store.init().await.unwrap();
    granted(&store, "k", "a", LONG).await;
}

#[tokio::test]
async fn missing_table_is_named_with_the_command_that_makes_it() {
    let options = PostgresOptions::new().password(PASSWORD);
    let Some(server) = blocking(move || options.start()).await else {
        return;
    };
    let bed = Bed::without_table(&server.url());
    let store = bed.store();
    let text = misconfigured(&store).await;
    let table = format!("\"public\".\"{}\"", bed.table);
    assert!(text.contains(&table), "{text}");
    let command = format!(
        "`tenure init --store 'postgres://postgres@{}/postgres?table={}'`",
        server.address(),
        bed.table
    );
    assert!(text.contains(&command), "{text}");
    let error = failed(store.read(&key("k")).await);
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(
        store.init().await.unwrap().contains("Created"),
        "it makes it"
    );
    assert!(store.init().await.unwrap().contains("nothing to do"));
    granted(&store, "k", "a", LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_make_one_table() {
    let Some(url) = blocking(Postgres::shared_url).await else {
        return;
    };
    let schema = tenure_testbed::unique("Schema \"x\" ");
    let options = Options::from_url(&url).unwrap().table(&schema, "odd.table");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = PostgresStore::open(options.clone()).unwrap();
        tasks.spawn(async move { store.init().await });
    }
    for said in tasks.join_all().await {
        said.unwrap();
    }
    let store = PostgresStore::open(options).unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    let mut notices = store.watch(&lease.key).await.unwrap();
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    use futures_util::StreamExt;
    assert!(soon("the notice", notices.next()).await.is_some());
}

#[tokio::test]
async fn missing_columns_and_keys_are_named() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    bed.sql("ALTER table TABLE DROP COLUMN tenure_ttl_ns").await;
    let text = misconfigured(&store).await;
    assert!(
        text.contains("tenure_ttl_ns") && text.contains("tenure init"),
        "{text}"
    );
    assert!(store.init().await.unwrap().contains("Added tenure_ttl_ns"));
    granted(&store, "k", "a", LONG).await;
    bed.sql(&format!(
        "ALTER table TABLE DROP CONSTRAINT \"{}_pkey\"",
        bed.table
    ))
    .await;
    let text = misconfigured(&store).await;
    assert!(text.contains("primary key on lease_name"), "{text}");
    bed.sql("ALTER table TABLE DROP COLUMN holder_id").await;
    let text = misconfigured(&store).await;
    assert!(text.contains("holder_id"), "{text}");
    let error = failed(store.init().await);
    assert!(error.to_string().contains("holder_id"), "{error}");
}

/// What `schema` prints gives just the rights that are needed, for everything.
#[tokio::test]
async fn least_rights_are_enough_and_less_is_not() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    server.create_user("app", None);
    let url = Postgres::url_for(server.address(), "app", None, "postgres");
    let bed = Bed::on(&server).await;
    let app = bed.elsewhere(&url);
    let store = app.store();
    let text = misconfigured(&store).await;
    for word in ["\"app\"", "GRANT SELECT, INSERT, UPDATE", &bed.table] {
        assert!(text.contains(word), "{word}: {text}");
    }
    server.sql(&format!("GRANT SELECT ON public.\"{}\" TO app", bed.table));
    misconfigured(&store).await;
    server.sql(&app.options("").schema());
    let lease = granted(&store, "k", "a", LONG).await;
    held(&store, "k", "b").await;
    let mut notices = store.watch(&lease.key).await.unwrap();
    store.renew(&lease, LONG).await.unwrap();
    store
        .renew_many(&[(lease.clone(), LONG)])
        .await
        .remove(0)
        .unwrap();
    store
        .ask(&lease.key, HolderRequest::StepDown)
        .await
        .unwrap();
    store.list("", 10).await.unwrap();
    store.read(&lease.key).await.unwrap();
    assert_eq!(store.release(&lease).await.unwrap(), Released::Released);
    use futures_util::StreamExt;
    assert!(soon("a notice", notices.next()).await.is_some());
    assert!(
        store.init().await.unwrap().contains("nothing to do"),
        "without owning it"
    );
    let url = format!("{url}?table=other");
    let other = PostgresStore::open(Options::from_url(&url).unwrap()).unwrap();
    let error = failed(other.init().await);
    assert_eq!(
        error.kind(),
        ErrorKind::Misconfigured,
        "it may not create: {error}"
    );
}

#[tokio::test]
async fn replica_is_refused_and_the_primary_found() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    let bed = Bed::on(&server).await;
    granted(&bed.store(), "k", "a", LONG).await;
    let standby = blocking({
        let server = server.clone();
        move || server.standby()
    })
    .await;
    let store = bed.elsewhere(&standby.url()).store();
    let text = misconfigured(&store).await;
    assert!(
        text.contains("takes no writes") && text.contains("primary"),
        "{text}"
    );
    // What it shows may be old: it is no answer.
    for error in [
        failed(store.read(&key("k")).await),
        failed(store.list("", 5).await),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
    let strict = bed
        .elsewhere(&standby.url())
        .store_with("&target_session_attrs=read-write");
    let text = misconfigured(&strict).await;
    assert!(text.contains("takes no writes"), "{text}");
    let both = format!(
        "postgres://postgres@{},{}/postgres",
        standby.address(),
        server.address()
    );
    let store = bed.elsewhere(&both).store();
    assert_eq!(held(&store, "k", "b").await.holder.as_str(), "a");
    let both = format!("postgres://postgres@{0},{0}/postgres", standby.address());
    let error = failed(bed.elsewhere(&both).store().read(&key("k")).await);
    assert_eq!(
        error.kind(),
        ErrorKind::Unavailable,
        "a failover is under way: {error}"
    );
    assert!(!error.may_have_worked());
}

#[tokio::test]
async fn read_only_database_is_refused() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    let bed = Bed::on(&server).await;
    server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let text = misconfigured(&bed.store()).await;
    assert!(text.contains("takes no writes"), "{text}");
}

#[tokio::test]
async fn record_that_cannot_be_read_is_not_overwritten() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    bed.sql(
        "ALTER table TABLE ALTER holder_id DROP NOT NULL, ALTER version DROP NOT NULL,
           ALTER acquired_at_utc DROP NOT NULL, ALTER expires_at_utc DROP NOT NULL",
    )
    .await;
    let odd = [
        "version = -5",
        "version = NULL",
        "version = 9007199254740991",
        "version = 9223372036854775807",
        "expires_at_utc = NULL",
        "acquired_at_utc = NULL",
        "holder_id = NULL",
        "holder_id = '', expires_at_utc = 'infinity'",
        "holder_id = repeat('x', 513), expires_at_utc = 'infinity'",
        "holder_id = E'a\\nb', expires_at_utc = 'infinity'",
    ];
    for (n, change) in odd.iter().enumerate() {
        let name = format!("odd{n}");
        let lease = granted(&store, &name, "a", Duration::from_millis(10)).await;
        bed.sql(&format!(
            "UPDATE TABLE SET {change} WHERE lease_name = '{name}'"
        ))
        .await;
        // Also once its term has ended.
        until("the end of the term", async || {
            let ended = format!(
                "SELECT (expires_at_utc <= clock_timestamp() OR expires_at_utc = 'infinity') IS NOT FALSE
                 FROM TABLE WHERE lease_name = '{name}'"
            );
            (bed.sql(&ended).await.as_deref() == Some("t")).then_some(())
        })
        .await;
        let row = format!("SELECT l::text FROM TABLE AS l WHERE lease_name = '{name}'");
        let before = bed.sql(&row).await;
        let error = failed(store.acquire(&request(&name, "b", LONG)).await);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{change}: {error}");
        assert!(error.to_string().contains(&name), "{error}");
        let again = tenure::AcquireRequest {
            attempt: lease.attempt.unwrap(),
            ..request(&name, "a", LONG)
        };
        failed(store.acquire(&again).await);
        assert_eq!(bed.sql(&row).await, before, "{change}");
        let batch = store.renew_many(&[(lease.clone(), LONG)]).await;
        assert_eq!(batch.len(), 1);
        assert_eq!(bed.sql(&row).await, before, "{change}");
    }
    granted(&store, "whole", "a", LONG).await;
}

/// A term without end, written by hand, is one: it is held.
#[tokio::test]
async fn record_that_never_ends_is_held() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let lease = granted(&store, "k", "a", LONG).await;
    bed.sql("UPDATE TABLE SET expires_at_utc = 'infinity'")
        .await;
    let seen = held(&store, "k", "b").await;
    assert!(seen.rest.unwrap() > Duration::from_secs(3600 * 24 * 365 * 100));
    bed.sql("UPDATE TABLE SET expires_at_utc = '-infinity'")
        .await;
    assert_eq!(store.read(&lease.key).await.unwrap(), None);
    assert!(granted(&store, "k", "b", LONG).await.token > lease.token);
}

#[tokio::test]
async fn database_that_cannot_hold_a_name() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    server.sql(
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    let url = Postgres::url_for(server.address(), "postgres", None, "latin");
    let store = Bed::at(&url).await.store();
    granted(&store, "café", "a", LONG).await;
    let error = failed(store.acquire(&request("鍵", "a", LONG)).await);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("UTF8"), "{error}");
}

#[tokio::test]
async fn trigger_that_swallows_a_record_is_no_grant() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let name = &bed.table;
    bed.sql(&format!(
        "CREATE FUNCTION \"{name}_f\"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER t BEFORE INSERT ON TABLE FOR EACH ROW EXECUTE FUNCTION \"{name}_f\"()"
    ))
    .await;
    let text = misconfigured(&bed.store()).await;
    assert!(text.contains("swallowed"), "{text}");
}

/// Renewals of what is there go on, because they find room in their own page.
#[tokio::test]
async fn full_disk_refuses_and_loses_nothing() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let Some(mount) = support::SmallDisk::new(folder.path(), "2m", server.folder()) else {
        return;
    };
    let bed = Bed::on(&server).await;
    let store = bed.store();
    let lease = granted(&store, "kept", "a", LONG).await;
    server.sql(&format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        mount.path.display()
    ));
    server.sql(&format!(
        "ALTER TABLE public.\"{}\" SET TABLESPACE small",
        bed.table
    ));
    let filler = mount.path.join("filler");
    let mut size = 4 << 20;
    while size >= 4096 && std::fs::write(&filler, vec![0_u8; size]).is_err() {
        size -= 64 << 10;
    }
    let mut confirmed = Vec::new();
    let error = soon("a full disk", async {
        for n in 0_u32.. {
            let sample = request(&format!("{n:0>400}"), "a", LONG);
            match store.acquire(&sample).await {
                Ok(Acquired::Granted(lease)) => confirmed.push(lease),
                Ok(held) => panic!("{held:?}"),
                Err(error) => return error,
            }
        }
        unreachable!()
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_worked(), "{error}");
    assert!(error.to_string().contains("is full"), "{error}");
    for lease in confirmed.iter().chain([&lease]) {
        let seen = store.read(&lease.key).await.unwrap().unwrap();
        assert_eq!(seen.token, lease.token, "what was confirmed is there");
    }
    std::fs::remove_file(&filler).unwrap();
    granted(&store, "room", "a", LONG).await;
}
