//! What nodes share: leases by the clock of the database, orphans, inboxes, hand-overs, hints.

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::id::{InputId, Sha256Digest};
use toolgate_core::time::Timestamp;
use toolgate_store::{
    Appended, Fate, HandOver, HandOverState, InboxPut, InboxRow, NodeId, NodeIdentity, NodeStart, Renewed, SessionKey,
    Store, TakenOver,
};

use crate::backend::Backend;
use crate::sample::{Log, input, node, sealed};

contract!(
    each_start_of_a_node_is_another_incarnation,
    a_replaced_incarnation_cannot_renew,
    a_running_lease_keeps_a_session,
    an_older_incarnation_keeps_nothing,
    work_of_gone_owners_is_found,
    timers_of_ones_own_sessions_are_found,
    many_sessions_are_released_at_once,
    the_sessions_of_a_node_are_listed_page_by_page,
    an_answered_input_waits_no_more,
    an_answer_of_a_replaced_owner_is_not_taken,
    a_recorded_input_is_told,
    heads_of_many_sessions,
    a_session_is_asked_for,
    a_drain_is_seen_at_the_next_renewal,
);

const LONG: Duration = Duration::from_secs(600);

fn name(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

async fn started(store: &Arc<dyn Store>, text: &str, ttl: Duration) -> NodeIdentity {
    let start = NodeStart { node: name(text), ttl, protocol: 3, version: "0.1.0".to_owned() };
    store.node_start(&start).await.unwrap()
}

fn key(log: &Log) -> SessionKey {
    SessionKey { tenant: log.tenant.clone(), session: log.session }
}

fn waiting(id: &InputId) -> InboxRow {
    let fingerprint = Sha256Digest::of(b"body");
    InboxRow { id: id.clone(), received_at: Timestamp(5), body: sealed("body"), fingerprint }
}

/// A session that `node-1`, incarnation 1, owns and works on.
async fn at_work(store: &Arc<dyn Store>) -> Log {
    let mut log = Log::started(store, "acme").await;
    let mut append = log.plain(b"work");
    append.projection.active = true;
    store.append(Arc::new(append)).await.unwrap();
    log
}

/// A session that `node-1`, incarnation 1, owns and that waits, perhaps for a time.
async fn at_rest(store: &Arc<dyn Store>, tenant: &str, wake: Option<i64>) -> Log {
    let mut log = Log::started(store, tenant).await;
    let mut append = log.plain(b"rest");
    append.projection.active = false;
    append.projection.next_wake_at = wake.map(Timestamp);
    store.append(Arc::new(append)).await.unwrap();
    log
}

async fn each_start_of_a_node_is_another_incarnation(backend: Backend) {
    let store = &backend.store;
    assert_eq!(started(store, "node-1", Duration::ZERO).await, node("node-1", 1));
    assert_eq!(started(store, "node-1", LONG).await, node("node-1", 2));
    assert_eq!(started(store, "node-0", Duration::ZERO).await, node("node-0", 1));
    let nodes = store.nodes(10).await.unwrap();
    let seen: Vec<_> = nodes.iter().map(|row| (row.identity.clone(), row.is_alive(), row.draining)).collect();
    assert_eq!(seen, [(node("node-0", 1), false, false), (node("node-1", 2), true, false)]);
    assert!(nodes.iter().all(|row| row.protocol == 3 && row.version == "0.1.0" && row.started_at > Timestamp(0)));
    let left = nodes[1].lease_left_us;
    assert!((500_000_000..=600_000_000).contains(&left), "{left}");
    assert_eq!(store.nodes(1).await.unwrap().len(), 1);
}

async fn a_replaced_incarnation_cannot_renew(backend: Backend) {
    let store = &backend.store;
    let old = started(store, "node-1", LONG).await;
    assert_eq!(store.node_renew(&old, LONG).await.unwrap(), Some(Renewed { draining: false }));
    let new = started(store, "node-1", Duration::ZERO).await;
    assert_eq!(store.node_renew(&old, LONG).await.unwrap(), None);
    assert!(!store.nodes(10).await.unwrap()[0].is_alive());
    assert!(store.node_renew(&new, LONG).await.unwrap().is_some());
    // Nor can it take the lease of its successor away.
    store.node_leave(&old).await.unwrap();
    assert!(store.nodes(10).await.unwrap()[0].is_alive());
    store.node_leave(&new).await.unwrap();
    assert!(!store.nodes(10).await.unwrap()[0].is_alive());
    assert_eq!(store.node_renew(&node("node-9", 1), LONG).await.unwrap(), None);
}

async fn a_running_lease_keeps_a_session(backend: Backend) {
    let store = &backend.store;
    let owner = started(store, "node-1", LONG).await;
    let mut log = Log::started(store, "acme").await;
    let take_over = Arc::new(log.take_over(&node("node-2", 1)).0);
    let answer = store.take_over(Arc::clone(&take_over)).await.unwrap();
    assert_eq!(answer, TakenOver::Owned { head: 1, epoch: 1 });
    assert_eq!(store.append(Arc::new(log.plain(b"x"))).await.unwrap(), Appended::Ok { head: 2 });
    assert_eq!(store.take_over(take_over).await.unwrap(), TakenOver::Stale { head: 2, epoch: 1 });
    let (take_over, _) = log.take_over(&node("node-2", 1));
    store.node_leave(&owner).await.unwrap();
    assert_eq!(store.take_over(Arc::new(take_over)).await.unwrap(), TakenOver::Ok { head: 3, epoch: 2 });
}

async fn an_older_incarnation_keeps_nothing(backend: Backend) {
    let store = &backend.store;
    started(store, "node-1", LONG).await;
    let log = at_work(store).await;
    assert_eq!(store.orphans(&name("node-2"), Timestamp(0), 10).await.unwrap(), []);
    started(store, "node-1", LONG).await;
    assert_eq!(store.orphans(&name("node-2"), Timestamp(0), 10).await.unwrap(), [key(&log)]);
    let (take_over, _) = log.take_over(&node("node-2", 1));
    assert_eq!(store.take_over(Arc::new(take_over)).await.unwrap(), TakenOver::Ok { head: 3, epoch: 2 });
}

async fn work_of_gone_owners_is_found(backend: Backend) {
    let store = &backend.store;
    let owner = started(store, "node-1", LONG).await;
    let me = name("node-2");
    let active = at_work(store).await;
    let due = at_rest(store, "acme", Some(100)).await;
    let asked = at_rest(store, "other", None).await;
    store.inbox_put(&asked.tenant, asked.session, waiting(&input("in-1"))).await.unwrap();
    let idle = at_rest(store, "acme", None).await;
    let found = async |now: i64| {
        let mut found = store.orphans(&me, Timestamp(now), 10).await.unwrap();
        found.sort();
        found
    };
    let sorted = |logs: &[&Log]| {
        let mut keys: Vec<_> = logs.iter().map(|log| key(log)).collect();
        keys.sort();
        keys
    };
    assert_eq!(found(100).await, []);
    store.node_leave(&owner).await.unwrap();
    assert_eq!(found(99).await, sorted(&[&active, &asked]));
    assert_eq!(found(100).await, sorted(&[&active, &due, &asked]));
    // Somebody's lease is nobody else's.
    started(store, "node-3", LONG).await;
    assert_eq!(found(100).await, sorted(&[&active, &due, &asked]));
    // What nobody owns is found as well.
    assert_eq!(store.release_many(&[(key(&active), 1), (key(&idle), 1)]).await.unwrap(), 2);
    assert_eq!(found(99).await, sorted(&[&active, &asked]));
}

async fn timers_of_ones_own_sessions_are_found(backend: Backend) {
    let store = &backend.store;
    let log = at_rest(store, "acme", Some(100)).await;
    let due = async |me: &NodeIdentity, now: i64| store.due_of(me, Timestamp(now), 10).await.unwrap();
    assert_eq!(due(&node("node-1", 1), 100).await, [key(&log)]);
    assert_eq!(due(&node("node-1", 1), 99).await, []);
    assert_eq!(due(&node("node-1", 2), 100).await, []);
    assert_eq!(due(&node("node-2", 1), 100).await, []);
}

async fn many_sessions_are_released_at_once(backend: Backend) {
    let store = &backend.store;
    let mut released = Vec::new();
    for _ in 0..20 {
        released.push((key(&Log::started(store, "acme").await), 1));
    }
    let kept = Log::started(store, "acme").await;
    released.push((key(&kept), 2));
    assert_eq!(store.sessions_owned().await.unwrap(), [(node("node-1", 1), 21)]);
    assert_eq!(store.release_many(&released).await.unwrap(), 20);
    assert_eq!(store.release_many(&[]).await.unwrap(), 0);
    let row = store.session(&kept.tenant, kept.session).await.unwrap().unwrap();
    assert_eq!(row.owner, Some(node("node-1", 1)));
    let row = store.session(&released[0].0.tenant, released[0].0.session).await.unwrap().unwrap();
    assert_eq!(row.owner, None);
    assert_eq!(store.sessions_owned().await.unwrap(), [(node("node-1", 1), 1)]);
}

async fn the_sessions_of_a_node_are_listed_page_by_page(backend: Backend) {
    let store = &backend.store;
    let mut own = Vec::new();
    for tenant in ["acme", "beta", "acme", "acme"] {
        own.push((key(&Log::started(store, tenant).await), 1));
    }
    let given = own.remove(3);
    assert_eq!(store.release_many(&[given]).await.unwrap(), 1);
    own.sort();
    let first = store.owned_by(&node("node-1", 1), None, 2).await.unwrap();
    assert_eq!(first, own[..2]);
    assert_eq!(store.owned_by(&node("node-1", 1), Some(&first[1].0), 2).await.unwrap(), own[2..]);
    assert_eq!(store.owned_by(&node("node-1", 1), Some(&own[2].0), 2).await.unwrap(), []);
    for other in [node("node-1", 2), node("node-2", 1)] {
        assert_eq!(store.owned_by(&other, None, 10).await.unwrap(), []);
    }
}

async fn an_answered_input_waits_no_more(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let (me, key, id) = (node("node-1", 1), key(&log), input("in-1"));
    let fate = async || store.inbox_fate(&log.tenant, log.session, &id).await.unwrap();
    assert_eq!(fate().await, Fate::Unknown);
    store.inbox_put(&log.tenant, log.session, waiting(&id)).await.unwrap();
    assert_eq!(fate().await, Fate::Waiting);
    assert_eq!(store.inbox_of(&me, 10).await.unwrap(), [(key.clone(), waiting(&id))]);
    assert_eq!(store.inbox_of(&node("node-1", 2), 10).await.unwrap(), []);
    let answer = sealed("no");
    assert!(store.inbox_answer(&key, 1, &id, &answer, Timestamp(50)).await.unwrap());
    assert!(!store.inbox_answer(&key, 1, &id, &sealed("other"), Timestamp(51)).await.unwrap());
    assert_eq!(fate().await, Fate::Answered(answer.clone()));
    assert_eq!(store.inbox_of(&me, 10).await.unwrap(), []);
    assert_eq!(store.inbox_list(&log.tenant, log.session, 10).await.unwrap(), []);
    // Whoever asks again is judged again.
    assert_eq!(store.inbox_put(&log.tenant, log.session, waiting(&id)).await.unwrap(), InboxPut::Ok);
    assert_eq!(fate().await, Fate::Waiting);
    assert!(store.inbox_answer(&key, 1, &id, &answer, Timestamp(60)).await.unwrap());
    assert_eq!(store.inbox_sweep(Timestamp(60), 10).await.unwrap(), 0);
    assert_eq!(store.inbox_sweep(Timestamp(61), 10).await.unwrap(), 1);
    assert_eq!(fate().await, Fate::Unknown);
}

async fn an_answer_of_a_replaced_owner_is_not_taken(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let id = input("in-1");
    store.inbox_put(&log.tenant, log.session, waiting(&id)).await.unwrap();
    let (take_over, _) = log.take_over(&node("node-2", 1));
    store.take_over(Arc::new(take_over)).await.unwrap();
    assert!(!store.inbox_answer(&key(&log), 1, &id, &sealed("no"), Timestamp(50)).await.unwrap());
    assert_eq!(store.inbox_of(&node("node-2", 1), 10).await.unwrap().len(), 1);
    assert!(store.inbox_answer(&key(&log), 2, &id, &sealed("no"), Timestamp(50)).await.unwrap());
}

async fn a_recorded_input_is_told(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let id = input("in-1");
    store.inbox_put(&log.tenant, log.session, waiting(&id)).await.unwrap();
    let mut append = log.recording("in-1");
    append.consumed_inbox = vec![id.clone()];
    store.append(Arc::new(append)).await.unwrap();
    let fate = store.inbox_fate(&log.tenant, log.session, &id).await.unwrap();
    assert_eq!(fate, Fate::Recorded { seq: 2 });
    let foreign = store.inbox_fate(&crate::sample::tenant("other"), log.session, &id).await.unwrap();
    assert_eq!(foreign, Fate::Unknown);
}

async fn heads_of_many_sessions(backend: Backend) {
    let store = &backend.store;
    let mut one = Log::started(store, "acme").await;
    store.append(Arc::new(one.plain(b"x"))).await.unwrap();
    let two = Log::started(store, "other").await;
    let none = SessionKey { tenant: one.tenant.clone(), session: two.session };
    let mut heads = store.heads(&[key(&one), key(&two), none]).await.unwrap();
    heads.sort_by_key(|(_, head)| *head);
    assert_eq!(heads, [(key(&two), 1), (key(&one), 2)]);
    assert_eq!(store.heads(&[]).await.unwrap(), []);
}

async fn a_session_is_asked_for(backend: Backend) {
    let store = &backend.store;
    let owner = started(store, "node-1", LONG).await;
    let log = at_work(store).await;
    let (key, asker) = (key(&log), name("node-2"));
    let state = async || store.hand_over_state(&key, &asker).await.unwrap();
    assert_eq!(state().await, HandOverState::Gone);
    store.hand_over_ask(&key, &asker).await.unwrap();
    assert_eq!(state().await, HandOverState::Waiting);
    let request = HandOver { key: key.clone(), to: asker.clone() };
    assert_eq!(store.hand_overs_of(&owner, 10).await.unwrap(), std::slice::from_ref(&request));
    assert_eq!(store.hand_overs_of(&node("node-1", 2), 10).await.unwrap(), []);
    store.hand_over_refuse(&request).await.unwrap();
    assert_eq!(state().await, HandOverState::Refused);
    assert_eq!(store.hand_overs_of(&owner, 10).await.unwrap(), []);
    store.hand_over_ask(&key, &asker).await.unwrap();
    assert_eq!(state().await, HandOverState::Waiting);
    // Released for the asker, it is left to it.
    store.release_many(&[(key.clone(), 1)]).await.unwrap();
    assert_eq!(store.orphans(&name("node-3"), Timestamp(0), 10).await.unwrap(), []);
    assert_eq!(store.orphans(&asker, Timestamp(0), 10).await.unwrap(), std::slice::from_ref(&key));
    store.hand_over_withdraw(&key, &name("node-3")).await.unwrap();
    assert_eq!(state().await, HandOverState::Waiting);
    let (take_over, _) = log.take_over(&node("node-2", 1));
    store.take_over(Arc::new(take_over)).await.unwrap();
    assert_eq!(state().await, HandOverState::Gone);
    store.hand_over_ask(&key, &asker).await.unwrap();
    store.hand_over_withdraw(&key, &asker).await.unwrap();
    assert_eq!(state().await, HandOverState::Gone);
    let nowhere = SessionKey { tenant: key.tenant.clone(), session: crate::sample::session_id() };
    store.hand_over_ask(&nowhere, &asker).await.unwrap_err();
}

async fn a_drain_is_seen_at_the_next_renewal(backend: Backend) {
    let store = &backend.store;
    let me = started(store, "node-1", LONG).await;
    assert!(store.node_drain(&me.node, true).await.unwrap());
    assert!(store.nodes(10).await.unwrap()[0].draining);
    assert_eq!(store.node_renew(&me, LONG).await.unwrap(), Some(Renewed { draining: true }));
    started(store, "node-1", LONG).await;
    assert!(!store.nodes(10).await.unwrap()[0].draining);
    assert!(!store.node_drain(&name("node-9"), true).await.unwrap());
}

#[tokio::test]
async fn a_hint_reaches_its_node_and_no_other() {
    let backend = Backend::postgres().await;
    let second = backend.second().await;
    let mut mine = backend.store.hints(&name("node-1")).await.unwrap().unwrap();
    let mut other = second.hints(&name("node-2")).await.unwrap().unwrap();
    second.hint(&[name("node-1x"), name("node-2")]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), other.next()).await.unwrap().unwrap();
    second.hint(&[name("node-1")]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), mine.next()).await.unwrap().unwrap();
}
