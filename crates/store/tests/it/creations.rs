//! Creations in a batch: beside each other and beside appends, each answered for itself.

use std::sync::Arc;

use toolgate_core::time::Timestamp;
use toolgate_store::{Appended, Created, IdempotencyKey, IdempotencyRow, Lanes, NewSession, StoreError, Write, Wrote};

use crate::backend::Backend;
use crate::sample::{Log, all_rows, digest, input, number, tenant};

contract!(
    creations_and_appends_share_a_batch,
    a_creation_is_followed_by_its_appends_in_the_same_batch,
    each_creation_that_does_not_fit_says_why,
    answers_to_requests_are_stored_with_their_sessions,
    lanes_create_sessions,
);

fn create(new: NewSession) -> Write {
    Write::Create(Arc::new(new))
}

fn answer_row(key: &str) -> IdempotencyRow {
    IdempotencyRow {
        key: IdempotencyKey {
            tenant: tenant("acme"),
            credential: "key_1".to_owned(),
            route: "POST /v1/sessions".to_owned(),
            key: key.to_owned(),
        },
        fingerprint: digest("body"),
        status: 201,
        body: b"{}".to_vec(),
        sealed_under: None,
        expires_at: Timestamp(5_000_000),
    }
}

async fn creations_and_appends_share_a_batch(backend: Backend) {
    let store = &backend.store;
    let mut old: Vec<Log> = Vec::new();
    for _ in 0..6 {
        old.push(Log::started(store, "acme").await);
    }
    let mut new: Vec<Log> = (0..9).map(|_| Log::new("acme")).collect();
    let mut writes: Vec<Write> = new.iter_mut().map(|log| create(log.creation())).collect();
    writes.extend(old.iter_mut().map(|log| Write::Append(Arc::new(log.plain(b"x")))));
    let repeated = writes.clone();
    for (place, answer) in store.write_many(writes).await.into_iter().enumerate() {
        let expected =
            if place < 9 { Wrote::Create(Created::Ok { head: 1 }) } else { Wrote::Append(Appended::Ok { head: 2 }) };
        assert_eq!(answer.unwrap(), expected, "write {place}");
    }
    for log in new.iter().chain(&old) {
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    }
    let session = store.session(&new[0].tenant, new[0].session).await.unwrap().unwrap();
    assert_eq!((session.epoch, session.head_seq, session.projection.status.as_str()), (1, 1, "running"));
    assert_eq!(session.owner, Some(crate::sample::node("node-1", 1)));
    assert_eq!((session.bundle, session.body_fingerprint), (digest("bundle"), digest("body")));

    // After a lost reply all of it is known.
    for (place, answer) in store.write_many(repeated).await.into_iter().enumerate() {
        match answer.unwrap() {
            Wrote::Create(created) => assert_eq!(created, Created::Already { head: 1 }, "write {place}"),
            Wrote::Append(appended) => assert_eq!(appended, Appended::Already { head: 2 }, "write {place}"),
        }
    }
}

async fn a_creation_is_followed_by_its_appends_in_the_same_batch(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::new("acme");
    let writes = vec![
        create(log.creation()),
        Write::Append(Arc::new(log.plain(b"second"))),
        Write::Append(Arc::new(log.plain(b"third"))),
    ];
    let answers: Vec<Wrote> = store.write_many(writes).await.into_iter().map(Result::unwrap).collect();
    let expected = [
        Wrote::Create(Created::Ok { head: 1 }),
        Wrote::Append(Appended::Ok { head: 2 }),
        Wrote::Append(Appended::Ok { head: 3 }),
    ];
    assert_eq!(answers, expected);
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}

async fn each_creation_that_does_not_fit_says_why(backend: Backend) {
    let store = &backend.store;
    let alias = format!("alias-{}", number());
    let named = |log: &mut Log, body: &str| NewSession {
        alias: Some(alias.clone()),
        body_fingerprint: digest(body),
        ..log.creation()
    };
    let mut holder = Log::new("acme");
    let held = named(&mut holder, "one");
    assert_eq!(store.create_session(Arc::new(held)).await.unwrap(), Created::Ok { head: 1 });
    let taken = Log::started(store, "acme").await;

    let mut good = Log::new("acme");
    let (mut again, mut conflict) = (Log::new("acme"), Log::new("acme"));
    let mut intruder = Log { rows: Vec::new(), ..taken.clone() };
    let mut other_rows = intruder.creation();
    other_rows.append.rows[0].payload = b"other".to_vec();
    other_rows.append.rows[0].hash = [7; 32];
    let mut malformed = Log::new("acme").creation();
    malformed.append.rows[0].seq = 9;
    let mut twice = Log::new("acme");
    let first = twice.recording("in-1");
    let second = twice.recording("in-1");
    let mut double = Log::new("acme").creation();
    double.append = toolgate_store::Append { rows: [first.rows, second.rows].concat(), expected_head: 0, ..second };

    let writes = vec![
        create(named(&mut again, "one")),
        create(good.creation()),
        create(named(&mut conflict, "two")),
        create(other_rows),
        create(malformed),
        create(double),
    ];
    let answers = store.write_many(writes).await;
    let exists = |same_body| Wrote::Create(Created::AliasExists { session: holder.session, same_body });
    assert_eq!(*answers[0].as_ref().unwrap(), exists(true));
    assert_eq!(*answers[1].as_ref().unwrap(), Wrote::Create(Created::Ok { head: 1 }));
    assert_eq!(*answers[2].as_ref().unwrap(), exists(false));
    assert_eq!(*answers[3].as_ref().unwrap(), Wrote::Create(Created::SessionExists));
    assert!(matches!(answers[4], Err(StoreError::Invalid(_))), "{answers:?}");
    assert!(matches!(answers[5], Err(StoreError::Invalid(_))), "{answers:?}");
    assert_eq!(all_rows(store, &good.tenant, good.session).await, good.rows);
    assert_eq!(all_rows(store, &taken.tenant, taken.session).await, taken.rows);
    for none in [&again, &conflict, &twice] {
        assert_eq!(store.session(&none.tenant, none.session).await.unwrap(), None);
    }
}

async fn answers_to_requests_are_stored_with_their_sessions(backend: Backend) {
    let store = &backend.store;
    let key = format!("key-{}", number());
    let with = |log: &mut Log, key: &str| {
        let mut new = log.creation();
        new.append.idempotency = Some(answer_row(key));
        create(new)
    };
    let (mut first, mut second, mut third) = (Log::new("acme"), Log::new("acme"), Log::new("acme"));
    let other = format!("key-{}", number());
    let answers = store.write_many(vec![with(&mut first, &key), with(&mut third, &other)]).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Wrote::Create(Created::Ok { head: 1 })))), "{answers:?}");
    assert_eq!(store.idempotency_get(&answer_row(&key).key).await.unwrap(), Some(answer_row(&key)));
    assert_eq!(store.idempotency_get(&answer_row(&other).key).await.unwrap(), Some(answer_row(&other)));

    let mut neighbour = Log::new("acme");
    let mut append = third.recording("in-1");
    append.idempotency = Some(answer_row(&key));
    let writes = vec![with(&mut second, &key), create(neighbour.creation()), Write::Append(Arc::new(append))];
    let answers = store.write_many(writes).await;
    assert_eq!(*answers[0].as_ref().unwrap(), Wrote::Create(Created::IdempotencyConflict));
    assert_eq!(*answers[1].as_ref().unwrap(), Wrote::Create(Created::Ok { head: 1 }));
    assert_eq!(*answers[2].as_ref().unwrap(), Wrote::Append(Appended::IdempotencyConflict));
    assert_eq!(store.session(&second.tenant, second.session).await.unwrap(), None);
    assert_eq!(all_rows(store, &third.tenant, third.session).await.len(), 1);
    assert!(third.rows.iter().any(|row| row.input_id == Some(input("in-1"))));
}

async fn lanes_create_sessions(backend: Backend) {
    let store = &backend.store;
    let lanes = Lanes::start(Arc::clone(store), std::num::NonZeroUsize::MIN);
    let mut logs: Vec<Log> = (0..30).map(|_| Log::new("acme")).collect();
    let asked: Vec<_> = logs.iter_mut().map(|log| lanes.create(Arc::new(log.creation()))).collect();
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.unwrap(), Created::Ok { head: 1 });
    }
    for log in &logs {
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    }
}

/// What is answered is the same when a batch falls apart into single writes, so that only the database can tell.
#[tokio::test]
async fn plain_writes_are_one_transaction_of_the_database() {
    let backend = Backend::postgres().await;
    let store = &backend.store;
    let mut old = Log::started(store, "acme").await;
    let mut new: Vec<Log> = (0..3).map(|_| Log::new("acme")).collect();
    let key = format!("key-{}", number());
    let mut writes: Vec<Write> = new.iter_mut().map(|log| create(log.creation())).collect();
    let mut append = old.plain(b"x");
    append.idempotency = Some(answer_row(&key));
    writes.push(Write::Append(Arc::new(append)));
    assert!(store.write_many(writes).await.iter().all(Result::is_ok));
    let one_transaction = "DO $$ BEGIN \
         IF (SELECT count(DISTINCT xmin::text) FROM event WHERE session IN (SELECT session FROM session) \
             AND (seq = 2 OR session NOT IN (SELECT session FROM event WHERE seq = 2))) <> 1 \
         THEN RAISE EXCEPTION 'the batch fell apart'; END IF; END $$";
    backend.operator(one_transaction).await.unwrap();
}
