//! Sessions that have left this node while it drains or stops: given away in bulk, so that others can go on with them at
//! once. What is not here: why they left (`actor`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolgate_store::{SessionKey, StoreError};

use super::deps::Deps;

/// Sessions of one statement.
const CHUNK: usize = 2_000;

/// Wait before sessions are given away again, when the database could not take it.
const AGAIN: Duration = Duration::from_millis(500);

/// Sessions to give away, with their epochs.
#[derive(Debug, Default)]
pub(super) struct Handed {
    waiting: Mutex<Vec<(SessionKey, u64)>>,
    more: Notify,
}

impl Handed {
    /// This session has left memory for another node.
    pub(super) fn push(&self, key: SessionKey, epoch: u64) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((key, epoch));
        self.more.notify_one();
    }

    /// Gives away what waits.
    pub(super) async fn flush(&self, deps: &Deps) -> Result<(), StoreError> {
        let mut waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let mut gone = 0;
        while !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(CHUNK));
            match deps.store.release_many(&waiting).await {
                Ok(released) => gone += released,
                Err(error) => {
                    // A node that is drained keeps its lease: what it does not give away is nobody's.
                    waiting.extend(rest);
                    self.waiting.lock().unwrap_or_else(PoisonError::into_inner).append(&mut waiting);
                    return Err(error);
                }
            }
            waiting = rest;
        }
        if gone > 0 {
            tracing::info!(sessions = gone, "sessions are given away");
            deps.nodes.wake(deps.nodes.others(&deps.node.node));
        }
        Ok(())
    }

    /// Gives away what comes, until the node has left.
    pub(super) async fn keep(&self, deps: &Deps, left: &CancellationToken) {
        loop {
            tokio::select! {
                () = self.more.notified() => {}
                () = left.cancelled() => return,
            }
            while let Err(error) = self.flush(deps).await {
                tracing::warn!(%error, "sessions could not be given away; it is tried again");
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    () = left.cancelled() => return,
                }
            }
        }
    }
}
