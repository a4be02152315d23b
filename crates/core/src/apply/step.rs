//! How a step of calls opens and completes: structure only, so that every path through it gives the model exactly one
//! result per call.

use std::sync::Arc;

use super::{ballot_text, call_views, only_ballot};
use crate::ask::Entry;
use crate::event::CallEnd;
use crate::id::CallId;
use crate::json::Json;
use crate::pipeline::repeat_key;
use crate::proposal::{BallotVerdict, Proposal};
use crate::session::{Call, CallState, EndedState, PastCall, Phase, Round, Session, Step};

/// Turns the answered round into a step that holds its calls. Does nothing when the step is open already.
pub(super) fn open_step(session: &mut Session) {
    let id = session.id;
    let Some(run) = session.run.as_mut() else { return };
    let Phase::Asking(round) = &run.phase else { return };
    let Some(ballot) = only_ballot(&round.ballots) else { return };
    let BallotVerdict::Proposal(Proposal::Calls(calls)) = &ballot.verdict else { return };
    let entry = Entry::Model {
        text: ballot_text(ballot),
        calls: call_views(id, run.no, round.step, calls),
        opaque: ballot.opaque.clone(),
    };
    let step = Step {
        no: round.step,
        proposed: u32::try_from(calls.len()).unwrap_or(u32::MAX),
        ballots: round.n,
        agreed: round.agreed,
        vote: round.vote.clone(),
        calls: Vec::new(),
        any_accepted: false,
        any_malformed: false,
    };
    run.phase = Phase::Acting(step);
    session.transcript.push(Arc::new(entry));
}

/// Once every proposed call is decided and every call has ended, gives the model its results and opens the next round.
pub(super) fn complete_step(session: &mut Session) {
    let Some(run) = session.run.as_mut() else { return };
    let Phase::Acting(step) = &run.phase else { return };
    let decided = step.calls.len() >= usize::try_from(step.proposed).unwrap_or(usize::MAX);
    // An edit's replacement is decided right after its original has ended.
    let replaced = step.calls.iter().all(|call| match &call.state {
        CallState::Ended(EndedState { replaced_by: Some(id), .. }) => step.calls.iter().any(|other| other.id == *id),
        CallState::Ended(_) => true,
        CallState::Waiting(_) | CallState::Queued | CallState::Dispatched(_) => false,
    });
    if !decided || !replaced {
        return;
    }
    let results: Vec<Entry> =
        step.calls.iter().filter(|call| call.edited_from.is_none()).map(|call| result(step, call)).collect();
    let past: Vec<_> = step.calls.iter().filter_map(|call| past_call(run.no, call)).map(Arc::new).collect();
    run.steps += 1;
    run.rejections = if step.any_accepted { 0 } else { run.rejections + 1 };
    run.schema_failures = 0;
    run.parse_failures = if step.any_malformed { run.parse_failures + 1 } else { 0 };
    run.phase = Phase::Asking(Round::new(step.no + 1, 1, run.limits.ballots));
    session.transcript.extend(results.into_iter().map(Arc::new));
    session.history.extend(past);
}

/// What is kept of an ended call for the rules over earlier calls.
fn past_call(run: u32, call: &Call) -> Option<PastCall> {
    let CallState::Ended(ended) = &call.state else { return None };
    Some(PastCall {
        run,
        call: call.id.clone(),
        tool_id: call.tool.clone(),
        reason: call.reason,
        tool: call.tool_text.clone(),
        key: call.args_hash.map(|hash| repeat_key(&call.tool_text, hash)),
        args: call.shown_args.as_ref().map(Json::value),
        end: ended.end,
        replayed: ended.replayed,
        replaced: ended.replaced_by.is_some(),
        result: ended.shown.clone(),
        decided_at: call.decided_at,
    })
}

/// What the model is told of a call it asked for; an edited call answers for its original.
fn result(step: &Step, original: &Call) -> Entry {
    let mut current = original;
    let mut note = None;
    while let CallState::Ended(EndedState { replaced_by: Some(id), .. }) = &current.state {
        let Some(next) = step.calls.iter().find(|call| call.id == *id) else { break };
        current = next;
        note = Some(edit_note(current));
    }
    let (status, reason, body) = match &current.state {
        CallState::Ended(ended) => (shown_status(ended), ended.reason.clone(), ended.shown.clone()),
        CallState::Waiting(_) | CallState::Queued | CallState::Dispatched(_) => ("open", None, String::new()),
    };
    let note = match (note, original.warning.clone()) {
        (Some(note), Some(warning)) => Some(format!("{note}; {warning}")),
        (note, warning) => note.or(warning),
    };
    let reason = match (note, reason) {
        (Some(note), Some(reason)) => Some(format!("{note}; {reason}")),
        (note, reason) => note.or(reason),
    };
    Entry::Result {
        call: original.id.clone(),
        tool: original.tool_text.clone(),
        status: status.to_owned(),
        reason,
        body,
    }
}

fn edit_note(edited: &Call) -> String {
    let id: &CallId = &edited.id;
    match &edited.rewritten_by {
        Some(hook) => format!("the admission hook `{hook}` changed the arguments; it was judged again as `{id}`"),
        None => format!("an approver changed the arguments; it was judged again as `{id}`"),
    }
}

/// A replayed call shows the recorded success, though nothing ran.
fn shown_status(ended: &EndedState) -> &'static str {
    match ended.end {
        CallEnd::NotExecuted(_) if ended.replayed => "ok",
        end @ (CallEnd::Outcome(_) | CallEnd::NotExecuted(_)) => end.code(),
    }
}
