//! Tells observers what is over: rows that were written with their events are delivered at least once, and a slow or dead
//! observer holds up nothing. What is not here: which facts there are (`sessions::beside`).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolgate_core::id::Sha256Digest;
use toolgate_core::time::Timestamp;
use toolgate_store::{OutboxRow, SessionKey, StoreError};

use crate::hooks::Endpoint;
use crate::sessions::Deps;
use crate::wire::observation::Observation;

/// The kind of the outbox rows.
pub const KIND: &str = "observer";
/// Rows that are looked at and delivered together.
const AT_ONCE: u32 = 16;
/// Time between looks while nothing is due.
const IDLE: Duration = Duration::from_millis(500);
/// First wait before a fact is told again; doubles up to the longest.
const RETRY_FIRST_MS: u64 = 1_000;
/// Longest wait between attempts.
const RETRY_MOST_MS: u64 = 300_000;
/// Attempts after which a fact is given up: about a day.
const ATTEMPTS: u32 = 300;
/// Time for one delivery.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Delivers until it is stopped. What is under way then is delivered again by the next start.
pub async fn deliver(deps: Arc<Deps>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let due = match deps.store.outbox_due(deps.clock.now(), AT_ONCE).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "observers wait for the database");
                Vec::new()
            }
        };
        let none = due.is_empty();
        let mut tasks = tokio::task::JoinSet::new();
        for (key, row) in due.into_iter().filter(|(_, row)| row.kind == KIND) {
            let deps = Arc::clone(&deps);
            tasks.spawn(async move { one(&deps, &key, &row).await });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        tokio::select! {
            () = all => {}
            () = stop.cancelled() => return,
        }
        if none {
            tokio::select! {
                () = tokio::time::sleep(IDLE) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

async fn one(deps: &Deps, key: &SessionKey, row: &OutboxRow) {
    let done = match told(deps, key, row).await {
        Ok(()) => deps.store.outbox_done(key, &row.id).await,
        Err(why) if row.attempts.saturating_add(1) >= ATTEMPTS => {
            tracing::error!(session = %key.session, fact = %row.id, why, "an observer is given up");
            deps.store.outbox_done(key, &row.id).await
        }
        Err(why) => {
            tracing::warn!(session = %key.session, fact = %row.id, why, "an observer is told again");
            deps.store.outbox_postpone(key, &row.id, again_at(deps, row.attempts)).await
        }
    };
    if let Err(error) = done {
        log(&error);
    }
}

fn log(error: &StoreError) {
    tracing::warn!(%error, "a delivery could not be noted; the observer is told again");
}

fn again_at(deps: &Deps, attempts: u32) -> Timestamp {
    let wait_ms = RETRY_FIRST_MS.saturating_mul(1_u64 << attempts.min(16)).min(RETRY_MOST_MS);
    deps.clock.now().plus_ms(wait_ms)
}

async fn told(deps: &Deps, key: &SessionKey, row: &OutboxRow) -> Result<(), String> {
    let fact: Observation = serde_json::from_slice(&row.body).map_err(|error| format!("the row: {error}"))?;
    let digest: Sha256Digest = fact.bundle.parse().map_err(|_| "the row names no bundle".to_owned())?;
    let bundle =
        deps.bundles.get(&*deps.store, &key.tenant, digest).await.map_err(|error| format!("the bundle: {error}"))?;
    let observer = bundle.observers().iter().find(|observer| observer.name.as_str() == fact.observer);
    let observer = observer.ok_or_else(|| "the bundle has no such observer".to_owned())?;
    let endpoint = Endpoint { url: &observer.url, bearer_env: observer.bearer_env.as_deref() };
    let id = format!("{}-{}", key.session, row.id);
    deps.hooks.tell(&endpoint, &id, row.body.clone(), TIMEOUT).await
}
