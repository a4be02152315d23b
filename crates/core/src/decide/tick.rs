//! Time that has passed, and what a new owner makes of work whose fate is unknown.

use super::{Close, Draft, MAX_ATTEMPTS, Reply};
use crate::event::{ApprovalReminded, EndCause, Event, Ticked};
use crate::id::CallId;
use crate::output::{NotExecuted, OutcomeStatus};
use crate::outstanding::overdue_at;
use crate::reason::{Ending, Refusal, RejectReason};
use crate::session::{Awaited, AwaitedApproval, CallState, Phase};
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
    if paused(draft) {
        return Ok(Reply::Accepted);
    }
    for call in draft.open_calls() {
        match &call.state {
            CallState::Waiting(Awaited::Approval(awaited)) if draft.at >= awaited.opened.expires_at => {
                let (reason, detail) = (RejectReason::ApprovalExpired, "approval_expired: nobody approved it in time");
                let close = Close::refused(NotExecuted::Expired, EndCause::ApprovalExpired, reason, detail);
                draft.end_call(&call.id, close);
                if draft.ends_run(reason) {
                    draft.end_run(Ending::ApprovalExpired, None, Some(detail.to_owned()));
                    return Ok(Reply::Accepted);
                }
            }
            CallState::Waiting(Awaited::Approval(awaited)) => draft.remind(&call.id, awaited),
            CallState::Waiting(Awaited::Admission(awaited)) if draft.at >= awaited.answer_by => {
                let Some(hook) = awaited.hooks.first() else { continue };
                draft.refuse_admission(&call, hook, "it did not answer in time, which is a denial");
                if draft.session.active_run().is_none() {
                    return Ok(Reply::Accepted);
                }
            }
            CallState::Dispatched(open) if draft.at >= overdue_at(&call, open) => {
                let detail = "no outcome came in time; it may have happened";
                draft.end_call(&call.id, Close::unknown(OutcomeStatus::TimedOut, EndCause::Timeout, detail));
                if draft.stops_in_doubt(&call, OutcomeStatus::TimedOut) {
                    draft.end_run(Ending::IndeterminateOutcome, None, Some(detail.to_owned()));
                    return Ok(Reply::Accepted);
                }
            }
            CallState::Waiting(_) | CallState::Dispatched(_) | CallState::Queued | CallState::Ended(_) => {}
        }
    }
    draft.advance();
    Ok(Reply::Accepted)
}

/// Whether the run stands at a bound: nobody raised it in time, or it is time to remind of it.
fn paused(draft: &mut Draft<'_>) -> bool {
    let Some(pause) = draft.session.pause().cloned() else { return false };
    if draft.at >= pause.approval.opened.expires_at {
        let detail = format!("`{}` = {} is used up, and nobody raised it in time", pause.bound.code(), pause.limit);
        draft.end_run(Ending::ApprovalExpired, None, Some(detail));
    } else {
        draft.remind(&pause.call, &pause.approval);
    }
    true
}

impl Draft<'_> {
    /// Reminds of an open approval if it is time to.
    fn remind(&mut self, call: &CallId, awaited: &AwaitedApproval) {
        let Some((run, step)) = self.step() else { return };
        if awaited.remind_at().is_none_or(|at| self.at < at) {
            return;
        }
        // After a long pause one reminder stands for all that were missed.
        let mut next = awaited.clone();
        while next.remind_at().is_some_and(|at| self.at >= at) {
            next.reminders += 1;
        }
        self.push(Event::ApprovalReminded(ApprovalReminded {
            approval: awaited.opened.id.clone(),
            call: call.clone(),
            run,
            step,
            reminder: next.reminders,
            expires_at: awaited.opened.expires_at,
        }));
    }
}

/// A new owner cannot know what the old one's tasks did: server calls are settled by class, open questions asked again.
pub(super) fn recovered(draft: &mut Draft<'_>) -> Result<Reply, Refusal> {
    let calls: Vec<_> = draft
        .open_calls()
        .into_iter()
        .filter(|call| call.venue == Some(Venue::Server) && matches!(call.state, CallState::Dispatched(_)))
        .collect();
    // A run that waits at a bound has asked nobody.
    let asking = draft.session.pause().is_none()
        && draft.session.active_run().is_some_and(|run| matches!(run.phase, Phase::Asking(_)));
    let admitting = draft.open_calls().iter().any(|c| matches!(c.state, CallState::Waiting(Awaited::Admission(_))));
    if calls.is_empty() && !asking && !admitting && draft.session.classifying.is_none() {
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
    go_on_after_loss(draft);
    Ok(Reply::Accepted)
}

impl Draft<'_> {
    /// A bound was raised in the middle of a round: what is missing of it may be asked now.
    pub(super) fn go_on_after_pause(&mut self) {
        go_on_after_loss(self);
    }
}

/// Lost model calls count as spent, also where answers of the same round are already there.
fn go_on_after_loss(draft: &mut Draft<'_>) {
    let Some(Phase::Asking(round)) = draft.session.active_run().map(|run| &run.phase) else { return };
    let waits = round.paused.is_some() || (!round.charges.is_empty() && !round.granted);
    if !waits && !round.ballots.is_empty() {
        draft.check_counts();
    }
}
