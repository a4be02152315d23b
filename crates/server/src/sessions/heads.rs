//! What those who watch a session see of it, and the heads of sessions that somebody watches here and another node owns:
//! one query per round for all of them. What is not here: sessions in this node's memory, whose heads move with their
//! appends (`actor`).

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::session::{Session, Status};
use toolgate_store::{MAX_PAGE, StoreError};

use super::deps::Deps;
use super::registry::Registry;

/// What is known of a session without asking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The last durable sequence number that was heard of. A hint; the log is the truth.
    pub seq: u64,
    /// Whether the session is in this node's memory and known to run on, so that there is nothing to look for yet.
    pub runs: bool,
}

impl Head {
    /// A head of which no more is known.
    pub(super) const fn seen(seq: u64) -> Self {
        Self { seq, runs: false }
    }

    /// The head of a durable state in memory.
    pub(super) fn of(state: &Session) -> Self {
        Self { seq: state.head, runs: state.status() == Status::Running }
    }
}

/// Time between rounds.
const EVERY: Duration = Duration::from_millis(100);

/// Looks until the server stops.
pub(super) async fn keep(deps: Arc<Deps>, registry: Arc<Registry>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = deps.stopping.cancelled() => return,
        }
        if let Err(error) = round(&deps, &registry).await {
            tracing::debug!(%error, "heads of sessions elsewhere could not be looked at");
        }
    }
}

async fn round(deps: &Deps, registry: &Registry) -> Result<(), StoreError> {
    for keys in registry.watched_elsewhere().chunks(MAX_PAGE as usize) {
        for (key, head) in deps.store.heads(keys).await? {
            registry.raise(&key, head);
        }
    }
    Ok(())
}
