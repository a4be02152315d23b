//! Field cases about a log that was tampered with, cut by a crash, or opened again.

use std::sync::Arc;

use serde_json::Value;
use toolgate_store::chain::{Flaw, Head, check};
use toolgate_store::{Appended, SqliteStore, Store, StoreError};

use crate::backend::{Backend, Raw};
use crate::field_cases::{case, verified};
use crate::sample::{Log, all_rows};

/// Field case F05: what an operator with full rights does to the file, the checker names.
#[tokio::test]
async fn f05_tampering_past_the_database_is_named() {
    let given = case("FC-F05");
    let tampering: Vec<_> = given["given"]["tamper"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let expected = [
        ("delete last 2", "DELETE FROM event WHERE seq > 8", Some((9, Flaw::Truncated))),
        ("delete all of one session", "DELETE FROM event", Some((1, Flaw::Truncated))),
        ("delete first", "DELETE FROM event WHERE seq = 1", Some((1, Flaw::Gap { found: 2 }))),
        (
            "swap 4 and 5",
            "UPDATE event SET seq = 99 WHERE seq = 4; UPDATE event SET seq = 4 WHERE seq = 5; \
             UPDATE event SET seq = 5 WHERE seq = 99",
            Some((4, Flaw::PrevHash)),
        ),
        ("edit 6", "UPDATE event SET recorded_at = recorded_at + 1 WHERE seq = 6", Some((6, Flaw::Hash))),
        (
            "insert copy of 7",
            "UPDATE event SET seq = seq + 100 WHERE seq > 7; UPDATE event SET seq = seq - 99 WHERE seq > 100; \
             INSERT INTO event SELECT tenant, session, 8, epoch, kind, run, step, call, decision, allow, \
             dispatch_attempt, terminal, input_id, recorded_at, header, payload, prev_hash, hash FROM event WHERE seq = 7",
            Some((8, Flaw::PrevHash)),
        ),
    ];
    for (name, sql, flaw) in expected {
        assert!(tampering.contains(&name), "{name}");
        let backend = Backend::sqlite().await;
        let log = ten_rows(&backend.store).await;
        let session = backend.store.session(&log.tenant, log.session).await.unwrap().unwrap();
        backend
            .operator(&format!(
                "DROP TRIGGER event_no_update; DROP TRIGGER event_no_delete; DROP TRIGGER event_no_replace; {sql}"
            ))
            .await
            .unwrap();
        let rows = all_rows(&backend.store, &log.tenant, log.session).await;
        let head = Head { seq: session.head_seq, hash: session.head_hash };
        let broken = check(&log.tenant, log.session, &rows, &head).err().map(|broken| (broken.seq, broken.flaw));
        assert_eq!(broken, flaw, "{name}");

        // New rows never take the place of deleted ones, nor of rows that stand beyond the head.
        let mut after = log.clone();
        let answer = backend.store.append(Arc::new(after.plain(b"after"))).await;
        if name == "insert copy of 7" {
            assert!(matches!(answer, Err(StoreError::Corrupt { .. })), "{answer:?}");
        } else {
            assert_eq!(answer.unwrap(), Appended::Ok { head: 11 }, "{name}");
        }
    }
    assert_eq!(
        given["expect"]["detected_with_exported_checkpoint"][0], "rewrite",
        "see chain.rs for the rewritten chain"
    );
}

async fn ten_rows(store: &Arc<dyn Store>) -> Log {
    let mut log = Log::started(store, "acme").await;
    for _ in 0..9 {
        store.append(Arc::new(log.plain(b"x"))).await.unwrap();
    }
    log
}

/// Field case F10, as far as it is about the store: a log that was cut by a crash at any row is whole up to there.
#[tokio::test]
async fn f10_cut_logs_are_whole_up_to_the_cut() {
    assert_eq!(case("FC-F10")["given"]["logs"].as_array().unwrap().len(), 5);
    let backend = Backend::memory();
    let log = ten_rows(&backend.store).await;
    for cut in 0..=log.rows.len() {
        let rows = &log.rows[..cut];
        let head = rows.last().map_or(Head { seq: 0, hash: [0; 32] }, |row| Head { seq: row.seq, hash: row.hash });
        check(&log.tenant, log.session, rows, &head).unwrap();
    }
}

/// Field case F04 on SQLite: closed for good and opened again by another process.
#[tokio::test]
async fn f04_a_closed_file_opens_again() {
    let backend = Backend::sqlite().await;
    let Raw::Sqlite(dir) = &backend.raw else { panic!("not SQLite") };
    let path = dir.path().join("again.sqlite");
    let first = SqliteStore::open(&path).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(first);
    let log = ten_rows(&store).await;
    drop(store);
    let again = SqliteStore::open(&path).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(again);
    assert_eq!(all_rows(&store, &log.tenant, log.session).await, log.rows);
    assert_eq!(verified(&store, log.session).await, 10);
}
