//! A wrong or lost master key is noticed before anything is written under it.

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::time::Timestamp;
use toolgate_store::{
    ContentKey, KeyId, MasterKey, NodeId, NodeStart, SecurityRow, SqliteStore, StoreError, WrappedKey,
};

use crate::backend::Backend;
use crate::sample::{Log, tenant};

contract!(
    an_empty_database_takes_the_first_key,
    another_key_is_refused_by_name,
    of_two_first_keys_one_wins,
    data_without_a_proof_is_refused,
    a_node_alone_is_no_data,
);

fn key(byte: u8) -> MasterKey {
    MasterKey::from_bytes([byte; 32])
}

fn names_the_setting(error: &StoreError) -> bool {
    let text = error.to_string();
    text.contains("TOOLGATE_MASTER_KEY") && text.contains("master.key")
}

async fn an_empty_database_takes_the_first_key(backend: Backend) {
    for _ in 0..3 {
        backend.store.check_master(&key(1)).await.unwrap();
    }
    Log::started(&backend.store, "acme").await;
    backend.store.check_master(&key(1)).await.unwrap();
    backend.second().await.check_master(&key(1)).await.unwrap();
}

async fn another_key_is_refused_by_name(backend: Backend) {
    backend.store.check_master(&key(1)).await.unwrap();
    for store in [Arc::clone(&backend.store), backend.second().await] {
        let error = store.check_master(&key(2)).await.unwrap_err();
        assert!(matches!(error, StoreError::OtherMasterKey) && names_the_setting(&error), "{error}");
        assert!(!error.is_retryable());
    }
    // The refusal changed nothing.
    backend.store.check_master(&key(1)).await.unwrap();
}

async fn of_two_first_keys_one_wins(backend: Backend) {
    let stores = [Arc::clone(&backend.store), backend.second().await];
    let mut tasks = Vec::new();
    for task in 0..8_u8 {
        let store = Arc::clone(&stores[usize::from(task % 2)]);
        tasks.push(tokio::spawn(async move { (task % 2, store.check_master(&key(task % 2)).await) }));
    }
    let mut accepted = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            (key, Ok(())) => accepted.push(key),
            (_, Err(StoreError::OtherMasterKey)) => {}
            (_, Err(error)) => panic!("{error:?}"),
        }
    }
    assert_eq!(accepted.len(), 4, "{accepted:?}");
    assert!(accepted.windows(2).all(|pair| pair[0] == pair[1]), "{accepted:?}");
}

async fn data_without_a_proof_is_refused(backend: Backend) {
    let row = SecurityRow {
        id: "s".to_owned(),
        at: Timestamp(1),
        code: "c".to_owned(),
        actor: None,
        session: None,
        detail: Vec::new(),
    };
    backend.store.security_append(&tenant("acme"), &row).await.unwrap();
    for _ in 0..2 {
        let error = backend.store.check_master(&key(1)).await.unwrap_err();
        assert!(matches!(error, StoreError::UnprovenMasterKey) && names_the_setting(&error), "{error}");
    }
    // A session without any key left proves nothing either.
    Log::started(&backend.store, "acme").await;
    let error = backend.store.check_master(&key(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::UnprovenMasterKey), "{error}");
}

async fn a_node_alone_is_no_data(backend: Backend) {
    let node = NodeId::new("node-1").unwrap();
    let start = NodeStart { node, ttl: Duration::from_secs(1), protocol: 1, version: String::new() };
    backend.store.node_start(&start).await.unwrap();
    backend.store.check_master(&key(1)).await.unwrap();
    assert!(matches!(backend.store.check_master(&key(2)).await, Err(StoreError::OtherMasterKey)));
}

mod before_there_was_a_proof {
    use super::*;

    contract!(the_key_is_proven_by_what_it_opens);

    /// A database that a release without the check filled.
    async fn the_key_is_proven_by_what_it_opens(backend: Backend) {
        let store = &backend.store;
        let mut log = Log::started(store, "acme").await;
        let mut append = log.plain(b"x");
        let (id, content) = (KeyId::session(), ContentKey::generate().unwrap());
        let wrapped: WrappedKey = key(7).wrap(&log.tenant, log.session, id, &content).unwrap();
        append.new_keys = vec![wrapped];
        store.append(Arc::new(append)).await.unwrap();

        let error = store.check_master(&key(8)).await.unwrap_err();
        assert!(matches!(error, StoreError::OtherMasterKey), "{error}");
        store.check_master(&key(7)).await.unwrap();
        // From now on the proof stands for itself.
        let mut append = log.plain(b"x");
        append.destroyed_keys = vec![KeyId::session()];
        store.append(Arc::new(append)).await.unwrap();
        store.check_master(&key(7)).await.unwrap();
        assert!(matches!(store.check_master(&key(8)).await, Err(StoreError::OtherMasterKey)));
    }
}

#[tokio::test]
async fn the_proof_outlives_the_process_and_tells_nothing_of_the_key() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("log.sqlite");
    let store = SqliteStore::open(&path).await.unwrap();
    toolgate_store::Registry::check_master(&store, &key(0x5a)).await.unwrap();
    store.close().await;
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(32).any(|part| part == [0x5a; 32]), "the key itself is in the file");
    let store = SqliteStore::open(&path).await.unwrap();
    let other = toolgate_store::Registry::check_master(&store, &key(1)).await;
    assert!(matches!(other, Err(StoreError::OtherMasterKey)), "{other:?}");
    toolgate_store::Registry::check_master(&store, &key(0x5a)).await.unwrap();
}
