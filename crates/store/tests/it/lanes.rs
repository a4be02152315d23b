//! Group commit over the backends: many sessions through few lanes, a bad one among them, the same bytes again.

use std::num::NonZeroUsize;
use std::sync::Arc;

use futures_util::future::join_all;
use toolgate_store::{Appended, Lanes, StoreError};

use crate::backend::Backend;
use crate::sample::{Log, all_rows};

contract!(many_sessions_share_lanes_and_none_fails_its_neighbours, the_same_bytes_again_are_known);

async fn many_sessions_share_lanes_and_none_fails_its_neighbours(backend: Backend) {
    let store = &backend.store;
    let lanes = Lanes::start(Arc::clone(store), NonZeroUsize::new(2).unwrap());
    let mut logs = Vec::new();
    for _ in 0..40 {
        logs.push(Log::started(store, "acme").await);
    }
    for round in 0..5_u64 {
        let appends: Vec<_> = logs.iter_mut().map(|log| log.plain(b"x")).collect();
        let asked = appends.into_iter().enumerate().map(|(place, mut append)| {
            // One is fenced and one malformed; both are sent rightly afterwards.
            let good = Arc::new(append.clone());
            let lanes = &lanes;
            async move {
                match place {
                    7 => {
                        append.epoch = 9;
                        append.rows[0].epoch = 9;
                        assert_eq!(lanes.append(Arc::new(append)).await.unwrap(), Appended::Fenced { epoch: 1 });
                    }
                    8 => {
                        append.rows[0].seq = 77;
                        let answer = lanes.append(Arc::new(append)).await;
                        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
                    }
                    _ => {}
                }
                lanes.append(good).await.unwrap()
            }
        });
        for answer in join_all(asked).await {
            assert_eq!(answer, Appended::Ok { head: round + 2 });
        }
    }
    for log in &logs {
        assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
    }
}

async fn the_same_bytes_again_are_known(backend: Backend) {
    let store = &backend.store;
    let lanes = Lanes::start(Arc::clone(store), NonZeroUsize::MIN);
    let mut log = Log::started(store, "acme").await;
    let append = Arc::new(log.plain(b"x"));
    let twins = join_all((0..8).map(|_| lanes.append(Arc::clone(&append)))).await;
    let applied = twins.iter().filter(|answer| matches!(answer, Ok(Appended::Ok { head: 2 }))).count();
    let known = twins.iter().filter(|answer| matches!(answer, Ok(Appended::Already { head: 2 }))).count();
    assert_eq!((applied, known), (1, 7), "{twins:?}");
    assert_eq!(all_rows(store, &log.tenant, log.session).await, log.rows);
}
