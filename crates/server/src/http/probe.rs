//! Writes down when somebody asks for a session id that is not of their tenant (ruling 2): in their own tenant's
//! security log, whether the id exists elsewhere or nowhere, so that the answer takes the same time. What is not here: the
//! answer itself, which is always the same 404.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_store::SecurityRow;

use crate::app::App;
use crate::caller::Caller;
use crate::error::{ApiError, ErrorCode};

/// The code of such an entry.
const CODE: &str = "unknown_session_id";
const MINUTE_US: i64 = 60_000_000;
/// Tenants counted at once; beyond, counting starts anew.
const TENANTS: usize = 10_000;

/// How many entries each tenant may still cause in this minute.
#[derive(Debug)]
pub struct ProbeLimit {
    per_minute: u32,
    counts: Mutex<HashMap<TenantId, (i64, u32)>>,
}

impl ProbeLimit {
    /// At most this many entries per tenant and minute.
    #[must_use]
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, counts: Mutex::default() }
    }

    /// Counts one; whether it is still to be written.
    pub fn take(&self, tenant: &TenantId, now: Timestamp) -> bool {
        let minute = now.as_micros().div_euclid(MINUTE_US);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= TENANTS && !counts.contains_key(tenant) {
            counts.clear();
        }
        let count = counts.entry(tenant.clone()).or_insert((minute, 0));
        if count.0 != minute {
            *count = (minute, 0);
        }
        count.1 = count.1.saturating_add(1);
        count.1 <= self.per_minute
    }
}

/// Passes a result on; where it says that the session does not exist, notes the attempt first.
pub async fn noting<T, E: Into<ApiError>>(
    app: &App,
    caller: &Caller,
    session: SessionId,
    result: Result<T, E>,
) -> Result<T, ApiError> {
    let error = match result {
        Ok(value) => return Ok(value),
        Err(error) => error.into(),
    };
    if error.code() == ErrorCode::NotFound {
        note(app, caller, session).await;
    }
    Err(error)
}

async fn note(app: &App, caller: &Caller, session: SessionId) {
    let now = app.clock().now();
    if !app.probes().take(&caller.tenant, now) {
        return;
    }
    let row = security_row(CODE, caller, now, Some(session), "an id that is no session of this tenant was asked for");
    if let Err(error) = app.store().security_append(&caller.tenant, &row).await {
        // The request is refused all the same; the operator sees that the security log has a hole.
        tracing::error!(%error, "the security log was not written");
    }
}

/// An entry for the tenant's security log about something this caller did.
#[must_use]
pub fn security_row(
    code: &str,
    caller: &Caller,
    at: Timestamp,
    session: Option<SessionId>,
    detail: &str,
) -> SecurityRow {
    let detail = serde_json::json!({ "detail": detail, "credential": caller.credential });
    SecurityRow {
        id: format!("sec_{}", uuid::Uuid::now_v7().simple()),
        at,
        code: code.to_owned(),
        actor: Some(caller.actor.clone()),
        session,
        detail: detail.to_string().into_bytes(),
    }
}
