//! Keeps every open run going: at start all that were under way, later those whose timer is due and those that fell out of
//! memory in the middle of their work; and renews this node's lease. What is not here: what a loaded session does
//! (`actor`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use toolgate_store::{SessionKey, Wanted};

use super::deps::Deps;
use super::mail::Mail;
use super::registry::Registry;

/// How often timers of sessions outside memory are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// How often sessions are looked for that should be at work here, but are not in memory: theirs was a database that was
/// away for longer than they had patience.
const STRAYS_EVERY: Duration = Duration::from_secs(3);
/// Sessions asked for at once.
const PAGE: u32 = 500;

/// Loads every session that was under way when the last owner stopped.
pub(super) async fn resume_open(deps: &Arc<Deps>, registry: &Arc<Registry>) -> Result<u64, toolgate_store::StoreError> {
    wake_all(deps, registry, &Wanted::Active).await
}

/// Runs until the server stops.
pub(super) async fn keep_going(deps: Arc<Deps>, registry: Arc<Registry>) {
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    let mut strays = tokio::time::interval(STRAYS_EVERY);
    let mut renew = tokio::time::interval(deps.settings.lease / 3);
    // Rounds that were missed while the database was away are not made up for.
    for timer in [&mut sweep, &mut strays, &mut renew] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                let due = Wanted::Due(deps.clock.now());
                if let Err(error) = wake_all(&deps, &registry, &due).await {
                    tracing::warn!(%error, "timers could not be looked at; they will be in the next round");
                }
            }
            _ = strays.tick() => {
                let own = Wanted::ActiveOf(deps.node.node.clone());
                if let Err(error) = wake_all(&deps, &registry, &own).await {
                    tracing::warn!(%error, "stray sessions could not be looked for; they will be in the next round");
                }
            }
            _ = renew.tick() => renew_lease(&deps).await,
            () = deps.stopping.cancelled() => return,
        }
    }
}

async fn renew_lease(deps: &Deps) {
    let lease_ms = u64::try_from(deps.settings.lease.as_millis()).unwrap_or(u64::MAX);
    let until = deps.clock.now().plus_ms(lease_ms);
    match deps.store.node_renew(&deps.node, until, false).await {
        Ok(true) => {}
        Ok(false) => tracing::error!("a later start of this node exists; its appends fence this one off"),
        Err(error) => tracing::warn!(%error, "the node's lease could not be renewed"),
    }
}

async fn wake_all(
    deps: &Arc<Deps>,
    registry: &Arc<Registry>,
    wanted: &Wanted,
) -> Result<u64, toolgate_store::StoreError> {
    let mut woken = 0;
    let mut after: Option<SessionKey> = None;
    loop {
        let page = deps.store.open_sessions(wanted, after.as_ref(), PAGE).await?;
        for row in page.items {
            let key = SessionKey { tenant: row.tenant, session: row.session };
            if registry.holds(&key) || !registry.may_try(&key) {
                continue;
            }
            match registry.send(&key, Mail::Wake).await {
                Ok(()) => woken += 1,
                Err(error) => tracing::warn!(session = %key.session, %error, "the session could not be woken"),
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(woken),
        }
    }
}
