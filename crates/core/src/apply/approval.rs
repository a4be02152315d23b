//! Facts about approvals and hooks: who has answered, and what the call waits for next.

use toolgate_policy::grant::Grant;

use super::call::call_mut;
use crate::event::{
    AdmissionAnswered, AdmissionVerb, ApprovalDecided, ApprovalReminded, ApprovalVerb, Bound, Raise, RunPaused,
};
use crate::session::{
    Awaited, AwaitedApproval, Call, CallState, GivenAnswer, GivenGrant, Pause, Phase, Round, Session,
};

/// Answers remembered, so that a second one is told what the first was.
const REMEMBERED_ANSWERS: usize = 256;

pub(super) fn approval_decided(session: &mut Session, e: &ApprovalDecided) {
    if session.answers.len() >= REMEMBERED_ANSWERS {
        session.answers.pop_front();
    }
    session.answers.push_back(GivenAnswer {
        approval: e.approval.clone(),
        call: e.call.clone(),
        by: e.by.clone(),
        verb: e.decision,
        digest: e.digest,
        settled: e.missing == 0,
        seq: session.head,
    });
    if e.decision == ApprovalVerb::Revoke {
        // What was granted ends here; a call that was not sent yet gets its terminal record as an event of its own.
        session.grants.retain(|grant| grant.approval != e.approval);
        return;
    }
    if paused_mut(session).is_some_and(|pause| pause.approval.opened.id == e.approval) {
        return pause_answered(session, e);
    }
    // The consequences of a denial and of an edit are events of their own.
    if e.decision == ApprovalVerb::Approve {
        approved(session, e);
    }
}

/// One more person has approved; with the last one the call goes on.
fn approved(session: &mut Session, e: &ApprovalDecided) {
    let Some(call) = call_mut(session, &e.call) else { return };
    if let CallState::Waiting(Awaited::Approval(awaited)) = &mut call.state {
        awaited.approved_by.insert(e.by.clone());
    }
    if e.missing > 0 {
        return;
    }
    call.state = ready(call);
    let covered = (call.tool.clone(), call.shown_args.clone());
    let (Some(given), (Some(tool), Some(args)), Some(opened)) = (&e.grant, covered, &session.opened) else { return };
    let grant = Grant {
        tool: tool.to_string(),
        // The bundle is pinned, so that its digest stands for the contract's version as well.
        tool_version: String::new(),
        bundle: opened.bundle.to_string(),
        session: session.id.to_string(),
        args: args.value(),
        open: given.open.clone(),
        expires_at_micros: u64::try_from(given.expires_at.as_micros()).unwrap_or(0),
    };
    session.grants.push(GivenGrant { approval: e.approval.clone(), call: e.call.clone(), grant });
}

/// What a call that nothing holds back does next: ask the ledger, or wait for its turn.
pub(super) fn ready(call: &Call) -> CallState {
    if call.charges.is_empty() { CallState::Queued } else { CallState::Waiting(Awaited::Reservation) }
}

fn pause_answered(session: &mut Session, e: &ApprovalDecided) {
    if let Some(pause) = paused_mut(session).filter(|_| e.decision == ApprovalVerb::Approve && e.missing > 0) {
        pause.approval.approved_by.insert(e.by.clone());
        return;
    }
    // After a denial the run's ending follows as an event of its own.
    if e.raises.is_empty() {
        return;
    }
    if let Some(round) = round_mut(session) {
        round.paused = None;
    }
    for raise in &e.raises {
        raised(session, *raise);
    }
}

fn raised(session: &mut Session, raise: Raise) {
    let small = u32::try_from(raise.to).unwrap_or(u32::MAX);
    let Some(limits) = session.run.as_mut().map(|run| &mut run.limits) else { return };
    match raise.bound {
        Bound::MaxSteps => limits.max_steps = small,
        Bound::MaxModelCalls => limits.max_model_calls = small,
        Bound::MaxTokens => limits.max_tokens = Some(raise.to),
        Bound::MaxCostMicrousd => limits.max_cost_microusd = Some(raise.to),
        Bound::SessionMaxModelCalls | Bound::SessionMaxTokens | Bound::SessionMaxCostMicrousd => {
            session.raised.insert(raise.bound, raise.to);
        }
    }
}

pub(super) fn approval_reminded(session: &mut Session, e: &ApprovalReminded) {
    if let Some(pause) = paused_mut(session).filter(|pause| pause.approval.opened.id == e.approval) {
        pause.approval.reminders = e.reminder;
    } else if let Some(CallState::Waiting(Awaited::Approval(awaited))) =
        call_mut(session, &e.call).map(|call| &mut call.state)
    {
        awaited.reminders = e.reminder;
    }
}

pub(super) fn run_paused(session: &mut Session, e: &RunPaused) {
    let pause = Pause {
        call: e.call.clone(),
        bound: e.bound,
        limit: e.limit,
        args: e.content.args.clone(),
        approval: AwaitedApproval::new(e.approval.clone()),
    };
    if let Some(run) = session.run.as_mut() {
        run.pauses += 1;
    }
    if let Some(round) = round_mut(session) {
        round.paused = Some(Box::new(pause));
    }
}

pub(super) fn admission_answered(session: &mut Session, e: &AdmissionAnswered) {
    // A denial, a failure and a rewriting close the call, which is an event of its own.
    if e.verdict != AdmissionVerb::Allow {
        return;
    }
    let Some(call) = call_mut(session, &e.call) else { return };
    let CallState::Waiting(Awaited::Admission(awaited)) = &mut call.state else { return };
    awaited.hooks.retain(|hook| *hook != e.hook);
    if let Some(next_by) = e.next_by {
        awaited.attempt = 1;
        awaited.answer_by = next_by;
        return;
    }
    call.state = match &e.approval {
        Some(opened) => {
            call.approval = Some(opened.id.clone());
            CallState::Waiting(Awaited::Approval(AwaitedApproval::new(opened.clone())))
        }
        None => ready(call),
    };
}

fn paused_mut(session: &mut Session) -> Option<&mut Pause> {
    round_mut(session)?.paused.as_deref_mut()
}

fn round_mut(session: &mut Session) -> Option<&mut Round> {
    match session.run.as_mut().map(|run| &mut run.phase) {
        Some(Phase::Asking(round)) => Some(round),
        Some(Phase::Acting(_) | Phase::Ended(_)) | None => None,
    }
}
