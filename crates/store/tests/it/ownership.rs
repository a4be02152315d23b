//! Who may write: take-over, release, races, nodes and their incarnations.

use std::sync::Arc;

use toolgate_store::chain::{Head, check};
use toolgate_store::{Appended, NodeId, StoreError, TakenOver};

use crate::backend::Backend;
use crate::sample::{Log, all_rows, node, session_id, tenant};

contract!(
    a_take_over_raises_the_epoch_and_writes_its_row,
    a_repeated_take_over_is_told,
    a_take_over_of_an_old_state_is_stale,
    racing_nodes_have_one_winner,
    racing_owners_leave_one_chain,
    a_released_session_has_no_owner,
    a_take_over_of_no_session_is_told,
    ill_formed_take_overs_are_refused,
);

async fn a_take_over_raises_the_epoch_and_writes_its_row(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let (take_over, after) = log.take_over(&node("node-2", 3));
    let answer = store.take_over(Arc::new(take_over)).await.unwrap();
    assert_eq!(answer, TakenOver::Ok { head: 2, epoch: 2 });
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!((session.epoch, session.head_seq), (2, 2));
    assert_eq!(session.head_hash, after.rows[1].hash);
    assert_eq!(session.owner, Some(node("node-2", 3)));
    assert_eq!(all_rows(store, &log.tenant, log.session).await, after.rows);
}

async fn a_repeated_take_over_is_told(backend: Backend) {
    let store = &backend.store;
    let log = Log::started(store, "acme").await;
    let (take_over, mut after) = log.take_over(&node("node-2", 1));
    let take_over = Arc::new(take_over);
    store.take_over(Arc::clone(&take_over)).await.unwrap();
    let answer = store.take_over(Arc::clone(&take_over)).await.unwrap();
    assert_eq!(answer, TakenOver::Already { head: 2, epoch: 2 });
    store.append(Arc::new(after.plain(b"x"))).await.unwrap();
    let answer = store.take_over(Arc::clone(&take_over)).await.unwrap();
    assert_eq!(answer, TakenOver::Already { head: 3, epoch: 2 });
    let (next, _) = after.take_over(&node("node-3", 1));
    store.take_over(Arc::new(next)).await.unwrap();
    assert_eq!(store.take_over(take_over).await.unwrap(), TakenOver::Stale { head: 4, epoch: 3 });
}

async fn a_take_over_of_an_old_state_is_stale(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let (take_over, _) = log.take_over(&node("node-2", 1));
    store.append(Arc::new(log.plain(b"meanwhile"))).await.unwrap();
    let answer = store.take_over(Arc::new(take_over)).await.unwrap();
    assert_eq!(answer, TakenOver::Stale { head: 2, epoch: 1 });
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}

async fn racing_nodes_have_one_winner(backend: Backend) {
    let log = Log::started(&backend.store, "acme").await;
    let second = backend.second().await;
    let mut racers = Vec::new();
    for racer in 0..8 {
        let store = Arc::clone(if racer % 2 == 0 { &backend.store } else { &second });
        let (take_over, _) = log.take_over(&node(&format!("node-{racer}"), 1));
        racers.push(tokio::spawn(async move { store.take_over(Arc::new(take_over)).await.unwrap() }));
    }
    let mut won = 0;
    for racer in racers {
        match racer.await.unwrap() {
            TakenOver::Ok { head: 2, epoch: 2 } => won += 1,
            TakenOver::Stale { head: 2, epoch: 2 } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
    let rows = all_rows(&backend.store, &log.tenant, log.session).await;
    assert_eq!(rows.len(), 2);
}

/// Two nodes take the session from each other while both append as fast as they can.
async fn racing_owners_leave_one_chain(backend: Backend) {
    let log = Log::started(&backend.store, "acme").await;
    let second = backend.second().await;
    let mut owners = Vec::new();
    for (name, store) in [("node-a", Arc::clone(&backend.store)), ("node-b", second)] {
        let (tenant, session) = (log.tenant.clone(), log.session);
        owners.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for round in 0..10 {
                let rows = all_rows(&store, &tenant, session).await;
                let epoch = rows.last().unwrap().epoch;
                let seen = Log { tenant: tenant.clone(), session, epoch, rows };
                let (take_over, mut mine) = seen.take_over(&node(name, round + 1));
                if !matches!(store.take_over(Arc::new(take_over)).await.unwrap(), TakenOver::Ok { .. }) {
                    continue;
                }
                acknowledged.push(mine.rows.last().unwrap().hash);
                for _ in 0..5 {
                    let append = mine.plain(name.as_bytes());
                    match store.append(Arc::new(append)).await.unwrap() {
                        Appended::Ok { .. } => acknowledged.push(mine.rows.last().unwrap().hash),
                        Appended::Fenced { .. } => break,
                        other => panic!("{other:?}"),
                    }
                }
            }
            acknowledged
        }));
    }
    let rows = {
        let mut acknowledged = Vec::new();
        for owner in owners {
            acknowledged.extend(owner.await.unwrap());
        }
        let rows = all_rows(&backend.store, &log.tenant, log.session).await;
        assert_eq!(acknowledged.len() + 1, rows.len());
        for hash in acknowledged {
            assert!(rows.iter().any(|row| row.hash == hash), "an acknowledged row is gone");
        }
        rows
    };
    let session = backend.store.session(&log.tenant, log.session).await.unwrap().unwrap();
    let head = Head { seq: session.head_seq, hash: session.head_hash };
    check(&log.tenant, log.session, &rows, &head).unwrap();
}

async fn a_released_session_has_no_owner(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    assert!(!store.release(&log.tenant, log.session, 7).await.unwrap());
    assert!(store.release(&log.tenant, log.session, 1).await.unwrap());
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    assert_eq!((session.owner, session.epoch), (None, 1));
    assert_eq!(store.active_of(&NodeId::new("node-1").unwrap(), None, 10).await.unwrap(), []);
    // Nobody else took it: the epoch still lets the last owner write.
    assert_eq!(store.append(Arc::new(log.plain(b"x"))).await.unwrap(), Appended::Ok { head: 2 });
}

async fn a_take_over_of_no_session_is_told(backend: Backend) {
    let mut log = Log::new("acme");
    log.creation();
    let (take_over, _) = log.take_over(&node("node-2", 1));
    let answer = backend.store.take_over(Arc::new(take_over)).await;
    assert!(matches!(answer, Err(StoreError::NoSuchSession)), "{answer:?}");
    assert!(!backend.store.release(&tenant("acme"), session_id(), 1).await.unwrap());
}

async fn ill_formed_take_overs_are_refused(backend: Backend) {
    let log = Log::started(&backend.store, "acme").await;
    let (mut kind, _) = log.take_over(&node("node-2", 1));
    let mut epoch = kind.clone();
    kind.row.kind = "noted".to_owned();
    epoch.row.epoch = 1;
    for take_over in [kind, epoch] {
        let answer = backend.store.take_over(Arc::new(take_over)).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
}
