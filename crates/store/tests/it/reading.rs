//! Reading back: pages, cursors, limits, and bytes of any kind.

use std::sync::Arc;

use toolgate_core::id::ProfileName;
use toolgate_core::time::Timestamp;
use toolgate_store::{
    Appended, Created, MAX_PAGE, MAX_PAGE_BYTES, NodeId, SessionCursor, SessionFilter, SessionKey, Wanted,
};

use crate::backend::Backend;
use crate::sample::{Log, all_rows, number, tenant};

contract!(
    rows_come_in_key_pages,
    pages_of_rows_are_capped_in_bytes,
    payloads_of_any_bytes_round_trip,
    sessions_are_listed_newest_first_and_stably,
    session_filters_restrict,
    open_sessions_are_found_over_all_tenants,
    sessions_with_a_due_timer_are_found,
);

async fn rows_come_in_key_pages(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    for _ in 0..14 {
        store.append(Arc::new(log.plain(b"x"))).await.unwrap();
    }
    let mut seen = Vec::new();
    loop {
        let page = store.read(&log.tenant, log.session, seen.len() as u64, 4).await.unwrap();
        assert!(page.len() <= 4);
        if seen.len() == 8 {
            // Rows that come while somebody pages change nothing about the pages before.
            store.append(Arc::new(log.plain(b"meanwhile"))).await.unwrap();
        }
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, log.rows);
    assert_eq!(store.read(&log.tenant, log.session, 0, 0).await.unwrap().len(), 1);
    assert_eq!(store.read(&log.tenant, log.session, 0, u32::MAX).await.unwrap().len(), 16);
    assert_eq!(store.read(&log.tenant, log.session, 16, 10).await.unwrap(), []);
    assert_eq!(store.read(&log.tenant, log.session, u64::MAX, 10).await.unwrap(), []);
}

async fn pages_of_rows_are_capped_in_bytes(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let payload = vec![7; usize::try_from(MAX_PAGE_BYTES / 3).unwrap()];
    for _ in 0..4 {
        store.append(Arc::new(log.plain(&payload))).await.unwrap();
    }
    let page = store.read(&log.tenant, log.session, 0, 100).await.unwrap();
    assert_eq!(page.len(), 3, "the first row and two of the large ones");
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);

    // A row larger than the cap still comes, alone.
    let largest = vec![9; toolgate_store::MAX_CONTENT];
    store.append(Arc::new(log.plain(&largest))).await.unwrap();
    store.append(Arc::new(log.plain(b"after"))).await.unwrap();
    let page = store.read(&log.tenant, log.session, 5, 100).await.unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].payload.len(), toolgate_store::MAX_CONTENT);
}

async fn payloads_of_any_bytes_round_trip(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let payloads: [&[u8]; 7] = [
        b"",
        b"\0",
        b"a\0b",
        "\u{1F600} ok".as_bytes(),
        b"\xff\xfe not utf-8 \xed\xa0\xbd",
        &every_byte,
        &vec![0xa5; 1024 * 1024],
    ];
    for payload in payloads {
        let append = log.plain(payload);
        assert_eq!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { head: log.head() });
    }
    let rows = all_rows(store, &log.tenant, log.session).await;
    assert_eq!(rows, log.rows);
    for (row, payload) in rows[1..].iter().zip(payloads) {
        assert_eq!(row.payload, payload);
    }
}

async fn created(
    backend: &Backend,
    tenant: &str,
    created_at: i64,
    change: impl Fn(&mut toolgate_store::NewSession),
) -> Log {
    let mut log = Log::new(tenant);
    let mut new = log.creation();
    new.created_at = Timestamp(created_at);
    change(&mut new);
    assert_eq!(backend.store.create_session(Arc::new(new)).await.unwrap(), Created::Ok { head: 1 });
    log
}

async fn sessions_are_listed_newest_first_and_stably(backend: Backend) {
    let store = &backend.store;
    let mut expected = Vec::new();
    // Several share one time: the id decides.
    for time in [50, 10, 30, 30, 30, 20, 40] {
        let log = created(&backend, "acme", time, |_| {}).await;
        expected.push((Timestamp(time), log.session));
    }
    expected.sort_by(|a, b| b.cmp(a));
    let filter = SessionFilter::default();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.list_sessions(&tenant("acme"), &filter, after, 2).await.unwrap();
        assert!(page.items.len() <= 2);
        seen.extend(page.items.iter().map(|row| (row.created_at, row.session)));
        // Newer sessions that come meanwhile belong to no later page.
        created(&backend, "acme", 60 + i64::try_from(number()).unwrap(), |_| {}).await;
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!(seen, expected);
    let all = store.list_sessions(&tenant("acme"), &filter, None, MAX_PAGE + 1).await.unwrap();
    assert_eq!((all.items.len(), all.next), (11, None));
    let last = SessionCursor { created_at: expected[6].0, session: expected[6].1 };
    let end = store.list_sessions(&tenant("acme"), &filter, Some(last), 10).await.unwrap();
    assert_eq!((end.items.len(), end.next), (0, None));
}

async fn session_filters_restrict(backend: Backend) {
    let store = &backend.store;
    let profile = ProfileName::new("editor").unwrap();
    let idle = created(&backend, "acme", 10, |new| new.append.projection.status = "idle".to_owned()).await;
    let editing = created(&backend, "acme", 20, |new| new.append.projection.profile = Some(profile.clone())).await;
    let late = created(&backend, "acme", 30, |_| {}).await;
    let found = async |filter: SessionFilter| -> Vec<_> {
        let page = store.list_sessions(&tenant("acme"), &filter, None, 10).await.unwrap();
        page.items.iter().map(|row| row.session).collect()
    };
    let none = SessionFilter::default();
    assert_eq!(found(SessionFilter { status: Some("idle".to_owned()), ..none.clone() }).await, [idle.session]);
    assert_eq!(found(SessionFilter { status: Some("no such".to_owned()), ..none.clone() }).await, []);
    assert_eq!(found(SessionFilter { profile: Some(profile), ..none.clone() }).await, [editing.session]);
    let from = SessionFilter { created_from: Some(Timestamp(20)), ..none.clone() };
    assert_eq!(found(from.clone()).await, [late.session, editing.session]);
    let between = SessionFilter { created_before: Some(Timestamp(30)), ..from };
    assert_eq!(found(between).await, [editing.session]);
}

async fn open_sessions_are_found_over_all_tenants(backend: Backend) {
    let store = &backend.store;
    let mut expected = Vec::new();
    for name in ["b", "a", "c", "a"] {
        let log = created(&backend, name, 10, |_| {}).await;
        expected.push(SessionKey { tenant: log.tenant, session: log.session });
    }
    created(&backend, "a", 10, |new| new.append.projection.active = false).await;
    let elsewhere = created(&backend, "a", 10, |new| new.owner.node = NodeId::new("node-2").unwrap()).await;
    let elsewhere = SessionKey { tenant: elsewhere.tenant, session: elsewhere.session };
    let found = async |wanted: Wanted| {
        let mut seen: Vec<SessionKey> = Vec::new();
        loop {
            let page = store.open_sessions(&wanted, seen.last(), 2).await.unwrap();
            seen.extend(page.items.iter().map(|row| SessionKey { tenant: row.tenant.clone(), session: row.session }));
            let Some(next) = page.next else { return seen };
            assert_eq!(Some(&next), seen.last());
        }
    };
    expected.sort();
    let of = async |node: &str| {
        let mut seen: Vec<SessionKey> = Vec::new();
        loop {
            let page = store.active_of(&NodeId::new(node).unwrap(), seen.last(), 2).await.unwrap();
            assert!(page.len() <= 2);
            if page.is_empty() {
                return seen;
            }
            seen.extend(page);
        }
    };
    assert_eq!(of("node-1").await, expected);
    assert_eq!(of("node-2").await, std::slice::from_ref(&elsewhere));
    assert_eq!(of("node-3").await, []);
    expected.push(elsewhere);
    expected.sort();
    assert_eq!(found(Wanted::Active).await, expected);
    assert_eq!(found(Wanted::Inbox).await, []);
}

async fn sessions_with_a_due_timer_are_found(backend: Backend) {
    let store = &backend.store;
    let due = created(&backend, "acme", 10, |new| new.append.projection.next_wake_at = Some(Timestamp(100))).await;
    created(&backend, "acme", 10, |new| new.append.projection.next_wake_at = Some(Timestamp(101))).await;
    created(&backend, "acme", 10, |_| {}).await;
    let page = store.open_sessions(&Wanted::Due(Timestamp(100)), None, 10).await.unwrap();
    assert_eq!(page.items.iter().map(|row| row.session).collect::<Vec<_>>(), [due.session]);
    assert_eq!(store.open_sessions(&Wanted::Due(Timestamp(99)), None, 10).await.unwrap().items, []);
}
