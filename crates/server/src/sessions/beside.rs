//! What stands beside the log and is written with it: the list's view of the session, approvals, security entries. All
//! derived from the events and the states around them. What is not here: reading them.

use serde_json::json;
use toolgate_core::event::Event;
use toolgate_core::next_wake;
use toolgate_core::reason::RejectReason;
use toolgate_core::session::{Awaited, CallState, Phase, Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_store::{Projection, SecurityRow};

use super::journal::Batch;

mod approvals;
mod observed;

pub(super) use approvals::approvals;
pub(super) use observed::observed;

/// The session as lists show it.
pub(super) fn projection(after: &Session, at: Timestamp) -> Projection {
    let status = after.status();
    let ending = after.run.as_ref().and_then(|run| match run.phase {
        Phase::Ended(ending) => Some(ending.code().to_owned()),
        Phase::Asking(_) | Phase::Acting(_) => None,
    });
    let asked = |state: &CallState| matches!(state, CallState::Waiting(Awaited::Approval(_)));
    let waiting = after.calls().iter().filter(|call| asked(&call.state)).count() + usize::from(after.pause().is_some());
    let active = status == Status::Running;
    Projection {
        status: status.code().to_owned(),
        active,
        profile: after.profile.clone(),
        ending,
        pending_approvals: u32::try_from(waiting).unwrap_or(u32::MAX),
        updated_at: at,
        // An active session is looked for anyway, and its timers change with every step: not to write them spares the
        // database all index entries of the row.
        next_wake_at: if active { None } else { next_wake(after) },
        title: None,
    }
}

/// Entries for the tenant's security log: forged identities.
pub(super) fn security(
    session: toolgate_core::id::SessionId,
    after: &Session,
    events: &[Event],
    at: Timestamp,
) -> Vec<SecurityRow> {
    let actor = after.opened.as_ref().map(|opened| opened.by.clone());
    events
        .iter()
        .filter_map(|event| match event {
            Event::CallDecided(decided) if decided.reason == Some(RejectReason::CrossTenantDenied) => Some(decided),
            _ => None,
        })
        .map(|decided| SecurityRow {
            id: format!("sec_{}", decided.call),
            at,
            code: RejectReason::CrossTenantDenied.code().to_owned(),
            actor: actor.clone(),
            session: Some(session),
            detail: json!({"call_id": decided.call, "tool": decided.tool, "layer": decided.layer.code()})
                .to_string()
                .into_bytes(),
        })
        .collect()
}
