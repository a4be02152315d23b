//! Heads of sessions that somebody watches here and another node owns: one query per round for all of them. What is not
//! here: sessions in this node's memory, whose heads move with their appends.

use std::sync::Arc;
use std::time::Duration;

use toolgate_store::{MAX_PAGE, StoreError};

use super::deps::Deps;
use super::registry::Registry;

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
