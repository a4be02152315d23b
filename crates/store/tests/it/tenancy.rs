//! No read and no write reaches what belongs to another tenant.

use std::sync::Arc;

use toolgate_core::id::ApprovalId;
use toolgate_core::time::Timestamp;
use toolgate_store::{
    ApprovalRow, ApprovalStatus, Blob, BundleRow, IdempotencyKey, InboxRow, KeyId, SecurityRow, SessionFilter,
    StoreError, WrappedKey,
};

use crate::backend::Backend;
use crate::sample::{Log, actor, all_rows, digest, input, node, sealed, tenant};

contract!(another_tenant_reads_nothing, another_tenant_writes_nothing, what_a_session_consumes_and_destroys_is_its_own,);

/// A session of `acme` with something in every table.
async fn full(backend: &Backend) -> (Log, ApprovalId) {
    let store = &backend.store;
    let mut log = Log::new("acme");
    let mut new = log.creation();
    new.alias = Some("mine".to_owned());
    store.create_session(Arc::new(new)).await.unwrap();
    let id = ApprovalId::at(log.session, 1, 1, 0);
    let mut append = log.plain(b"canary");
    append.new_keys = vec![WrappedKey { id: KeyId::session(), wrapped: vec![1] }];
    append.blobs = vec![Blob { digest: digest("blob"), content: sealed("canary") }];
    append.approvals = vec![ApprovalRow {
        session: log.session,
        id: id.clone(),
        call: log.call(0),
        status: ApprovalStatus::Pending,
        requested_at: Timestamp(1),
        expires_at: None,
        settled_at: None,
        settled_by: None,
        body: sealed("canary"),
    }];
    append.security = vec![SecurityRow {
        id: "s".to_owned(),
        at: Timestamp(1),
        code: "canary".to_owned(),
        actor: None,
        session: None,
        detail: Vec::new(),
    }];
    store.append(Arc::new(append)).await.unwrap();
    let row =
        InboxRow { id: input("in"), received_at: Timestamp(1), body: sealed("canary"), fingerprint: digest("canary") };
    store.inbox_put(&log.tenant, log.session, row).await.unwrap();
    let bundle = BundleRow {
        digest: digest("bundle"),
        body: b"bundle".to_vec(),
        created_by: actor("owner"),
        created_at: Timestamp(1),
    };
    store.bundle_put(&log.tenant, &bundle).await.unwrap();
    store.bundle_set_current(&log.tenant, None, &bundle.digest).await.unwrap();
    (log, id)
}

async fn another_tenant_reads_nothing(backend: Backend) {
    let store = &backend.store;
    let (log, approval) = full(&backend).await;
    for name in ["globex", "acm", "acme.", "0"] {
        let other = tenant(name);
        let session = log.session;
        assert_eq!(store.session(&other, session).await.unwrap(), None);
        assert_eq!(store.session_by_alias(&other, "mine").await.unwrap(), None);
        let sessions = store.list_sessions(&other, &SessionFilter::default(), None, 10).await.unwrap();
        assert_eq!(sessions.items, []);
        assert_eq!(store.read(&other, session, 0, 10).await.unwrap(), []);
        assert_eq!(store.blob(&other, session, &digest("blob")).await.unwrap(), None);
        assert_eq!(store.session_keys(&other, session).await.unwrap(), []);
        assert_eq!(store.list_approvals(&other, None, None, 10).await.unwrap().items, []);
        let pending = store.list_approvals(&other, Some(ApprovalStatus::Pending), None, 10).await.unwrap();
        assert_eq!(pending.items, []);
        assert_eq!(store.approval(&other, &approval).await.unwrap(), None);
        assert_eq!(store.inbox_list(&other, session, 10).await.unwrap(), []);
        assert_eq!(store.bundle(&other, &digest("bundle")).await.unwrap(), None);
        assert_eq!(store.bundle_current(&other).await.unwrap(), None);
        assert_eq!(store.api_key_list(&other, None, 10).await.unwrap().items, []);
        assert_eq!(store.security_list(&other, None, 10).await.unwrap().items, []);
        let key =
            IdempotencyKey { tenant: other, credential: "c".to_owned(), route: "r".to_owned(), key: "k".to_owned() };
        assert_eq!(store.idempotency_get(&key).await.unwrap(), None);
    }
}

async fn another_tenant_writes_nothing(backend: Backend) {
    let store = &backend.store;
    let (log, _) = full(&backend).await;
    let before = store.session(&log.tenant, log.session).await.unwrap();
    let mut forged = log.clone();
    forged.tenant = tenant("globex");
    let (take_over, _) = forged.take_over(&node("node-9", 1));
    let append = forged.plain(b"x");
    assert!(matches!(store.append(Arc::new(append)).await, Err(StoreError::NoSuchSession)));
    assert!(matches!(store.take_over(Arc::new(take_over)).await, Err(StoreError::NoSuchSession)));
    assert!(!store.release(&forged.tenant, log.session, 1).await.unwrap());
    let row = InboxRow { id: input("x"), received_at: Timestamp(1), body: sealed("x"), fingerprint: digest("x") };
    let put = store.inbox_put(&forged.tenant, log.session, row).await;
    assert!(matches!(put, Err(StoreError::NoSuchSession)));
    let set = store.bundle_set_current(&forged.tenant, None, &digest("bundle")).await;
    assert!(matches!(set, Err(StoreError::Invalid(_))));

    assert_eq!(store.session(&log.tenant, log.session).await.unwrap(), before);
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    // The same id for another tenant is another session.
    let mut twin = Log { tenant: tenant("globex"), rows: Vec::new(), ..log.clone() };
    store.create_session(Arc::new(twin.creation())).await.unwrap();
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    assert_eq!(all_rows(store, &twin.tenant, twin.session).await, twin.rows);
}

async fn what_a_session_consumes_and_destroys_is_its_own(backend: Backend) {
    let store = &backend.store;
    let mut logs = vec![Log::started(store, "acme").await, Log::started(store, "acme").await];
    // The same session id for another tenant, and the same names everywhere.
    let mut twin = Log { tenant: tenant("globex"), rows: Vec::new(), ..logs[0].clone() };
    store.create_session(Arc::new(twin.creation())).await.unwrap();
    logs.push(twin);
    let key = WrappedKey { id: KeyId::session(), wrapped: vec![1] };
    let row = InboxRow { id: input("in"), received_at: Timestamp(1), body: sealed("x"), fingerprint: digest("x") };
    for log in &mut logs {
        let mut append = log.plain(b"x");
        append.new_keys = vec![key.clone()];
        store.append(Arc::new(append)).await.unwrap();
        store.inbox_put(&log.tenant, log.session, row.clone()).await.unwrap();
    }
    let mut append = logs[0].recording("in");
    append.consumed_inbox = vec![input("in")];
    append.destroyed_keys = vec![KeyId::session()];
    store.append(Arc::new(append)).await.unwrap();
    for (index, log) in logs.iter().enumerate() {
        let (keys, inbox) = if index == 0 { (vec![], vec![]) } else { (vec![key.clone()], vec![row.clone()]) };
        assert_eq!(store.session_keys(&log.tenant, log.session).await.unwrap(), keys, "session {index}");
        assert_eq!(store.inbox_list(&log.tenant, log.session, 10).await.unwrap(), inbox, "session {index}");
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    }
}
