//! States that are kept beside the log. What is not here: what is in one (the server's tests).

use toolgate_store::{Snapshot, StoreError};

use crate::backend::Backend;
use crate::sample::{Log, sealed, session_id, tenant};

contract!(
    the_newest_snapshot_is_kept,
    a_snapshot_of_another_form_gives_way,
    a_snapshot_belongs_to_a_session_of_its_tenant,
    a_snapshot_has_bounds,
);

fn snapshot(seq: u64, form: &str) -> Snapshot {
    Snapshot {
        seq,
        hash: [seq.to_le_bytes()[0]; 32],
        form: form.to_owned(),
        state: sealed(&format!("\0 state {seq} {form}")),
    }
}

async fn the_newest_snapshot_is_kept(backend: Backend) {
    let (store, log) = (&backend.store, Log::started(&backend.store, "acme").await);
    assert_eq!(store.snapshot(&log.tenant, log.session).await.unwrap(), None);
    for (put, kept) in [(5, 5), (7, 7), (6, 7), (7, 7), (8, 8)] {
        store.snapshot_put(&log.tenant, log.session, &snapshot(put, "a")).await.unwrap();
        assert_eq!(store.snapshot(&log.tenant, log.session).await.unwrap(), Some(snapshot(kept, "a")));
    }
}

async fn a_snapshot_of_another_form_gives_way(backend: Backend) {
    let (store, log) = (&backend.store, Log::started(&backend.store, "acme").await);
    for put in [snapshot(9, "new"), snapshot(3, "old"), snapshot(2, "new")] {
        store.snapshot_put(&log.tenant, log.session, &put).await.unwrap();
        assert_eq!(store.snapshot(&log.tenant, log.session).await.unwrap(), Some(put));
    }
}

async fn a_snapshot_belongs_to_a_session_of_its_tenant(backend: Backend) {
    let (store, log) = (&backend.store, Log::started(&backend.store, "acme").await);
    let unknown = session_id();
    store.snapshot_put(&log.tenant, unknown, &snapshot(1, "a")).await.unwrap();
    assert_eq!(store.snapshot(&log.tenant, unknown).await.unwrap(), None);
    store.snapshot_put(&tenant("beta"), log.session, &snapshot(1, "a")).await.unwrap();
    assert_eq!(store.snapshot(&tenant("beta"), log.session).await.unwrap(), None);
    assert_eq!(store.snapshot(&log.tenant, log.session).await.unwrap(), None);
}

async fn a_snapshot_has_bounds(backend: Backend) {
    let (store, log) = (&backend.store, Log::started(&backend.store, "acme").await);
    let mut large = snapshot(1, "a");
    large.state.bytes = vec![0; 16 * 1024 * 1024 + 1];
    let answer = store.snapshot_put(&log.tenant, log.session, &large).await;
    assert!(matches!(answer, Err(StoreError::TooLarge { .. })), "{answer:?}");
    for odd in [snapshot(u64::MAX, "a"), snapshot(1, "a\0b")] {
        let answer = store.snapshot_put(&log.tenant, log.session, &odd).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
}
