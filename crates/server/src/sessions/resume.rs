//! Keeps every open run going: at start all that were under way here or nowhere, later those whose timer is due, those
//! that fell out of memory in the middle of their work, and those whose owner is gone. What is not here: what a loaded
//! session does (`actor`), the lease (`heartbeat`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use toolgate_store::{SessionKey, SessionRow, StoreError, Wanted};

use super::deps::Deps;
use super::mail::Mail;
use super::registry::Registry;

/// How often sessions without an owner and timers of sessions outside memory are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// How often sessions are looked for that should be at work here, but are not in memory: theirs was a database that was
/// away for longer than they had patience.
const STRAYS_EVERY: Duration = Duration::from_secs(3);
/// Sessions asked for at once.
const PAGE: u32 = 500;

/// Loads every session that was under way when its last owner stopped.
pub(super) async fn resume_open(deps: &Arc<Deps>, registry: &Arc<Registry>) -> Result<u64, StoreError> {
    let is_lost = |row: &SessionRow| {
        row.owner.as_ref().is_none_or(|owner| owner.node == deps.node.node || !deps.nodes.is_alive(owner))
    };
    let mut woken = 0;
    let mut after: Option<SessionKey> = None;
    loop {
        let page = deps.store.open_sessions(&Wanted::Active, after.as_ref(), PAGE).await?;
        for row in page.items.into_iter().filter(&is_lost) {
            woken += u64::from(wake(registry, SessionKey { tenant: row.tenant, session: row.session }).await);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(woken),
        }
    }
}

/// Runs until the server stops.
pub(super) async fn keep_going(deps: Arc<Deps>, registry: Arc<Registry>) {
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    let mut strays = tokio::time::interval(STRAYS_EVERY);
    // Rounds that were missed while the database was away are not made up for.
    for timer in [&mut sweep, &mut strays] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut drained = false;
    loop {
        let is_sweep = tokio::select! {
            _ = sweep.tick(), if !drained => true,
            () = deps.nodes.orphans.notified(), if !drained => true,
            _ = strays.tick() => false,
            () = deps.nodes.draining().cancelled(), if !drained => false,
            () = deps.stopping.cancelled() => return,
        };
        if deps.nodes.draining().is_cancelled() {
            drained = true;
            if let Err(error) = leave_rest(&deps, &registry).await {
                tracing::warn!(%error, "sessions could not be given away; it is tried again");
            }
            continue;
        }
        // Whoever may not act takes none.
        if !deps.nodes.may_act(deps.settings.lease) {
            continue;
        }
        if is_sweep {
            if let Err(error) = take_due(&deps, &registry).await {
                tracing::warn!(%error, "timers and lost sessions could not be looked at; they will be in the next round");
            }
        } else {
            if let Err(error) = take_strays(&deps, &registry).await {
                tracing::warn!(%error, "stray sessions could not be looked for; they will be in the next round");
            }
        }
    }
}

/// Gives away what this node owns and does not have in memory; what is in memory leaves by itself once its tools have
/// reported. Done again and again, for what came or failed in between.
async fn leave_rest(deps: &Deps, registry: &Registry) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = deps.store.owned_by(&deps.node, after.as_ref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, epoch) in page {
            if !registry.holds(&key) {
                registry.handed().push(key, epoch);
            }
        }
    }
}

/// Loads sessions of this node with a timer, and takes over what nobody owns any more. Each node begins elsewhere in the
/// list, so that several share it.
async fn take_due(deps: &Arc<Deps>, registry: &Arc<Registry>) -> Result<(), StoreError> {
    let now = deps.clock.now();
    let mut keys = deps.store.due_of(&deps.node, now, PAGE).await?;
    let mut lost = deps.store.orphans(&deps.node.node, now, PAGE).await?;
    lost.sort_by_cached_key(|key| {
        let mut hasher = DefaultHasher::new();
        (&deps.node.node, key).hash(&mut hasher);
        hasher.finish()
    });
    keys.append(&mut lost);
    for key in keys {
        wake(registry, key).await;
    }
    Ok(())
}

/// Loads what should be at work here and is not in memory.
async fn take_strays(deps: &Deps, registry: &Arc<Registry>) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = deps.store.active_of(&deps.node.node, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for key in page {
            wake(registry, key).await;
        }
    }
}

/// Wakes a session that is not in memory; whether it did.
async fn wake(registry: &Arc<Registry>, key: SessionKey) -> bool {
    if registry.holds(&key) || !registry.may_try(&key) {
        return false;
    }
    match registry.send(&key, Mail::Wake).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(session = %key.session, %error, "the session could not be woken");
            false
        }
    }
}
