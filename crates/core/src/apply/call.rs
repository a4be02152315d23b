//! Facts about one call, folded into the step that holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::call_settlement;
use super::step::{complete_step, open_step};
use crate::event::{CallAcknowledged, CallDecided, CallDispatched, CallEnd, CallEnded, Dispatch, EndCause};
use crate::id::CallId;
use crate::output::{NotExecuted, OutcomeStatus};
use crate::pipeline::{Decision, repeat_key};
use crate::reason::RejectReason;
use crate::session::{
    Awaited, AwaitedAdmission, AwaitedApproval, Call, CallState, DispatchedCall, EndedCall, EndedState, KeyedSuccess,
    Phase, REMEMBERED_CALLS, Session,
};

pub(super) fn call_decided(session: &mut Session, e: &CallDecided) {
    open_step(session);
    let seq = session.head;
    let replayed =
        e.replay_of.as_ref().and_then(|of| keyed_success(session, of)).map(|success| success.outcome.clone());
    let Some(run) = session.run.as_mut() else { return };
    let Phase::Acting(step) = &mut run.phase else { return };
    let over = e.decision == Decision::Reject;
    if !over {
        session.spent.tool_calls += 1;
    }
    let args = e.sealed.get(&e.call).cloned().or_else(|| e.content.args.clone()).filter(|_| !over);
    if let Some(hash) = e.content.args_hash {
        *run.repeats.entry(repeat_key(&e.content.tool, hash)).or_insert(0) += 1;
    }
    if e.decision != Decision::Reject {
        run.tool_calls += 1;
    }
    let malformed = e.reason == Some(RejectReason::Malformed);
    step.any_accepted |= e.decision != Decision::Reject || e.replay_of.is_some();
    step.any_malformed |= malformed;
    let replay = replayed.is_some();
    let state = match (e.decision, &e.admission, &e.approval, &e.dispatch) {
        (Decision::Allow | Decision::Escalate, Some(admission), _, _) => {
            CallState::Waiting(Awaited::Admission(AwaitedAdmission {
                hooks: admission.hooks.clone(),
                attempt: 1,
                answer_by: admission.answer_by,
                digest: admission.digest,
            }))
        }
        (Decision::Allow | Decision::Escalate, None, Some(approval), _) => {
            CallState::Waiting(Awaited::Approval(AwaitedApproval::new(approval.clone())))
        }
        (Decision::Allow, None, None, Some(dispatch)) => dispatched(dispatch, seq),
        (Decision::Allow | Decision::Escalate, None, None, _) if !e.content.charges.is_empty() => {
            CallState::Waiting(Awaited::Reservation)
        }
        (Decision::Allow | Decision::Escalate, None, None, _) => CallState::Queued,
        (Decision::Reject, _, _, _) => CallState::Ended(EndedState {
            end: CallEnd::NotExecuted(NotExecuted::Rejected),
            reason: Some(with_code(e.reason, e.content.detail.as_deref())),
            shown: replayed.and_then(|outcome| outcome.output).map(|output| output.shown()).unwrap_or_default(),
            replaced_by: None,
            replayed: replay,
        }),
    };
    step.calls.push(Call {
        id: e.call.clone(),
        index: e.index,
        tool: e.tool.clone(),
        tool_text: e.content.tool.clone(),
        args,
        shown_args: e.content.args.clone(),
        args_hash: e.content.args_hash,
        reason: e.reason,
        venue: e.venue,
        class: e.class,
        tags: e.tags.clone(),
        idempotency_key: e.content.idempotency_key.clone(),
        decided_at: e.decided_at,
        warning: e.content.detail.clone().filter(|_| e.decision == Decision::Allow),
        edited_from: e.edited_from.clone(),
        edited_by: e.edited_by.clone(),
        rewritten_by: e.rewritten_by.clone(),
        approval: e.approval.as_ref().map(|approval| approval.id.clone()),
        escalated: e.decision == Decision::Escalate,
        charges: e.content.charges.clone(),
        state,
    });
    if over {
        remember(
            session,
            EndedCall {
                call: e.call.clone(),
                tool: e.tool.clone(),
                approval: None,
                seq,
                attempt: 0,
                end: CallEnd::NotExecuted(NotExecuted::Rejected),
                outcome_digest: None,
                reported: false,
            },
        );
    }
    complete_step(session);
}

fn remember(session: &mut Session, ended: EndedCall) {
    if session.recent_calls.len() >= REMEMBERED_CALLS {
        session.recent_calls.pop_front();
    }
    session.recent_calls.push_back(ended);
}

pub(super) fn call_dispatched(session: &mut Session, e: &CallDispatched) {
    let seq = session.head;
    if let Some(call) = call_mut(session, &e.call) {
        call.state = dispatched(&e.dispatch, seq);
    }
}

pub(super) fn call_acknowledged(session: &mut Session, e: &CallAcknowledged) {
    if let Some(CallState::Dispatched(open)) = call_mut(session, &e.call).map(|call| &mut call.state) {
        open.acknowledged = true;
    }
}

pub(super) fn call_ended(session: &mut Session, e: &CallEnded) {
    let seq = session.head;
    let output = e.content.outcome.as_ref().and_then(|outcome| outcome.output.as_ref());
    let told =
        e.content.detail.clone().or_else(|| e.content.outcome.as_ref().and_then(|outcome| outcome.detail.clone()));
    let ended = EndedState {
        end: e.end,
        reason: told,
        shown: output.map(crate::output::Output::shown).unwrap_or_default(),
        replaced_by: e.replaced_by.clone(),
        replayed: e.cause == EndCause::Replayed && e.content.outcome.is_some(),
    };
    let Some(call) = call_mut(session, &e.call) else { return };
    let settlement = call_settlement(call, e);
    call.state = CallState::Ended(ended);
    call.reason = e.reason.or(call.reason);
    let approval = call.approval.clone();
    let success = e.end == CallEnd::Outcome(OutcomeStatus::Ok);
    let (tags, tool, key, hash) = (call.tags.clone(), call.tool.clone(), call.idempotency_key.clone(), call.args_hash);
    call.args = None;
    remember(
        session,
        EndedCall {
            call: e.call.clone(),
            tool: tool.clone(),
            approval,
            seq,
            attempt: e.attempt,
            end: e.end,
            outcome_digest: e.content.outcome.as_ref().map(outcome_digest),
            reported: matches!(e.cause, EndCause::Reported(_)),
        },
    );
    session.unsettled.extend(settlement);
    // A call that a dry run let pass counts as if it had been sent.
    let uncounted = matches!(e.end, CallEnd::NotExecuted(why) if why != NotExecuted::DryRun);
    if uncounted {
        session.spent.tool_calls = session.spent.tool_calls.saturating_sub(1);
    }
    if let Some(run) = session.run.as_mut() {
        if success {
            for tag in tags {
                *run.evidence.entry(tag).or_insert(0) += 1;
            }
        }
        if uncounted {
            run.tool_calls = run.tool_calls.saturating_sub(1);
        }
    }
    if let (true, Some(tool), Some(key), Some(args_hash), Some(outcome)) =
        (success, tool, key, hash, e.content.outcome.clone())
    {
        let keys = Arc::make_mut(&mut session.idempotency).entry(tool).or_default();
        keys.insert(key, KeyedSuccess { args_hash, call: e.call.clone(), outcome });
    }
    complete_step(session);
}

/// Digest that tells one reported outcome from another.
pub(crate) fn outcome_digest(outcome: &crate::output::Outcome) -> crate::id::Sha256Digest {
    crate::id::Sha256Digest::of(serde_json::to_string(outcome).unwrap_or_default().as_bytes())
}

pub(super) fn call_mut<'a>(session: &'a mut Session, id: &CallId) -> Option<&'a mut Call> {
    match session.run.as_mut().map(|run| &mut run.phase) {
        Some(Phase::Acting(step)) => step.calls.iter_mut().find(|call| call.id == *id),
        Some(Phase::Asking(_) | Phase::Ended(_)) | None => None,
    }
}

fn keyed_success<'a>(session: &'a Session, call: &CallId) -> Option<&'a KeyedSuccess> {
    session.idempotency.values().flat_map(BTreeMap::values).find(|success| success.call == *call)
}

fn dispatched(dispatch: &Dispatch, fence: u64) -> CallState {
    CallState::Dispatched(DispatchedCall {
        attempt: dispatch.attempt,
        fence,
        deadline_at: dispatch.deadline_at,
        instance: dispatch.instance.clone(),
        acknowledged: false,
    })
}

fn with_code(reason: Option<RejectReason>, detail: Option<&str>) -> String {
    match (reason, detail) {
        (Some(reason), Some(detail)) => format!("{}: {detail}", reason.code()),
        (Some(reason), None) => reason.code().to_owned(),
        (None, detail) => detail.unwrap_or_default().to_owned(),
    }
}
