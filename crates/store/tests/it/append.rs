//! What an append answers: ok, already, stale, fenced, duplicate; all or nothing.

use std::sync::Arc;

use toolgate_core::time::Timestamp;
use toolgate_store::{
    Appended, Created, Header, IdempotencyKey, IdempotencyRow, KeyId, NodeId, StoreError, WrappedKey,
};

use crate::backend::Backend;
use crate::sample::{Log, all_rows, append_many, digest, input, number, projection, sealed, tenant};

contract!(
    ok_then_already_then_stale,
    a_batch_is_one_append,
    an_empty_append_moves_only_the_projection,
    already_is_told_also_when_the_head_has_moved_on,
    other_bytes_in_the_same_place_are_stale,
    a_partly_known_batch_is_stale,
    a_row_that_follows_another_hash_is_stale,
    an_old_epoch_is_fenced,
    a_recorded_input_is_not_recorded_again,
    two_rows_of_one_append_cannot_record_the_same_input,
    a_refused_append_leaves_nothing_behind,
    an_append_to_no_session_is_told,
    ill_formed_appends_never_reach_the_database,
    many_appends_answer_each_for_itself,
    many_appends_keep_the_order_of_each_session,
    create_is_idempotent_for_the_same_bytes,
    an_alias_is_unique_in_its_tenant,
    a_taken_session_id_is_told,
    a_taken_idempotency_key_creates_nothing,
    the_projection_comes_back,
    a_dropped_caller_does_not_undo_its_append,
);

async fn ok_then_already_then_stale(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let append = Arc::new(log.plain(b"second"));
    assert_eq!(store.append(Arc::clone(&append)).await.unwrap(), Appended::Ok { head: 2 });
    assert_eq!(store.append(append).await.unwrap(), Appended::Already { head: 2 });

    let mut ahead = log.clone();
    ahead.plain(b"lost");
    let append = ahead.plain(b"after a lost one");
    assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Stale { head: 2 });
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}

async fn a_batch_is_one_append(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    for payload in [&b"a"[..], b"b", b"c"] {
        log.plain(payload);
    }
    let append = log.carry(log.rows[1..].to_vec());
    assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { head: 4 });
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!((session.head_seq, session.head_hash), (4, log.rows[3].hash));
}

async fn an_empty_append_moves_only_the_projection(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let mut append = log.carry(Vec::new());
    append.projection.status = "idle".to_owned();
    assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { head: 1 });
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!(session.projection.status, "idle");
    assert_eq!((session.head_seq, session.head_hash), (1, log.rows[0].hash));

    // It is fenced like any other.
    for (epoch, expected_head, answer) in [
        (1, 0, Appended::Stale { head: 1 }),
        (1, 2, Appended::Stale { head: 1 }),
        (2, 1, Appended::Fenced { epoch: 1 }),
    ] {
        let append = toolgate_store::Append { epoch, expected_head, ..log.carry(Vec::new()) };
        assert_eq!(store.append(Arc::new(append)).await.unwrap(), answer);
    }
    assert_eq!(store.session(&log.tenant, log.session).await.unwrap(), Some(session));
}

async fn already_is_told_also_when_the_head_has_moved_on(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let second = Arc::new(log.plain(b"second"));
    store.append(Arc::clone(&second)).await.unwrap();
    store.append(Arc::new(log.plain(b"third"))).await.unwrap();
    assert_eq!(store.append(second).await.unwrap(), Appended::Already { head: 3 });
}

async fn other_bytes_in_the_same_place_are_stale(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let mut other = log.clone();
    store.append(Arc::new(log.plain(b"one"))).await.unwrap();
    assert_eq!(store.append(Arc::new(other.plain(b"two"))).await.unwrap(), Appended::Stale { head: 2 });
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}

async fn a_partly_known_batch_is_stale(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    store.append(Arc::new(log.plain(b"second"))).await.unwrap();
    log.plain(b"third");
    let both = log.carry(log.rows[1..].to_vec());
    assert_eq!(store.append(Arc::new(both)).await.unwrap(), Appended::Stale { head: 2 });
}

async fn a_row_that_follows_another_hash_is_stale(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let mut other = log.clone();
    other.rows[0].hash = [7; 32];
    assert_eq!(store.append(Arc::new(other.plain(b"x"))).await.unwrap(), Appended::Stale { head: 1 });
}

async fn an_old_epoch_is_fenced(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let (take_over, mut after) = log.take_over(&crate::sample::node("node-2", 1));
    store.take_over(Arc::new(take_over)).await.unwrap();
    assert_eq!(store.append(Arc::new(log.plain(b"late"))).await.unwrap(), Appended::Fenced { epoch: 2 });
    assert_eq!(store.append(Arc::new(after.plain(b"new"))).await.unwrap(), Appended::Ok { head: 3 });
    assert_eq!(all_rows(store, &after.tenant, after.session).await, after.rows);
}

async fn a_recorded_input_is_not_recorded_again(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    store.append(Arc::new(log.recording("in-1"))).await.unwrap();
    let again = log.recording("in-1");
    let answer = store.append(Arc::new(again)).await.unwrap();
    assert_eq!(answer, Appended::DuplicateInput { input: input("in-1"), seq: 2 });
    log.pop();
    assert_eq!(store.append(Arc::new(log.recording("in-2"))).await.unwrap(), Appended::Ok { head: 3 });

    // The same input id in another session is another input.
    let mut other = Log::started(store, "acme").await;
    assert_eq!(store.append(Arc::new(other.recording("in-1"))).await.unwrap(), Appended::Ok { head: 2 });
}

async fn two_rows_of_one_append_cannot_record_the_same_input(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    log.recording("in-1");
    log.recording("in-1");
    let append = log.carry(log.rows[1..].to_vec());
    let answer = store.append(Arc::new(append)).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!(all_rows(store, &log.tenant, log.session).await.len(), 1);
}

async fn a_refused_append_leaves_nothing_behind(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    store.append(Arc::new(log.recording("in-1"))).await.unwrap();
    let before = store.session(&log.tenant, log.session).await.unwrap();
    let mut append = log.recording("in-1");
    append.projection.status = "never".to_owned();
    append.new_keys.push(WrappedKey { id: KeyId::session(), wrapped: vec![1] });
    append.blobs.push(toolgate_store::Blob { digest: digest("blob"), content: sealed("blob") });
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.session(&log.tenant, log.session).await.unwrap(), before);
    assert_eq!(store.session_keys(&log.tenant, log.session).await.unwrap(), []);
    assert_eq!(store.blob(&log.tenant, log.session, &digest("blob")).await.unwrap(), None);
}

async fn an_append_to_no_session_is_told(backend: Backend) {
    let mut log = Log::new("acme");
    log.plain(b"first");
    let append = log.carry(log.rows.clone());
    let answer = backend.store.append(Arc::new(append)).await;
    assert!(matches!(answer, Err(StoreError::NoSuchSession)), "{answer:?}");
}

async fn ill_formed_appends_never_reach_the_database(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let sound = log.plain(b"x");

    let mut gap = sound.clone();
    gap.rows[0].seq = 3;
    let mut epoch = sound.clone();
    epoch.rows[0].epoch = 2;
    let mut unnamed = sound.clone();
    unnamed.rows[0].marks.decision = true;
    let mut nul = sound.clone();
    nul.projection.status = "a\0b".to_owned();
    let mut foreign = sound.clone();
    foreign.idempotency = Some(answer_row("other", "key-1"));
    for (name, append) in [("gap", gap), ("epoch", epoch), ("unnamed", unnamed), ("nul", nul), ("foreign", foreign)] {
        let answer = store.append(Arc::new(append)).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{name}: {answer:?}");
    }

    let mut large = sound.clone();
    large.rows[0].payload = vec![0; toolgate_store::MAX_CONTENT + 1];
    let answer = store.append(Arc::new(large)).await;
    assert!(matches!(answer, Err(StoreError::TooLarge { what: "payload", .. })), "{answer:?}");
    assert_eq!(store.append(Arc::new(sound)).await.unwrap(), Appended::Ok { head: 2 });
}

async fn many_appends_answer_each_for_itself(backend: Backend) {
    let store = &backend.store;
    let mut logs = Vec::new();
    for _ in 0..5 {
        logs.push(Log::started(store, "acme").await);
    }
    store.append(Arc::new(logs[1].recording("in-1"))).await.unwrap();
    let mut appends: Vec<_> = logs.iter_mut().map(|log| Arc::new(log.plain(b"x"))).collect();
    let mut duplicate = logs[1].clone();
    duplicate.pop();
    appends[1] = Arc::new(duplicate.recording("in-1"));
    let mut fenced = (*appends[2]).clone();
    fenced.epoch = 9;
    fenced.rows[0].epoch = 9;
    appends[2] = Arc::new(fenced);
    let mut malformed = (*appends[3]).clone();
    malformed.rows[0].seq = 77;
    appends[3] = Arc::new(malformed);

    let answers = append_many(store, appends).await;
    assert_eq!(answers.len(), 5);
    assert_eq!(*answers[0].as_ref().unwrap(), Appended::Ok { head: 2 });
    assert_eq!(*answers[1].as_ref().unwrap(), Appended::DuplicateInput { input: input("in-1"), seq: 2 });
    assert_eq!(*answers[2].as_ref().unwrap(), Appended::Fenced { epoch: 1 });
    assert!(matches!(answers[3], Err(StoreError::Invalid(_))), "{answers:?}");
    assert_eq!(*answers[4].as_ref().unwrap(), Appended::Ok { head: 2 });
    assert_eq!(all_rows(store, &logs[4].tenant, logs[4].session).await, logs[4].rows);
    assert_eq!(all_rows(store, &logs[2].tenant, logs[2].session).await.len(), 1);
}

async fn many_appends_keep_the_order_of_each_session(backend: Backend) {
    let store = &backend.store;
    let mut logs = Vec::new();
    for _ in 0..25 {
        logs.push(Log::started(store, "acme").await);
    }
    // Three for each session, mixed over all sessions; every seventh session loses its second one on the way.
    let mut appends = Vec::new();
    for _ in 0..3 {
        appends.extend(logs.iter_mut().map(|log| Arc::new(log.plain(b"x"))));
    }
    let repeated = appends.clone();
    let lost = |index: usize| index.is_multiple_of(7);
    let sent: Vec<_> = (0..75).filter(|place| !(place / 25 == 1 && lost(place % 25))).collect();
    let answers = append_many(store, sent.iter().map(|place| Arc::clone(&appends[*place])).collect()).await;
    assert_eq!(answers.len(), 71);
    for (place, answer) in sent.iter().zip(answers) {
        let (round, index) = (place / 25, place % 25);
        let expected = match round {
            2 if lost(index) => Appended::Stale { head: 2 },
            _ => Appended::Ok { head: round as u64 + 2 },
        };
        assert_eq!(answer.unwrap(), expected, "session {index}, round {round}");
    }
    // The very same batch again, as after a lost reply: what was applied is known, what was lost is applied now.
    let answers = append_many(store, repeated).await;
    for (place, answer) in answers.into_iter().enumerate() {
        let (round, index) = (place / 25, place % 25);
        match answer.unwrap() {
            Appended::Already { .. } => assert!(!lost(index) || round == 0),
            Appended::Ok { head } => assert!(lost(index) && round > 0 && head == round as u64 + 2),
            other => panic!("session {index}, round {round}: {other:?}"),
        }
    }
    for log in &logs {
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    }
}

async fn create_is_idempotent_for_the_same_bytes(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::new("acme");
    let new = Arc::new(log.creation());
    assert_eq!(store.create_session(Arc::clone(&new)).await.unwrap(), Created::Ok { head: 1 });
    assert_eq!(store.create_session(Arc::clone(&new)).await.unwrap(), Created::Already { head: 1 });
    store.append(Arc::new(log.plain(b"second"))).await.unwrap();
    assert_eq!(store.create_session(Arc::clone(&new)).await.unwrap(), Created::Already { head: 2 });

    let (take_over, _) = log.take_over(&crate::sample::node("node-2", 1));
    store.take_over(Arc::new(take_over)).await.unwrap();
    assert_eq!(store.create_session(new).await.unwrap(), Created::Already { head: 3 });
}

async fn an_alias_is_unique_in_its_tenant(backend: Backend) {
    let store = &backend.store;
    let creation = |tenant: &str, body: &str| {
        let mut log = Log::new(tenant);
        let mut new = log.creation();
        new.alias = Some("my-session".to_owned());
        new.body_fingerprint = digest(body);
        (log.session, Arc::new(new))
    };
    let (first, new) = creation("acme", "one");
    assert_eq!(store.create_session(new).await.unwrap(), Created::Ok { head: 1 });
    let same = Created::AliasExists { session: first, same_body: true };
    assert_eq!(store.create_session(creation("acme", "one").1).await.unwrap(), same);
    let other = Created::AliasExists { session: first, same_body: false };
    assert_eq!(store.create_session(creation("acme", "two").1).await.unwrap(), other);
    let (elsewhere, new) = creation("globex", "two");
    assert_eq!(store.create_session(new).await.unwrap(), Created::Ok { head: 1 });

    let found = store.session_by_alias(&tenant("acme"), "my-session").await.unwrap().unwrap();
    assert_eq!((found.session, found.alias.as_deref()), (first, Some("my-session")));
    let found = store.session_by_alias(&tenant("globex"), "my-session").await.unwrap().unwrap();
    assert_eq!(found.session, elsewhere);
    assert_eq!(store.session_by_alias(&tenant("acme"), "no\0such").await.unwrap(), None);
}

async fn a_taken_session_id_is_told(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let mut other = Log { rows: Vec::new(), ..log.clone() };
    let mut new = other.creation();
    let row = Log { rows: Vec::new(), ..log.clone() }.row(Header::new("session_started"), b"another first");
    new.append.rows = vec![row];
    assert_eq!(store.create_session(Arc::new(new)).await.unwrap(), Created::SessionExists);
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}

fn answer_row(tenant_name: &str, key: &str) -> IdempotencyRow {
    IdempotencyRow {
        key: IdempotencyKey {
            tenant: tenant(tenant_name),
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

async fn a_taken_idempotency_key_creates_nothing(backend: Backend) {
    let store = &backend.store;
    let key = format!("key-{}", number());
    let mut first = Log::new("acme");
    let mut new = first.creation();
    new.append.idempotency = Some(answer_row("acme", &key));
    assert_eq!(store.create_session(Arc::new(new)).await.unwrap(), Created::Ok { head: 1 });
    let stored = store.idempotency_get(&answer_row("acme", &key).key).await.unwrap();
    assert_eq!(stored, Some(answer_row("acme", &key)));

    let mut second = Log::new("acme");
    let mut new = second.creation();
    new.append.idempotency = Some(answer_row("acme", &key));
    assert_eq!(store.create_session(Arc::new(new)).await.unwrap(), Created::IdempotencyConflict);
    assert_eq!(store.session(&second.tenant, second.session).await.unwrap(), None);

    let mut append = first.plain(b"x");
    append.idempotency = Some(answer_row("acme", &key));
    assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::IdempotencyConflict);
    assert_eq!(all_rows(store, &first.tenant, first.session).await.len(), 1);
}

async fn the_projection_comes_back(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let mut append = log.plain(b"x");
    append.projection.profile = Some(toolgate_core::id::ProfileName::new("cursor_editor").unwrap());
    append.projection.ending = Some("done".to_owned());
    append.projection.pending_approvals = u32::MAX;
    append.projection.next_wake_at = Some(Timestamp(77));
    append.projection.title = Some(sealed("title"));
    append.projection.active = false;
    let expected = append.projection.clone();
    store.append(Arc::new(append)).await.unwrap();
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!(session.projection, expected);
    assert_eq!((session.epoch, session.closed), (1, false));
    assert_eq!(session.owner.unwrap().node, NodeId::new("node-1").unwrap());
    assert_eq!((session.bundle, session.body_fingerprint), (digest("bundle"), digest("body")));

    let mut append = log.plain(b"y");
    append.projection = projection("running");
    store.append(Arc::new(append)).await.unwrap();
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!(session.projection, projection("running"));
}

async fn a_dropped_caller_does_not_undo_its_append(backend: Backend) {
    let store = Arc::clone(&backend.store);
    let mut log = Log::started(&store, "acme").await;
    for round in 0..20_u64 {
        let append = Arc::new(log.plain(b"x"));
        let appending = Arc::clone(&store);
        let sent = Arc::clone(&append);
        let caller = tokio::spawn(async move { appending.append(sent).await });
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        caller.abort();
        let _ = caller.await;
        // Whether or not the statement was sent, the same bytes settle it.
        let answer = store.append(append).await.unwrap();
        let head = round + 2;
        assert!(matches!(answer, Appended::Ok { head: h } | Appended::Already { head: h } if h == head), "{answer:?}");
    }
    assert_eq!(all_rows(&store, &log.tenant, log.session).await, log.rows);
}

/// A full or broken disk makes SQLite end the transaction by itself; `RAISE(ROLLBACK)` does the same on demand.
#[tokio::test]
async fn a_transaction_that_sqlite_ended_by_itself_spoils_no_later_one() {
    let backend = Backend::sqlite().await;
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let fail = "CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ROLLBACK, 'no space'); END";
    backend.operator(fail).await.unwrap();
    let (take_over, _) = log.take_over(&crate::sample::node("other", 1));
    assert!(store.take_over(Arc::new(take_over)).await.is_err());
    let append = Arc::new(log.plain(b"second"));
    assert!(matches!(store.append(Arc::clone(&append)).await, Err(StoreError::Database(_))));
    assert!(matches!(
        append_many(store, vec![Arc::clone(&append)]).await.as_slice(),
        [Err(StoreError::Unavailable(_))]
    ));
    let mut other = Log::new("acme");
    let creation = Arc::new(other.creation());
    assert!(store.create_session(Arc::clone(&creation)).await.is_err());
    backend.operator("DROP TRIGGER full").await.unwrap();
    assert_eq!(store.append(append).await.unwrap(), Appended::Ok { head: 2 });
    assert_eq!(store.create_session(creation).await.unwrap(), Created::Ok { head: 1 });
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}
