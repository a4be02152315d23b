//! Time that has passed, and what a new owner makes of work whose fate is unknown.

use super::{Close, Draft, MAX_ATTEMPTS, Reply};
use crate::event::{EndCause, Event, Ticked};
use crate::output::{NotExecuted, OutcomeStatus};
use crate::outstanding::overdue_at;
use crate::reason::{Ending, Refusal, RejectReason};
use crate::session::{CallState, Phase};
use crate::tool::{ToolClass, Venue};

pub(super) fn tick(draft: &mut Draft<'_>) -> Result<Reply, Refusal> {
    let due = crate::outstanding::next_wake(&draft.session).is_some_and(|wake| wake <= draft.at);
    if !due {
        return Ok(Reply::Unchanged);
    }
    let run = draft.session.run.as_ref().map_or(0, |run| run.no);
    draft.push(Event::Ticked(Ticked { run }));
    if draft.session.classifying.is_some() {
        let detail = "the classifier did not answer in time".to_owned();
        draft.end_run(Ending::ClassificationFailed, None, Some(detail));
        return Ok(Reply::Accepted);
    }
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    for call in draft.open_calls() {
        match &call.state {
            CallState::Waiting(approval) if draft.at >= approval.expires_at => {
                let detail = "approval_expired: nobody approved it in time";
                draft.end_call(&call.id, Close::not_executed(NotExecuted::Expired, EndCause::ApprovalExpired, detail));
                if draft.ends_run(RejectReason::ApprovalExpired) {
                    draft.end_run(Ending::ApprovalExpired, None, Some(detail.to_owned()));
                    return Ok(Reply::Accepted);
                }
            }
            CallState::Dispatched(open) if draft.at >= overdue_at(&call, open) => {
                let detail = "no outcome came in time; it may have happened";
                draft.end_call(&call.id, Close::unknown(OutcomeStatus::TimedOut, EndCause::Timeout, detail));
            }
            CallState::Waiting(_) | CallState::Dispatched(_) | CallState::Queued | CallState::Ended(_) => {}
        }
    }
    draft.advance();
    Ok(Reply::Accepted)
}

/// A new owner cannot know what the old one's tasks did: server calls are settled by class, open questions asked again.
pub(super) fn recovered(draft: &mut Draft<'_>) -> Result<Reply, Refusal> {
    let calls: Vec<_> = draft
        .open_calls()
        .into_iter()
        .filter(|call| call.venue == Some(Venue::Server) && matches!(call.state, CallState::Dispatched(_)))
        .collect();
    let asking = draft.session.active_run().is_some_and(|run| matches!(run.phase, Phase::Asking(_)));
    if calls.is_empty() && !asking && draft.session.classifying.is_none() {
        return Ok(Reply::Unchanged);
    }
    let run = draft.session.run.as_ref().map_or(0, |run| run.no);
    draft.push(Event::Recovered(Ticked { run }));
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    for call in calls {
        let CallState::Dispatched(open) = &call.state else { continue };
        let again = call.class != Some(ToolClass::Once) && open.attempt < MAX_ATTEMPTS;
        if let Some(dispatch) = draft.leave_to_send(&call, open.attempt + 1).filter(|_| again) {
            draft.dispatch(&call.id, dispatch);
            continue;
        }
        let detail = "the server stopped while it was under way; it may have happened";
        draft.end_call(&call.id, Close::unknown(OutcomeStatus::Indeterminate, EndCause::OwnerLost, detail));
        if draft.stops_in_doubt(&call, OutcomeStatus::Indeterminate) {
            draft.end_run(Ending::IndeterminateOutcome, None, Some(detail.to_owned()));
            return Ok(Reply::Accepted);
        }
    }
    draft.advance();
    over_budget_after_loss(draft);
    Ok(Reply::Accepted)
}

/// Lost model calls count as spent, also where answers of the same round are already there.
fn over_budget_after_loss(draft: &mut Draft<'_>) {
    let Some(run) = draft.session.active_run() else { return };
    let Phase::Asking(round) = &run.phase else { return };
    let answered = u32::try_from(round.ballots.len()).unwrap_or(u32::MAX);
    let missing = run.limits.ballots.saturating_sub(answered);
    if run.model_calls.saturating_add(missing) > run.limits.max_model_calls {
        draft.end_run(Ending::MaxModelCallsExceeded, None, None);
    }
}
