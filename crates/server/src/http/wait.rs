//! Waiting for a session to move: `Prefer: wait` and long polls. The head that is watched is a hint; the log is the
//! truth, so that a lost hint costs time, never an event. What is not here: streams (`routes::stream`).

use std::time::Duration;

use tokio::time::Instant;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::session::Status;

use crate::app::App;
use crate::error::ApiError;
use crate::sessions::{Head, Snapshot};

/// Time after which the log is looked at even without a hint.
const LOOK_ANYWAY: Duration = Duration::from_secs(2);

/// The session once it does not run any more (it waits for somebody, is idle or closed), or after `seconds`.
pub async fn until_settled(
    app: &App,
    tenant: &TenantId,
    session: SessionId,
    seconds: u64,
) -> Result<Snapshot, ApiError> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        let mut head = app.sessions().watch(tenant, session).await?;
        // A session that is known to run on is not asked: it has better things to do than to answer that.
        while head.borrow_and_update().runs && moved(app, &mut head, end).await {}
        let snapshot = app.sessions().snapshot(tenant, session).await?;
        if snapshot.state.status() != Status::Running || !moved(app, &mut head, end).await {
            return Ok(snapshot);
        }
    }
}

/// Waits for a hint, for the time to look anyway, or for `end`; `false` when the waiting is over.
pub(crate) async fn moved(app: &App, head: &mut tokio::sync::watch::Receiver<Head>, end: Instant) -> bool {
    let now = Instant::now();
    if now >= end || app.stopping().is_cancelled() {
        return false;
    }
    let look = end.min(now + LOOK_ANYWAY);
    tokio::select! {
        changed = head.changed() => {
            if changed.is_err() {
                // The owner unloaded the session; look again, though not in a tight loop.
                tokio::time::sleep_until(look.min(now + Duration::from_millis(100))).await;
            }
            true
        }
        () = tokio::time::sleep_until(look) => true,
        () = app.stopping().cancelled() => false,
    }
}
