//! What stands beside the log: keys, blobs, approvals, inbox, outbox, idempotency, bundles, API keys, security log.

use std::sync::Arc;

use toolgate_core::id::{ApprovalId, Sha256Digest};
use toolgate_core::time::Timestamp;
use toolgate_store::{
    ApiKeyRow, Appended, ApprovalRow, ApprovalStatus, Blob, BundleRow, Claimed, IdempotencyClaim, IdempotencyKey,
    IdempotencyRow, InboxPut, InboxRow, KeyId, OutboxRow, SecurityRow, SessionKey, StoreError, Wanted, WrappedKey,
};

use crate::backend::Backend;
use crate::sample::{Log, actor, digest, input, sealed, session_id, tenant};

contract!(
    keys_are_added_and_destroyed_with_the_rows,
    blobs_are_found_by_digest,
    approvals_are_listed_and_replaced,
    the_inbox_keeps_inputs_until_they_are_recorded,
    the_inbox_needs_a_session,
    outbox_messages_are_due_until_settled,
    an_idempotency_key_is_claimed_once,
    a_claim_is_answered_given_back_or_runs_out,
    an_append_answers_a_claim,
    expired_answers_are_swept,
    bundles_are_versions_and_one_is_current,
    api_keys_are_found_listed_and_revoked,
    the_security_log_is_listed_newest_first,
    the_database_answers,
);

async fn keys_are_added_and_destroyed_with_the_rows(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let session_key = WrappedKey { id: KeyId::session(), wrapped: vec![0, 1, 2] };
    let call_key = WrappedKey { id: KeyId::call(&log.call(0)), wrapped: vec![3] };
    let mut append = log.plain(b"x");
    append.new_keys = vec![session_key.clone(), call_key.clone()];
    let append = Arc::new(append);
    store.append(Arc::clone(&append)).await.unwrap();
    assert_eq!(store.append(append).await.unwrap(), Appended::Already { head: 2 });
    let mut keys = store.session_keys(&log.tenant, log.session).await.unwrap();
    keys.sort_by(|a, b| b.id.cmp(&a.id));
    assert_eq!(keys, [session_key.clone(), call_key.clone()]);

    let mut append = log.plain(b"y");
    append.new_keys = vec![session_key.clone()];
    let answer = store.append(Arc::new(append)).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "a key is never replaced: {answer:?}");
    log.pop();

    let mut append = log.plain(b"y");
    append.destroyed_keys = vec![call_key.id];
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.session_keys(&log.tenant, log.session).await.unwrap(), [session_key]);
}

async fn blobs_are_found_by_digest(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let blob = Blob { digest: digest("large"), content: sealed("\0 ciphertext") };
    let mut append = log.plain(b"x");
    append.blobs = vec![blob.clone()];
    store.append(Arc::new(append)).await.unwrap();
    // The same content again, sealed otherwise: the first stays.
    let mut append = log.plain(b"y");
    append.blobs = vec![Blob { digest: digest("large"), content: sealed("other nonce") }];
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.blob(&log.tenant, log.session, &digest("large")).await.unwrap(), Some(blob));
    assert_eq!(store.blob(&log.tenant, log.session, &digest("none")).await.unwrap(), None);
}

fn approval(log: &Log, index: u32, requested_at: i64) -> ApprovalRow {
    ApprovalRow {
        session: log.session,
        id: ApprovalId::at(log.session, 1, 1, index),
        call: log.call(index),
        status: ApprovalStatus::Pending,
        requested_at: Timestamp(requested_at),
        expires_at: Some(Timestamp(1_000)),
        settled_at: None,
        settled_by: None,
        body: sealed("what is asked"),
    }
}

async fn approvals_are_listed_and_replaced(backend: Backend) {
    let store = &backend.store;
    let acme = tenant("acme");
    let mut log = Log::started(store, "acme").await;
    let mut rows: Vec<_> = [10, 30, 20, 20].iter().zip(0..).map(|(at, index)| approval(&log, index, *at)).collect();
    let mut append = log.plain(b"x");
    append.approvals = rows.clone();
    store.append(Arc::new(append)).await.unwrap();
    rows.sort_by(|a, b| (b.requested_at, &b.id).cmp(&(a.requested_at, &a.id)));

    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.list_approvals(&acme, None, after.as_ref(), 3).await.unwrap();
        seen.extend(page.items);
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!(seen, rows);

    let mut settled = rows[0].clone();
    settled.status = ApprovalStatus::Approved;
    settled.settled_at = Some(Timestamp(40));
    settled.settled_by = Some(actor("alice"));
    let mut append = log.plain(b"y");
    append.approvals = vec![settled.clone()];
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.approval(&acme, &settled.id).await.unwrap(), Some(settled.clone()));
    let approved = store.list_approvals(&acme, Some(ApprovalStatus::Approved), None, 10).await.unwrap();
    assert_eq!((approved.items, approved.next), (vec![settled], None));
    let pending = store.list_approvals(&acme, Some(ApprovalStatus::Pending), None, 10).await.unwrap();
    assert_eq!(pending.items, rows[1..]);
    assert_eq!(store.approval(&acme, &ApprovalId::at(session_id(), 1, 1, 0)).await.unwrap(), None);
}

fn waiting(id: &str, at: i64, body: &str) -> InboxRow {
    InboxRow { id: input(id), received_at: Timestamp(at), body: sealed(body), fingerprint: digest(body) }
}

async fn the_inbox_keeps_inputs_until_they_are_recorded(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let (acme, session) = (log.tenant.clone(), log.session);
    let (first, second) = (waiting("in-2", 10, "first"), waiting("in-1", 20, "second"));
    assert_eq!(store.inbox_put(&acme, session, second.clone()).await.unwrap(), InboxPut::Ok);
    assert_eq!(store.inbox_put(&acme, session, first.clone()).await.unwrap(), InboxPut::Ok);
    let again = store.inbox_put(&acme, session, waiting("in-2", 99, "first")).await.unwrap();
    assert_eq!(again, InboxPut::Waiting { same_body: true });
    let other = store.inbox_put(&acme, session, waiting("in-2", 99, "another")).await.unwrap();
    assert_eq!(other, InboxPut::Waiting { same_body: false });
    assert_eq!(store.inbox_list(&acme, session, 10).await.unwrap(), [first.clone(), second.clone()]);
    assert_eq!(store.inbox_list(&acme, session, 1).await.unwrap(), [first]);
    let found = store.open_sessions(&Wanted::Inbox, None, 10).await.unwrap();
    assert_eq!(found.items.iter().map(|row| row.session).collect::<Vec<_>>(), [session]);

    let mut append = log.recording("in-2");
    append.consumed_inbox = vec![input("in-2")];
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.inbox_list(&acme, session, 10).await.unwrap(), [second]);
    let recorded = store.inbox_put(&acme, session, waiting("in-2", 99, "first")).await.unwrap();
    assert_eq!(recorded, InboxPut::Recorded { seq: 2 });

    let mut append = log.carry(Vec::new());
    append.consumed_inbox = vec![input("in-1")];
    store.append(Arc::new(append)).await.unwrap();
    assert_eq!(store.inbox_list(&acme, session, 10).await.unwrap(), []);
    assert_eq!(store.open_sessions(&Wanted::Inbox, None, 10).await.unwrap().items, []);
}

async fn the_inbox_needs_a_session(backend: Backend) {
    let answer = backend.store.inbox_put(&tenant("acme"), session_id(), waiting("in-1", 1, "x")).await;
    assert!(matches!(answer, Err(StoreError::NoSuchSession)), "{answer:?}");
}

async fn outbox_messages_are_due_until_settled(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let key = SessionKey { tenant: log.tenant.clone(), session: log.session };
    let message = |id: &str, due: i64| OutboxRow {
        id: id.to_owned(),
        kind: "webhook".to_owned(),
        body: b"{}".to_vec(),
        key: Some(KeyId::session()),
        attempts: 0,
        due_at: Timestamp(due),
    };
    let mut append = log.plain(b"x");
    append.outbox = vec![message("m-1", 20), message("m-2", 10), message("m-3", 30)];
    store.append(Arc::new(append)).await.unwrap();
    let due = async |now: i64| -> Vec<_> {
        let due = store.outbox_due(Timestamp(now), 10).await.unwrap();
        due.into_iter().map(|(key, row)| (key.session, row.id, row.attempts)).collect()
    };
    let session = log.session;
    assert_eq!(due(20).await, [(session, "m-2".to_owned(), 0), (session, "m-1".to_owned(), 0)]);
    store.outbox_done(&key, "m-2").await.unwrap();
    store.outbox_postpone(&key, "m-1", Timestamp(50)).await.unwrap();
    assert_eq!(due(49).await, [(session, "m-3".to_owned(), 0)]);
    assert_eq!(due(50).await, [(session, "m-3".to_owned(), 0), (session, "m-1".to_owned(), 1)]);
}

fn scope(key: &str) -> IdempotencyKey {
    IdempotencyKey {
        tenant: tenant("acme"),
        credential: "key_1".to_owned(),
        route: "POST /v1/sessions".to_owned(),
        key: key.to_owned(),
    }
}

fn claim(key: &str, body: &str, now: i64) -> IdempotencyClaim {
    IdempotencyClaim {
        key: scope(key),
        fingerprint: digest(body),
        now: Timestamp(now),
        claimed_until: Timestamp(now + 60),
    }
}

fn answer(key: &str, body: &str) -> IdempotencyRow {
    IdempotencyRow {
        key: scope(key),
        fingerprint: digest(body),
        status: 201,
        body: b"\0 the answer".to_vec(),
        sealed_under: Some((session_id(), KeyId::session())),
        expires_at: Timestamp(1_000),
    }
}

async fn an_idempotency_key_is_claimed_once(backend: Backend) {
    let store = &backend.store;
    let mut claims = Vec::new();
    for _ in 0..8 {
        let store = Arc::clone(store);
        claims.push(tokio::spawn(async move { store.idempotency_claim(&claim("k", "body", 0)).await.unwrap() }));
    }
    let mut new = 0;
    for claimed in claims {
        match claimed.await.unwrap() {
            Claimed::New => new += 1,
            Claimed::InProgress => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(new, 1);
    assert_eq!(store.idempotency_claim(&claim("k", "other body", 0)).await.unwrap(), Claimed::OtherBody);
    assert_eq!(store.idempotency_get(&scope("k")).await.unwrap(), None);
    let mut elsewhere = claim("k", "other body", 0);
    elsewhere.key.credential = "key_2".to_owned();
    assert_eq!(store.idempotency_claim(&elsewhere).await.unwrap(), Claimed::New);
}

async fn a_claim_is_answered_given_back_or_runs_out(backend: Backend) {
    let store = &backend.store;
    assert_eq!(store.idempotency_claim(&claim("answered", "b", 0)).await.unwrap(), Claimed::New);
    let row = answer("answered", "b");
    assert!(!store.idempotency_put(&answer("answered", "other body")).await.unwrap());
    assert!(store.idempotency_put(&row).await.unwrap());
    assert!(!store.idempotency_put(&row).await.unwrap(), "an answer is never replaced");
    assert_eq!(
        store.idempotency_claim(&claim("answered", "b", 1)).await.unwrap(),
        Claimed::Done(Box::new(row.clone()))
    );
    store.idempotency_release(&scope("answered")).await.unwrap();
    assert_eq!(store.idempotency_get(&scope("answered")).await.unwrap(), Some(row));

    assert_eq!(store.idempotency_claim(&claim("back", "b", 0)).await.unwrap(), Claimed::New);
    store.idempotency_release(&scope("back")).await.unwrap();
    assert_eq!(store.idempotency_claim(&claim("back", "other", 1)).await.unwrap(), Claimed::New);

    assert_eq!(store.idempotency_claim(&claim("dead", "b", 0)).await.unwrap(), Claimed::New);
    assert_eq!(store.idempotency_claim(&claim("dead", "b", 59)).await.unwrap(), Claimed::InProgress);
    assert_eq!(store.idempotency_claim(&claim("dead", "b", 60)).await.unwrap(), Claimed::New);
}

async fn an_append_answers_a_claim(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    store.idempotency_claim(&claim("k", "b", 0)).await.unwrap();
    let mut wrong = log.plain(b"x");
    wrong.idempotency = Some(answer("k", "other body"));
    assert_eq!(store.append(Arc::new(wrong)).await.unwrap(), Appended::IdempotencyConflict);
    log.pop();
    let mut append = log.plain(b"x");
    let row = answer("k", "b");
    append.idempotency = Some(row.clone());
    let append = Arc::new(append);
    assert_eq!(store.append(Arc::clone(&append)).await.unwrap(), Appended::Ok { head: 2 });
    assert_eq!(store.append(append).await.unwrap(), Appended::Already { head: 2 });
    assert_eq!(store.idempotency_claim(&claim("k", "b", 1)).await.unwrap(), Claimed::Done(Box::new(row)));
}

async fn expired_answers_are_swept(backend: Backend) {
    let store = &backend.store;
    for key in ["a", "b", "c"] {
        assert!(store.idempotency_put(&answer(key, "b")).await.unwrap());
    }
    assert_eq!(store.idempotency_sweep(Timestamp(999), 10).await.unwrap(), 0);
    assert_eq!(store.idempotency_sweep(Timestamp(1_000), 2).await.unwrap(), 2);
    assert_eq!(store.idempotency_sweep(Timestamp(1_000), 10).await.unwrap(), 1);
    assert_eq!(store.idempotency_get(&scope("a")).await.unwrap(), None);
}

async fn bundles_are_versions_and_one_is_current(backend: Backend) {
    let store = &backend.store;
    let acme = tenant("acme");
    let bundle = |body: &str| BundleRow {
        digest: Sha256Digest::of(body.as_bytes()),
        body: body.as_bytes().to_vec(),
        created_by: actor("owner"),
        created_at: Timestamp(5),
    };
    let (one, two) = (bundle("one"), bundle("two"));
    assert_eq!(store.bundle_current(&acme).await.unwrap(), None);
    assert!(store.bundle_put(&acme, &one).await.unwrap());
    assert!(!store.bundle_put(&acme, &one).await.unwrap());
    let answer = store.bundle_set_current(&acme, None, &two.digest).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert!(store.bundle_set_current(&acme, None, &one.digest).await.unwrap());
    assert!(store.bundle_put(&acme, &two).await.unwrap());
    assert!(!store.bundle_set_current(&acme, None, &two.digest).await.unwrap());
    assert!(!store.bundle_set_current(&acme, Some(&two.digest), &two.digest).await.unwrap());
    assert_eq!(store.bundle_current(&acme).await.unwrap(), Some(one.clone()));
    assert!(store.bundle_set_current(&acme, Some(&one.digest), &two.digest).await.unwrap());
    assert_eq!(store.bundle_current(&acme).await.unwrap(), Some(two));
    assert_eq!(store.bundle(&acme, &one.digest).await.unwrap(), Some(one.clone()));
    let misnamed = BundleRow { digest: digest("else"), ..one };
    assert!(matches!(store.bundle_put(&acme, &misnamed).await, Err(StoreError::Invalid(_))));
}

fn api_key(tenant_name: &str, key_id: &str) -> ApiKeyRow {
    ApiKeyRow {
        tenant: tenant(tenant_name),
        key_id: key_id.to_owned(),
        secret_digest: digest("secret"),
        actor: actor("ci"),
        scopes: vec!["sessions:write".to_owned(), "events:read".to_owned()],
        label: "build server \u{1F600}".to_owned(),
        created_at: Timestamp(1),
        expires_at: Some(Timestamp(9)),
        revoked_at: None,
    }
}

async fn api_keys_are_found_listed_and_revoked(backend: Backend) {
    let store = &backend.store;
    let acme = tenant("acme");
    let keys = ["k1", "k2", "k3"].map(|id| api_key("acme", id));
    for key in &keys {
        assert!(store.api_key_put(key).await.unwrap());
    }
    assert!(!store.api_key_put(&api_key("globex", "k1")).await.unwrap(), "a key id is unique over all tenants");
    assert_eq!(store.api_key_find("k1").await.unwrap(), Some(keys[0].clone()));
    assert_eq!(store.api_key_find("k9").await.unwrap(), None);
    assert_eq!(store.api_key_find("k\0").await.unwrap(), None);
    let page = store.api_key_list(&acme, None, 2).await.unwrap();
    assert_eq!((&page.items[..], page.next.as_deref()), (&keys[..2], Some("k2")));
    let page = store.api_key_list(&acme, page.next.as_deref(), 2).await.unwrap();
    assert_eq!((&page.items[..], page.next), (&keys[2..], None));

    assert!(store.api_key_revoke(&acme, "k1", Timestamp(5)).await.unwrap());
    assert!(store.api_key_revoke(&acme, "k1", Timestamp(8)).await.unwrap());
    assert_eq!(store.api_key_find("k1").await.unwrap().unwrap().revoked_at, Some(Timestamp(5)));
    assert!(!store.api_key_revoke(&tenant("globex"), "k2", Timestamp(5)).await.unwrap());
    assert_eq!(store.api_key_find("k2").await.unwrap().unwrap().revoked_at, None);
    let odd = ApiKeyRow { scopes: vec!["two words".to_owned()], ..api_key("acme", "k4") };
    assert!(matches!(store.api_key_put(&odd).await, Err(StoreError::Invalid(_))));
}

async fn the_security_log_is_listed_newest_first(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let entry = |id: &str, at: i64| SecurityRow {
        id: id.to_owned(),
        at: Timestamp(at),
        code: "cross_tenant_denied".to_owned(),
        actor: Some(actor("mallory")),
        session: Some(log.session),
        detail: b"{\"pointer\":\"/tenant\"}".to_vec(),
    };
    let (first, second, third) = (entry("a", 10), entry("b", 20), entry("c", 20));
    let acme = tenant("acme");
    store.security_append(&acme, &second).await.unwrap();
    store.security_append(&acme, &SecurityRow { session: None, actor: None, ..first.clone() }).await.unwrap();
    store.security_append(&acme, &SecurityRow { code: "changed".to_owned(), ..first.clone() }).await.unwrap();
    let mut append = log.plain(b"x");
    append.security = vec![third.clone()];
    let append = Arc::new(append);
    store.append(Arc::clone(&append)).await.unwrap();
    store.append(append).await.unwrap();

    let page = store.security_list(&acme, None, 2).await.unwrap();
    assert_eq!(page.items, [third, second]);
    let page = store.security_list(&acme, page.next.as_ref(), 2).await.unwrap();
    assert_eq!(page.items, [SecurityRow { session: None, actor: None, ..first }]);
    assert_eq!(page.next, None);
}

async fn the_database_answers(backend: Backend) {
    backend.store.ping().await.unwrap();
}
