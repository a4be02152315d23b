//! Many writers at once: one chain, nothing lost, no lock errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{Connection as _, SqliteConnection};
use toolgate_store::chain::{Head, check};
use toolgate_store::{Appended, Store};

use crate::backend::{Backend, Raw};
use crate::field_cases::case;
use crate::sample::{Log, all_rows};

contract!(sixteen_appenders_make_one_chain, twenty_sessions_run_beside_a_reader);

/// Each appender reads the head, builds on it, and tries again when another was faster.
pub(crate) async fn one_chain(backend: &Backend, appenders: usize, stores: &[Arc<dyn Store>]) {
    let log = Log::started(&backend.store, "acme").await;
    let mut tasks = Vec::new();
    for appender in 0..appenders {
        let store = Arc::clone(&stores[appender % stores.len()]);
        let (tenant, session) = (log.tenant.clone(), log.session);
        tasks.push(tokio::spawn(async move {
            for _ in 0..2_000 {
                let rows = all_rows(&store, &tenant, session).await;
                let mut mine = Log { tenant: tenant.clone(), session, epoch: 1, rows };
                let append = mine.plain(format!("appender {appender}").as_bytes());
                match store.append(Arc::new(append)).await.unwrap() {
                    Appended::Ok { head } => return head,
                    Appended::Stale { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            panic!("appender {appender} never got through");
        }));
    }
    let mut heads = Vec::new();
    for task in tasks {
        heads.push(task.await.unwrap());
    }
    heads.sort_unstable();
    let expected: Vec<u64> = (2..=appenders as u64 + 1).collect();
    assert_eq!(heads, expected, "each place in the log was acknowledged once");
    let rows = all_rows(&backend.store, &log.tenant, log.session).await;
    let session = backend.store.session(&log.tenant, log.session).await.unwrap().unwrap();
    check(&log.tenant, log.session, &rows, &Head { seq: session.head_seq, hash: session.head_hash }).unwrap();
    assert_eq!(rows.len(), appenders + 1);
}

async fn sixteen_appenders_make_one_chain(backend: Backend) {
    let stores = [Arc::clone(&backend.store), backend.second().await];
    one_chain(&backend, 16, &stores).await;
}

/// Field case F07: many sessions, each appending, while a reader goes over everything.
async fn twenty_sessions_run_beside_a_reader(backend: Backend) {
    let store = &backend.store;
    let given = case("FC-F07");
    let number = |name: &str| given["given"][name].as_u64().unwrap();
    let events = number("events_per_run");
    let mut logs = Vec::new();
    for _ in 0..number("sessions") {
        logs.push(Log::started(store, "acme").await);
    }
    let sessions: Vec<_> = logs.iter().map(|log| log.session).collect();
    let tenant = logs[0].tenant.clone();
    let mut runs = Vec::new();
    for mut log in logs {
        let store = Arc::clone(store);
        runs.push(tokio::spawn(async move {
            for _ in 0..events {
                let append = log.plain(b"event");
                assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { head: log.head() });
            }
            log
        }));
    }
    let reader = tokio::spawn({
        let (store, tenant, sessions) = (Arc::clone(store), tenant, sessions);
        async move {
            for session in sessions {
                let rows = all_rows(&store, &tenant, session).await;
                let last = rows.last().unwrap();
                let head = Head { seq: last.seq, hash: last.hash };
                check(&tenant, session, &rows, &head).unwrap();
            }
        }
    });
    for run in runs {
        let log = run.await.unwrap();
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
        assert_eq!(log.head(), events + 1);
    }
    reader.await.unwrap();
}

#[tokio::test]
async fn another_process_that_holds_the_sqlite_lock_only_delays() {
    let backend = Backend::sqlite().await;
    let mut log = Log::started(&backend.store, "acme").await;
    let Raw::Sqlite(dir) = &backend.raw else { panic!("not SQLite") };
    let path = dir.path().join("log.sqlite");
    let mut holder = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();

    let store = Arc::clone(&backend.store);
    let append = Arc::new(log.plain(b"waits"));
    let mut waiting = tokio::spawn(async move { store.append(append).await.unwrap() });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "the append cannot be durable while another process holds the lock");
    // Readers are not held up by it.
    assert_eq!(all_rows(&backend.store, &log.tenant, log.session).await.len(), 1);

    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("the wait is bounded").unwrap();
    assert_eq!(answer, Appended::Ok { head: 2 });
}

/// Connections are cut while rows are appended: what came of a cut append is unknown, and the same bytes settle it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_and_double_nothing() {
    let backend = Backend::postgres().await;
    let mut log = Log::started(&backend.store, "acme").await;
    // How many appends got through; the end of the cutter's work is told by the largest number.
    let through = Arc::new(AtomicU64::new(0));
    let cutter = {
        let Raw::Postgres(url) = &backend.raw else { panic!("not PostgreSQL") };
        let (url, through) = (url.clone(), Arc::clone(&through));
        tokio::spawn(async move {
            let mut conn = sqlx::PgConnection::connect(&url).await.unwrap();
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'toolgate'";
            let mut seen = 0;
            while seen < u64::MAX {
                let now = through.load(Ordering::Relaxed);
                if now > seen {
                    sqlx::raw_sql(cut).execute(&mut conn).await.unwrap();
                    seen = now;
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let (mut unknown, mut already) = (0, 0);
    while log.head() < 50 || (unknown < 10 && log.head() < 5_000) {
        let append = Arc::new(log.plain(b"x"));
        let mut tries = 0;
        loop {
            match backend.store.append(Arc::clone(&append)).await {
                Ok(Appended::Ok { head }) if head == log.head() => break,
                Ok(Appended::Already { head }) if head == log.head() && tries > 0 => {
                    already += 1;
                    break;
                }
                Err(error) if error.outcome_unknown() && tries < 100 => unknown += 1,
                other => panic!("after {tries} tries: {other:?}"),
            }
            tries += 1;
        }
        through.fetch_add(1, Ordering::Relaxed);
    }
    through.store(u64::MAX, Ordering::Relaxed);
    cutter.await.unwrap();
    assert!(unknown >= 10, "only {unknown} appends were cut, {already} of them after they were applied");
    assert_eq!(backend.second().await.read(&log.tenant, log.session, 0, 1_000).await.unwrap(), log.rows);
}
