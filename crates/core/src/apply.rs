//! The fold: one event into the state. Total; it makes no decision and needs no bundle, since events carry what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ask::{CallView, Entry};
use crate::event::{
    BallotReceived, CallAcknowledged, CallDecided, CallDispatched, CallEnd, CallEnded, ConsensusDecided,
    ConsensusResult, Dispatch, EndCause, Event, OutcomeRefused, Recorded, RunEnded, RunStarted, SessionOpened,
    StepEnded,
};
use crate::id::CallId;
use crate::output::{NotExecuted, OutcomeStatus};
use crate::pipeline::{Decision, repeat_key};
use crate::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs, ProposedCall};
use crate::reason::RejectReason;
use crate::session::{
    Call, CallState, DispatchedCall, EndedCall, EndedState, KeyedSuccess, Opened, Phase, REMEMBERED_CALLS,
    REMEMBERED_INPUTS, Round, Run, Session,
};

mod step;

use step::{complete_step, open_step};

/// Folds one logged event: `apply`, and what only the log knows of it (epoch, input id).
pub fn fold(session: &mut Session, recorded: &Recorded) {
    apply(session, &recorded.event);
    session.epoch = recorded.epoch;
    if let Some(id) = &recorded.input_id {
        if session.recent_inputs.len() >= REMEMBERED_INPUTS {
            session.recent_inputs.pop_front();
        }
        session.recent_inputs.push_back((id.clone(), recorded.seq));
    }
}

/// Folds one event.
pub fn apply(session: &mut Session, event: &Event) {
    session.head += 1;
    match event {
        Event::SessionOpened(e) => opened(session, e),
        Event::OwnerChanged(_) | Event::CancelRequested(_) | Event::CloseRequested(_) | Event::Ticked(_) => {}
        Event::ClassificationReceived(_) => session.classifying = None,
        Event::ProfileChosen(e) => {
            session.profile = Some(e.profile.clone());
            session.label.clone_from(&e.label);
            session.trace_requirements.clone_from(&e.trace_requirements);
            session.classifying = None;
        }
        Event::MessageReceived(e) => session.transcript.push(Arc::new(Entry::User { text: e.content.text.clone() })),
        Event::RunStarted(e) => run_started(session, e),
        Event::BallotReceived(e) => ballot_received(session, e),
        Event::ConsensusDecided(e) => consensus_decided(session, e),
        Event::CallDecided(e) => call_decided(session, e),
        Event::CallDispatched(e) => call_dispatched(session, e),
        Event::CallAcknowledged(e) => call_acknowledged(session, e),
        Event::CallEnded(e) => call_ended(session, e),
        Event::ApprovalDecided(e) => {
            // The decision's consequence (dispatch, terminal record, edited call) is its own event; a waiting call that
            // was approved waits for its turn from here on.
            let approved = e.decision == crate::event::ApprovalVerb::Approve;
            if let Some(call) = call_mut(session, &e.call).filter(|_| approved) {
                call.state = CallState::Queued;
            }
        }
        Event::StepEnded(e) => step_ended(session, e),
        Event::RunEnded(e) => run_ended(session, e),
        Event::ClientAttached(e) => {
            session.executor = Some(e.instance.clone());
            session.capabilities.clone_from(&e.capabilities);
        }
        Event::SessionClosed(_) => session.closed = true,
        Event::Recovered(_) => recovered(session),
        Event::OutcomeRefused(e) => outcome_refused(session, e),
    }
}

fn opened(session: &mut Session, e: &SessionOpened) {
    session.opened = Some(Opened {
        tenant: e.tenant.clone(),
        by: e.by.clone(),
        bundle: e.bundle,
        ceiling: e.ceiling.clone(),
        limits: e.limits,
        output_schema: e.content.output_schema.clone(),
        prompt: e.content.prompt.clone(),
        rules_version: e.rules_version,
    });
    session.capabilities.clone_from(&e.capabilities);
    session.transcript.push(Arc::new(Entry::User { text: e.content.prompt.clone() }));
    session.classifying = e.classify_by.map(|_| 1);
    session.classify_by = e.classify_by;
}

fn run_started(session: &mut Session, e: &RunStarted) {
    session.run = Some(Run {
        no: e.run,
        limits: e.limits.clone(),
        deadline_at: e.deadline_at,
        phase: Phase::Asking(Round { step: 1, round: 1, attempt: 1, ballots: BTreeMap::new() }),
        steps: 0,
        model_calls: 0,
        tool_calls: 0,
        rejections: 0,
        parse_failures: 0,
        repeats: BTreeMap::new(),
        evidence: BTreeMap::new(),
        refused_reports: 0,
        output: None,
        detail: None,
    });
}

fn ballot_received(session: &mut Session, e: &BallotReceived) {
    let Some(run) = session.run.as_mut() else { return };
    run.model_calls += 1;
    if let Phase::Asking(round) = &mut run.phase {
        round.ballots.insert(e.seat.ballot, unsealed(session.id, e));
        if round.ballots.len() >= usize::try_from(e.of).unwrap_or(usize::MAX) {
            session.rounds += 1;
        }
    }
}

/// The ballot with its redacted arguments put back in full, as far as their seals still exist.
pub(crate) fn unsealed(session: crate::id::SessionId, e: &BallotReceived) -> Ballot {
    let mut ballot = e.content.ballot.clone();
    if let BallotVerdict::Proposal(Proposal::Calls(calls)) = &mut ballot.verdict {
        for (index, call) in (0_u32..).zip(calls.iter_mut()) {
            if let Some(full) = e.sealed.get(&CallId::at(session, e.seat.run, e.seat.step, index)) {
                call.args = ProposedArgs::Readable(full.clone());
            }
        }
    }
    ballot
}

fn consensus_decided(session: &mut Session, e: &ConsensusDecided) {
    let Some(round) = asking(session) else { return };
    match e.result {
        ConsensusResult::Agreed { ballot } | ConsensusResult::Escalated { ballot } => {
            round.ballots.retain(|number, _| *number == ballot);
        }
        ConsensusResult::Retry => {
            round.round += 1;
            round.attempt = 1;
            round.ballots.clear();
        }
        ConsensusResult::Rejected => round.ballots.clear(),
    }
}

fn call_decided(session: &mut Session, e: &CallDecided) {
    open_step(session);
    let seq = session.head;
    let replayed =
        e.replay_of.as_ref().and_then(|of| keyed_success(session, of)).map(|success| success.outcome.clone());
    let Some(run) = session.run.as_mut() else { return };
    let Phase::Acting(step) = &mut run.phase else { return };
    let over = e.decision == Decision::Reject;
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
    let state = match (e.decision, &e.approval, &e.dispatch) {
        (Decision::Escalate, Some(approval), _) => CallState::Waiting(approval.clone()),
        (Decision::Allow, _, Some(dispatch)) => dispatched(dispatch, seq),
        (Decision::Allow | Decision::Escalate, _, _) => CallState::Queued,
        (Decision::Reject, _, _) => CallState::Ended(EndedState {
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
        edited_from: e.edited_from.clone(),
        approval: e.approval.as_ref().map(|approval| approval.id.clone()),
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

fn call_dispatched(session: &mut Session, e: &CallDispatched) {
    let seq = session.head;
    if let Some(call) = call_mut(session, &e.call) {
        call.state = dispatched(&e.dispatch, seq);
    }
}

fn call_acknowledged(session: &mut Session, e: &CallAcknowledged) {
    if let Some(CallState::Dispatched(open)) = call_mut(session, &e.call).map(|call| &mut call.state) {
        open.acknowledged = true;
    }
}

fn call_ended(session: &mut Session, e: &CallEnded) {
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
    call.state = CallState::Ended(ended);
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
    if let Some(run) = session.run.as_mut() {
        if success {
            for tag in tags {
                *run.evidence.entry(tag).or_insert(0) += 1;
            }
        }
        if matches!(e.end, CallEnd::NotExecuted(_)) {
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

fn step_ended(session: &mut Session, e: &StepEnded) {
    if let Some(ballot) = asking(session).and_then(|round| only_ballot(&round.ballots).cloned()) {
        session.transcript.push(Arc::new(Entry::Model {
            text: ballot_text(&ballot),
            calls: Vec::new(),
            opaque: ballot.opaque,
        }));
    }
    let entry = Entry::Feedback { code: e.reason.code().to_owned(), text: e.content.text.clone() };
    session.transcript.push(Arc::new(entry));
    let Some(run) = session.run.as_mut() else { return };
    run.steps += 1;
    run.rejections += 1;
    run.parse_failures = if e.reason == RejectReason::Malformed { run.parse_failures + 1 } else { 0 };
    run.phase = Phase::Asking(Round { step: e.step + 1, round: 1, attempt: 1, ballots: BTreeMap::new() });
}

fn run_ended(session: &mut Session, e: &RunEnded) {
    if let (Some(output), Some(ballot)) =
        (&e.content.output, asking(session).and_then(|r| only_ballot(&r.ballots).cloned()))
    {
        let text = if ballot.text.is_empty() { output_text(output) } else { ballot.text };
        session.transcript.push(Arc::new(Entry::Model { text, calls: Vec::new(), opaque: ballot.opaque }));
    }
    session.classifying = None;
    let run = session.run.get_or_insert_with(|| Run {
        no: e.run,
        limits: crate::event::Limits {
            max_steps: 0,
            max_tool_calls: 0,
            max_model_calls: 0,
            deadline_ms: 0,
            max_parallel_calls: 0,
            max_consecutive_rejections: 0,
            max_parse_failures: 0,
            repeat_limit: 0,
            ballots: 0,
        },
        deadline_at: crate::time::Timestamp(0),
        phase: Phase::Ended(e.ending),
        steps: 0,
        model_calls: 0,
        tool_calls: 0,
        rejections: 0,
        parse_failures: 0,
        repeats: BTreeMap::new(),
        evidence: BTreeMap::new(),
        refused_reports: 0,
        output: None,
        detail: None,
    });
    run.steps = e.steps;
    run.phase = Phase::Ended(e.ending);
    run.output.clone_from(&e.content.output);
    run.detail.clone_from(&e.content.detail);
}

fn recovered(session: &mut Session) {
    if let Some(attempt) = session.classifying.as_mut() {
        *attempt += 1;
    }
    let Some(run) = session.run.as_mut() else { return };
    if let Phase::Asking(round) = &mut run.phase {
        let answered = u32::try_from(round.ballots.len()).unwrap_or(u32::MAX);
        run.model_calls += run.limits.ballots.saturating_sub(answered);
        round.attempt += 1;
    }
}

fn outcome_refused(session: &mut Session, _: &OutcomeRefused) {
    if let Some(run) = session.run.as_mut() {
        run.refused_reports += 1;
    }
}

fn asking(session: &mut Session) -> Option<&mut Round> {
    match session.run.as_mut().map(|run| &mut run.phase) {
        Some(Phase::Asking(round)) => Some(round),
        Some(Phase::Acting(_) | Phase::Ended(_)) | None => None,
    }
}

fn call_mut<'a>(session: &'a mut Session, id: &CallId) -> Option<&'a mut Call> {
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

fn only_ballot(ballots: &BTreeMap<u32, Ballot>) -> Option<&Ballot> {
    let mut all = ballots.values();
    all.next().filter(|_| all.next().is_none())
}

/// The assistant text of a ballot; a final answer without text is shown as its output.
fn ballot_text(ballot: &Ballot) -> String {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Done { output }) if ballot.text.is_empty() => output_text(output),
        BallotVerdict::Proposal(_) | BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. } => {
            ballot.text.clone()
        }
    }
}

fn output_text(output: &crate::json::Json) -> String {
    match output.value() {
        serde_json::Value::String(text) => text,
        _ => output.as_str().to_owned(),
    }
}

fn with_code(reason: Option<RejectReason>, detail: Option<&str>) -> String {
    match (reason, detail) {
        (Some(reason), Some(detail)) => format!("{}: {detail}", reason.code()),
        (Some(reason), None) => reason.code().to_owned(),
        (None, detail) => detail.unwrap_or_default().to_owned(),
    }
}

/// The calls of a ballot as the conversation shows them.
fn call_views(session: crate::id::SessionId, run: u32, step: u32, calls: &[ProposedCall]) -> Vec<CallView> {
    (0_u32..)
        .zip(calls)
        .map(|(index, call)| CallView {
            call: CallId::at(session, run, step, index),
            tool: call.tool.clone(),
            args: call.raw_args.clone(),
        })
        .collect()
}
