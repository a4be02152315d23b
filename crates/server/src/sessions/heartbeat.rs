//! Keeps the node's lease, learns who else is alive and whether this node is to give its sessions away, and passes hints
//! on in both directions. What is not here: what follows from it (`nodes`, `resume`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use toolgate_store::{MAX_PAGE, StoreError};

use super::deps::Deps;
use super::mail::Mail;
use super::registry::Registry;

/// Longest time between two renewals, so that a drain is soon seen.
const BEAT_MOST: Duration = Duration::from_secs(1);
/// Wait before a lost connection for hints is looked for again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Renews the lease once and looks at the neighbours. Answers whether the lease had lapsed in between.
pub(super) async fn beat(deps: &Deps) -> Result<bool, StoreError> {
    // Taken before the renewal is sent: the lease runs at least from here.
    let sent = Instant::now();
    let ago = deps.nodes.since_renewal();
    match deps.store.node_renew(&deps.node, deps.settings.lease).await? {
        Some(renewed) => {
            deps.nodes.renewed(sent, deps.settings.lease);
            if renewed.draining && !deps.nodes.draining().is_cancelled() {
                tracing::info!("this node is drained: it takes no sessions and gives its own away");
                deps.nodes.draining().cancel();
            }
        }
        None => tracing::error!("a later start of this node exists; its appends fence this one off"),
    }
    look(deps).await?;
    Ok(ago.is_some_and(|ago| ago + sent.elapsed() >= deps.settings.lease))
}

/// Looks at the neighbours.
pub(super) async fn look(deps: &Deps) -> Result<(), StoreError> {
    let asked = Instant::now();
    let rows = deps.store.nodes(MAX_PAGE).await?;
    deps.nodes.seen(&rows, asked);
    Ok(())
}

/// Renews until the node has left.
pub(super) async fn keep(deps: Arc<Deps>, registry: Arc<Registry>, left: CancellationToken) {
    let mut every = tokio::time::interval((deps.settings.lease / 3).min(BEAT_MOST));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = left.cancelled() => return,
        }
        match beat(&deps).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!("this node's lease had lapsed; it looks whether its sessions were taken over");
                if let Err(error) = compare(&deps, &registry).await {
                    tracing::warn!(%error, "the sessions in memory could not be compared with their logs");
                }
            }
            Err(error) => tracing::warn!(%error, "the node's lease could not be renewed"),
        }
    }
}

/// Tells every session in memory where its log ends: one that was taken over meanwhile is forgotten.
async fn compare(deps: &Deps, registry: &Arc<Registry>) -> Result<(), StoreError> {
    let held = registry.keys();
    for keys in held.chunks(MAX_PAGE as usize) {
        for (key, head) in deps.store.heads(keys).await? {
            if registry.holds(&key) {
                // One that is busy finds out with its next append.
                let _ = registry.send(&key, Mail::Head(head)).await;
            }
        }
    }
    Ok(())
}

/// Sends hints to others.
pub(super) async fn send_hints(deps: Arc<Deps>, left: CancellationToken) {
    loop {
        let nodes = tokio::select! {
            nodes = deps.nodes.to_wake() => nodes,
            () = left.cancelled() => return,
        };
        if !deps.settings.hints {
            continue;
        }
        if let Err(error) = deps.store.hint(&nodes).await {
            tracing::debug!(%error, "a hint was not sent; the others look for themselves");
        }
    }
}

/// Takes hints from others.
pub(super) async fn take_hints(deps: Arc<Deps>, left: CancellationToken) {
    if !deps.settings.hints {
        return;
    }
    let listening = async {
        loop {
            match deps.store.hints(&deps.node.node).await {
                Ok(None) => return,
                Ok(Some(mut hints)) => {
                    // What was sent before this connection listened.
                    deps.nodes.woken();
                    while hints.next().await.is_ok() {
                        deps.nodes.woken();
                    }
                }
                Err(error) => tracing::debug!(%error, "hints of other nodes do not arrive; this one looks for itself"),
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    };
    tokio::select! {
        () = listening => {}
        () = left.cancelled() => {}
    }
}
