//! What each statement does under a lock, in one round trip, and leaves behind: nothing.

#![allow(clippy::unwrap_used, reason = "what must not fail fails the test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use tenure::{
    Acquired, BootClock, Clock, ErrorKind, HolderRequest, Loss, Released, Renewed, Store,
};
use tenure_testbed::Postgres;
use tokio_postgres::Client;

use support::{Bed, LONG, blocking, failed, granted, key, request, soon, until};

/// Waits until so many statements wait for a lock on the server.
async fn waiting(bed: &Bed, count: i64) {
    let client = bed.by_hand().await;
    let table = format!("%\"{}\"%", bed.table);
    until("statements that wait for a lock", async || {
        let row = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query LIKE $1",
                &[&table],
            )
            .await
            .unwrap();
        (row.get::<_, i64>(0) >= count).then_some(())
    })
    .await;
}

async fn locked(bed: &Bed, key: &str) -> Client {
    let client = bed.by_hand().await;
    client.batch_execute("BEGIN").await.unwrap();
    let lock = format!(
        "SELECT 1 FROM public.\"{}\" WHERE lease_name = $1 FOR UPDATE",
        bed.table
    );
    client.query_one(&lock, &[&key]).await.unwrap();
    client
}

/// Until the server's clock has passed the end of the record's term.
async fn ended(bed: &Bed, key: &str) {
    let client = bed.by_hand().await;
    let ended = format!(
        "SELECT expires_at_utc <= clock_timestamp() FROM public.\"{}\" WHERE lease_name = $1",
        bed.table
    );
    until("the end of the term", async || {
        let row = client.query_one(&ended, &[&key]).await.unwrap();
        row.get::<_, bool>(0).then_some(())
    })
    .await;
}

/// A renewal that waited for a lock past the end of its term finds it ended: the clock
/// is read after the lock was got, even if nobody changed the row meanwhile.
#[tokio::test]
async fn renewal_is_judged_after_the_wait_for_the_lock() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&lock_timeout=20s");
    let lease = granted(&store, "k", "a", Duration::from_millis(900)).await;
    let many = granted(&store, "many", "a", Duration::from_millis(900)).await;
    let (lock, lock_many) = (locked(&bed, "k").await, locked(&bed, "many").await);
    let renewal = tokio::spawn({
        let store = store.clone();
        async move { store.renew(&lease, LONG).await.unwrap() }
    });
    let batch = tokio::spawn(async move { store.renew_many(&[(many, LONG)]).await.remove(0) });
    waiting(&bed, 2).await;
    ended(&bed, "k").await;
    ended(&bed, "many").await;
    lock.batch_execute("COMMIT").await.unwrap();
    lock_many.batch_execute("ROLLBACK").await.unwrap();
    let answer = soon("the renewal", renewal).await.unwrap();
    assert_eq!(answer, Renewed::Lost(Loss::Expired));
    let answer = soon("the batch", batch).await.unwrap().unwrap();
    assert_eq!(answer, Renewed::Lost(Loss::Expired));
}

/// An acquire that waited is judged by the clock after it: it gets what ended meanwhile,
/// for a whole term from then on.
#[tokio::test]
async fn acquire_is_judged_after_the_wait_for_the_lock() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&lock_timeout=20s");
    let first = granted(&store, "k", "a", LONG).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    let lock = locked(&bed, "k").await;
    let acquiring = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .acquire(&request("k", "b", Duration::from_secs(5)))
                .await
        }
    });
    waiting(&bed, 1).await;
    let before = BootClock.now();
    let pause = Duration::from_millis(700);
    BootClock.sleep_until(before + pause).await;
    lock.batch_execute("COMMIT").await.unwrap();
    let Acquired::Granted(lease) = soon("the acquire", acquiring).await.unwrap().unwrap() else {
        panic!("nobody has it");
    };
    let rest = store.read(&lease.key).await.unwrap().unwrap().rest.unwrap();
    let since = BootClock.now() - before - pause;
    assert!(
        rest + since >= Duration::from_millis(4900),
        "{rest:?}, {since:?} later"
    );
    assert!(lease.token > first.token);
}

/// A row that changed hands during the wait is told as it is now, not as the statement
/// saw it when it began.
#[tokio::test]
async fn answers_are_of_the_row_as_it_is_after_the_wait() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&lock_timeout=20s");
    let old = granted(&store, "k", "a", LONG).await;
    let freed = granted(&store, "freed", "a", LONG).await;
    assert_eq!(store.release(&freed).await.unwrap(), Released::Released);
    let change = bed.by_hand().await;
    let update = format!(
        "BEGIN; UPDATE public.\"{}\" SET holder_id = 'b', version = version + 7,
           expires_at_utc = clock_timestamp() + interval '1 hour'",
        bed.table
    );
    change.batch_execute(&update).await.unwrap();
    let (one, two, three, four) = (store.clone(), store.clone(), store.clone(), store.clone());
    let (lease, again) = (old.clone(), old.clone());
    let renewal = tokio::spawn(async move { one.renew(&lease, LONG).await });
    let release = tokio::spawn(async move { two.release(&again).await });
    let acquire = tokio::spawn(async move { three.acquire(&request("freed", "c", LONG)).await });
    let asked = tokio::spawn(async move { four.ask(&key("k"), HolderRequest::StepDown).await });
    waiting(&bed, 4).await;
    change.batch_execute("COMMIT").await.unwrap();
    let lost = soon("the renewal", renewal).await.unwrap().unwrap();
    let holder = tenure::Holder::new("b").unwrap();
    let token = tenure::Token(old.token.0 + 7);
    assert_eq!(lost, Renewed::Lost(Loss::Superseded { holder, token }));
    let released = soon("the release", release).await.unwrap().unwrap();
    assert_eq!(released, Released::NotHeld);
    let Acquired::Held(seen) = soon("the acquire", acquire).await.unwrap().unwrap() else {
        panic!("somebody else was faster");
    };
    assert_eq!(
        (seen.holder.as_str(), seen.token.0),
        ("b", freed.token.0 + 7)
    );
    let error = failed(soon("the request", asked).await.unwrap());
    assert_eq!(
        error.kind(),
        ErrorKind::Unsupported,
        "it is not ours now: {error}"
    );
    let still = bed
        .sql("SELECT holder_id FROM TABLE WHERE lease_name = 'freed'")
        .await;
    assert_eq!(still.as_deref(), Some("b"), "the loser changed nothing");
}

/// A row that is inserted or deleted during the wait.
#[tokio::test]
async fn acquire_meets_an_insert_and_a_delete_that_were_under_way() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&lock_timeout=20s");
    let old = granted(&store, "deleted", "a", Duration::from_millis(10)).await;
    ended(&bed, "deleted").await;
    let change = bed.by_hand().await;
    let work = format!(
        "BEGIN; DELETE FROM public.\"{0}\" WHERE lease_name = 'deleted';
         INSERT INTO public.\"{0}\" (lease_name, holder_id, version, acquired_at_utc, expires_at_utc)
         VALUES ('inserted', 'b', 1, now(), now() + interval '1 hour')",
        bed.table
    );
    change.batch_execute(&work).await.unwrap();
    let (one, two) = (store.clone(), store.clone());
    let deleted = tokio::spawn(async move { one.acquire(&request("deleted", "c", LONG)).await });
    let inserted = tokio::spawn(async move { two.acquire(&request("inserted", "c", LONG)).await });
    waiting(&bed, 2).await;
    change.batch_execute("COMMIT").await.unwrap();
    let Acquired::Granted(lease) = soon("one", deleted).await.unwrap().unwrap() else {
        panic!("its row is gone");
    };
    assert!(
        lease.token > old.token,
        "by the clock: {lease:?} after {old:?}"
    );
    let Acquired::Held(seen) = soon("two", inserted).await.unwrap().unwrap() else {
        panic!("somebody else was faster");
    };
    assert_eq!(seen.holder.as_str(), "b");
}

/// Who only sees that it is held takes no lock and writes nothing, so a candidate that
/// polls never holds up the holder.
#[tokio::test]
async fn candidate_that_finds_it_held_waits_for_nobody_and_writes_nothing() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    granted(&store, "k", "a", LONG).await;
    let state = "SELECT ctid::text || xmin || ' ' || xmax FROM TABLE";
    let before = bed.sql(state).await;
    for _ in 0..3 {
        support::held(&store, "k", "b").await;
    }
    assert_eq!(
        bed.sql(state).await,
        before,
        "the row was written or locked"
    );
    let _lock = locked(&bed, "k").await;
    soon("a look at a locked row", support::held(&store, "k", "b")).await;
}

#[tokio::test]
async fn wait_for_a_lock_is_bounded_by_the_server() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store_with("&lock_timeout=200ms");
    let lease = granted(&store, "k", "a", LONG).await;
    let free = granted(&store, "free", "a", LONG).await;
    store.release(&free).await.unwrap();
    let (lock, lock_free) = (locked(&bed, "k").await, locked(&bed, "free").await);
    let batch = [(lease.clone(), LONG)];
    let errors = [
        failed(soon("renew", store.renew(&lease, LONG)).await),
        failed(soon("release", store.release(&lease)).await),
        failed(soon("ask", store.ask(&lease.key, HolderRequest::StepDown)).await),
        failed(soon("acquire", store.acquire(&request("free", "b", LONG))).await),
        failed(soon("batch", store.renew_many(&batch)).await.remove(0)),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!error.may_have_worked(), "nothing was changed: {error}");
        assert!(
            error.to_string().contains("locked by another session"),
            "{error}"
        );
    }
    drop((lock, lock_free));
    until("the lock to go", async || {
        store.renew(&lease, LONG).await.ok()
    })
    .await;
}

/// Nothing of a statement stays in the session: neither settings nor transactions nor
/// prepared statements nor advisory locks.
#[tokio::test]
async fn session_is_left_as_it_was() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let client = Arc::new(bed.by_hand().await);
    let store =
        tenure_postgres::PostgresStore::with_client(client.clone(), bed.options("")).unwrap();
    let lease = granted(&store, "k", "a", LONG).await;
    support::held(&store, "k", "b").await;
    assert!(matches!(
        store.renew(&lease, LONG).await.unwrap(),
        Renewed::Renewed(..)
    ));
    store
        .renew_many(&[(lease.clone(), LONG)])
        .await
        .remove(0)
        .unwrap();
    store
        .ask(&lease.key, HolderRequest::StepDown)
        .await
        .unwrap();
    store.read(&lease.key).await.unwrap();
    store.list("", 5).await.unwrap();
    store.release(&lease).await.unwrap();
    let state = client
        .simple_query(
            "SELECT current_setting('lock_timeout')
               || ' ' || (SELECT count(*) FROM pg_prepared_statements)
               || ' ' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')
               || ' ' || (SELECT count(*) FROM pg_listening_channels())
               || ' ' || (now() = statement_timestamp())",
        )
        .await
        .unwrap();
    let state = state.iter().find_map(|answer| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(state, Some("0 0 0 0 true"));
}

/// Each way takes 40 ms: one round trip takes 80, two would take 160.
#[tokio::test]
async fn each_operation_is_one_round_trip() {
    let Some(server) = blocking(Postgres::start).await else {
        return;
    };
    let bed = Bed::on(&server).await;
    let proxy = server.proxy();
    let far = bed.elsewhere(&server.url_at(proxy.address())).store();
    let near = bed.store();
    granted(&far, "warm", "a", LONG).await;
    let each_way = Duration::from_millis(40);
    proxy.delay(each_way);
    // The best of a few: a busy machine can only make it longer.
    let mut best = [Duration::MAX; 8];
    for round in 0..4 {
        let name = format!("k{round}");
        let mut step = 0;
        let mut note = |began| {
            best[step] = best[step].min(BootClock.now() - began);
            step += 1;
        };
        let sample = request(&name, "a", LONG);
        let began = BootClock.now();
        let Acquired::Granted(lease) = far.acquire(&sample).await.unwrap() else {
            panic!("a free key");
        };
        note(began);
        let began = BootClock.now();
        far.acquire(&request(&name, "b", LONG)).await.unwrap();
        note(began);
        let began = BootClock.now();
        assert!(matches!(
            far.renew(&lease, LONG).await.unwrap(),
            Renewed::Renewed(..)
        ));
        note(began);
        let began = BootClock.now();
        far.read(&lease.key).await.unwrap().unwrap();
        note(began);
        let began = BootClock.now();
        far.renew_many(&[(lease.clone(), LONG)])
            .await
            .remove(0)
            .unwrap();
        note(began);
        let began = BootClock.now();
        far.list("", 10).await.unwrap();
        note(began);
        let began = BootClock.now();
        assert_eq!(far.release(&lease).await.unwrap(), Released::Released);
        note(began);
        let began = BootClock.now();
        let lost = far.renew(&lease, LONG).await.unwrap();
        note(began);
        assert!(matches!(lost, Renewed::Lost(_)));
    }
    for (step, time) in best.iter().enumerate() {
        assert!(
            *time >= each_way * 2,
            "the proxy delays: {step} took {time:?}"
        );
        assert!(
            *time < each_way * 4,
            "more than one round trip: {step} took {time:?}"
        );
    }
    drop(near);
}

/// Batches over the same keys in opposite orders never wait for each other in a circle,
/// and a key that stands twice in a batch has two answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_do_not_deadlock() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let mut batch = Vec::new();
    for n in 0..60 {
        let lease = granted(&store, &format!("k{n}"), "a", LONG).await;
        batch.push((lease, LONG - Duration::from_secs(n)));
    }
    let mut tasks = Vec::new();
    for n in 0..4 {
        let (store, mut batch) = (bed.store(), batch.clone());
        if n % 2 == 1 {
            batch.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                for answer in store.renew_many(&batch).await {
                    assert!(matches!(answer.unwrap(), Renewed::Renewed(..)));
                }
            }
        }));
    }
    for task in tasks {
        soon("a batch", task).await.unwrap();
    }
    let mut stranger = batch[0].0.clone();
    stranger.holder = tenure::Holder::new("b").unwrap();
    let twice = [batch[0].clone(), (stranger, LONG), batch[0].clone()];
    let answers = store.renew_many(&twice).await;
    let renewed = |place: usize| matches!(answers[place], Ok(Renewed::Renewed(..)));
    assert!(renewed(0) && !renewed(1) && renewed(2), "{answers:?}");
}

/// More than one statement's worth.
#[tokio::test]
async fn renew_many_of_thousands() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    bed.sql(
        "INSERT INTO TABLE (lease_name, holder_id, version, acquired_at_utc, expires_at_utc)
         SELECT 'k' || n, 'a', n, now(), now() + interval '1 hour' FROM generate_series(1, 2500) AS n",
    )
    .await;
    let leases = store.list("k", 3000).await.unwrap();
    assert_eq!(leases.len(), 2500);
    let batch: Vec<_> = leases.into_iter().map(|lease| (lease, LONG)).collect();
    for answer in store.renew_many(&batch).await {
        let Renewed::Renewed(lease, _) = answer.unwrap() else {
            panic!("it is live");
        };
        assert_eq!(lease.ttl, LONG);
    }
}

/// A term is never shorter than asked for, also where the server's clock cannot show it.
#[tokio::test]
async fn ttl_in_nanoseconds_is_kept() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let ttl = Duration::new(60, 123_456_789);
    let lease = granted(&store, "k", "a", ttl).await;
    assert_eq!(lease.ttl, ttl);
    assert!(lease.rest.unwrap() <= ttl);
    assert_eq!(store.read(&lease.key).await.unwrap().unwrap().ttl, ttl);
    let term = "SELECT floor(extract(epoch FROM expires_at_utc - acquired_at_utc) * 1000000)::bigint FROM TABLE";
    assert_eq!(bed.sql(term).await.as_deref(), Some("60123457"));
}

/// The clock of the server goes back: tokens still grow, because the row keeps the last.
#[tokio::test]
async fn token_grows_although_the_clock_went_back() {
    let Some(bed) = Bed::shared().await else {
        return;
    };
    let store = bed.store();
    let first = granted(&store, "k", "a", LONG).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    // As if that tenure had been granted by a clock that was a day ahead.
    bed.sql("UPDATE TABLE SET version = version + 86400000000")
        .await;
    let second = granted(&store, "k", "a", LONG).await;
    assert_eq!(second.token.0, first.token.0 + 86_400_000_000 + 1);
}
