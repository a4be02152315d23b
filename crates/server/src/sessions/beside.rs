//! What stands beside the log and is written with it: the list's view of the session, approvals, security entries. All
//! derived from the events and the states around them. What is not here: reading them.

use serde_json::json;
use toolgate_core::event::{ApprovalDecided, ApprovalVerb, CallDecided, CallEnd, CallEnded, Event};
use toolgate_core::next_wake;
use toolgate_core::output::NotExecuted;
use toolgate_core::reason::RejectReason;
use toolgate_core::session::{CallState, Phase, Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_store::{ApprovalBody, ApprovalRow, ApprovalStatus, Codec, CodecError, Projection, SecurityRow};

use super::journal::Batch;

/// The session as lists show it.
pub(super) fn projection(after: &Session, at: Timestamp) -> Projection {
    let status = after.status();
    let ending = after.run.as_ref().and_then(|run| match run.phase {
        Phase::Ended(ending) => Some(ending.code().to_owned()),
        Phase::Asking(_) | Phase::Acting(_) => None,
    });
    let waiting = after.calls().iter().filter(|call| matches!(call.state, CallState::Waiting(_))).count();
    Projection {
        status: status.code().to_owned(),
        active: status == Status::Running,
        profile: after.profile.clone(),
        ending,
        pending_approvals: u32::try_from(waiting).unwrap_or(u32::MAX),
        updated_at: at,
        next_wake_at: next_wake(after),
        title: None,
    }
}

/// Approvals that the batch opens or settles.
pub(super) fn approvals(codec: &Codec, batch: &Batch<'_>) -> Result<Vec<ApprovalRow>, CodecError> {
    let mut rows: Vec<ApprovalRow> = Vec::new();
    for event in batch.events {
        let row = match event {
            Event::CallDecided(decided) => opened(codec, batch, decided)?,
            Event::ApprovalDecided(answer) => answered(codec, batch, answer)?,
            // An approver's own answer has settled it already; only what nobody answered is left here.
            Event::CallEnded(ended) if !rows.iter().any(|row| row.call == ended.call && row.settled_at.is_some()) => {
                lapsed(codec, batch, &rows, ended)?
            }
            _ => None,
        };
        if let Some(row) = row {
            rows.retain(|known| known.id != row.id);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn opened(codec: &Codec, batch: &Batch<'_>, decided: &CallDecided) -> Result<Option<ApprovalRow>, CodecError> {
    let (Some(approval), Some(tool), Some(venue), Some(args), Some(args_hash)) =
        (&decided.approval, &decided.tool, decided.venue, &decided.content.args, decided.content.args_hash)
    else {
        return Ok(None);
    };
    let body = ApprovalBody {
        run: decided.run,
        step: decided.step,
        tool: tool.clone(),
        venue,
        reason: decided.reason.map_or("needs_human_approval", RejectReason::code).to_owned(),
        args: args.clone(),
        args_hash,
        digest: approval.digest,
        answer: None,
        message: None,
    };
    Ok(Some(ApprovalRow {
        session: batch.before.id,
        id: approval.id.clone(),
        call: decided.call.clone(),
        status: ApprovalStatus::Pending,
        requested_at: batch.at,
        expires_at: Some(approval.expires_at),
        settled_at: None,
        settled_by: None,
        body: codec.seal_approval(&body)?,
    }))
}

fn answered(codec: &Codec, batch: &Batch<'_>, answer: &ApprovalDecided) -> Result<Option<ApprovalRow>, CodecError> {
    let Some(mut row) = pending(codec, batch, &answer.call, Some((answer.decision, answer.content.message.clone())))?
    else {
        return Ok(None);
    };
    row.status = match answer.decision {
        ApprovalVerb::Approve => ApprovalStatus::Approved,
        ApprovalVerb::Deny => ApprovalStatus::Denied,
        ApprovalVerb::Edit => ApprovalStatus::Edited,
    };
    row.settled_at = Some(batch.at);
    row.settled_by = Some(answer.by.clone());
    Ok(Some(row))
}

fn lapsed(
    codec: &Codec,
    batch: &Batch<'_>,
    opened_here: &[ApprovalRow],
    ended: &CallEnded,
) -> Result<Option<ApprovalRow>, CodecError> {
    let row = match opened_here.iter().find(|row| row.call == ended.call) {
        Some(row) => Some(row.clone()),
        None => pending(codec, batch, &ended.call, None)?,
    };
    Ok(row.map(|mut row| {
        row.status = match ended.end {
            CallEnd::NotExecuted(NotExecuted::Expired) => ApprovalStatus::Expired,
            CallEnd::NotExecuted(_) | CallEnd::Outcome(_) => ApprovalStatus::Cancelled,
        };
        row.settled_at = Some(batch.at);
        row
    }))
}

/// The row of the approval that a call waited for before the batch.
fn pending(
    codec: &Codec,
    batch: &Batch<'_>,
    call: &toolgate_core::id::CallId,
    answer: Option<(ApprovalVerb, Option<String>)>,
) -> Result<Option<ApprovalRow>, CodecError> {
    let Some(waiting) = batch.before.call(call) else { return Ok(None) };
    let CallState::Waiting(approval) = &waiting.state else { return Ok(None) };
    let Some(run) = &batch.before.run else { return Ok(None) };
    let Phase::Acting(step) = &run.phase else { return Ok(None) };
    let (Some(tool), Some(venue), Some(args_hash)) = (&waiting.tool, waiting.venue, waiting.args_hash) else {
        return Ok(None);
    };
    let (answer, message) = answer.map_or((None, None), |(verb, message)| (Some(verb), message));
    let body = ApprovalBody {
        run: run.no,
        step: step.no,
        tool: tool.clone(),
        venue,
        reason: waiting.reason.map_or("needs_human_approval", RejectReason::code).to_owned(),
        args: waiting.shown_args.clone().unwrap_or_else(toolgate_core::json::Json::empty_object),
        args_hash,
        digest: approval.digest,
        answer,
        message,
    };
    Ok(Some(ApprovalRow {
        session: batch.before.id,
        id: approval.id.clone(),
        call: call.clone(),
        status: ApprovalStatus::Pending,
        requested_at: approval.requested_at,
        expires_at: Some(approval.expires_at),
        settled_at: None,
        settled_by: None,
        body: codec.seal_approval(&body)?,
    }))
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
