//! The fold: one event into the state. Total; it makes no decision and needs no bundle, since events carry what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ask::{CallView, Entry};
use crate::event::{
    BallotReceived, Event, Limits, OutcomeRefused, Recorded, RunEnded, RunStarted, SessionOpened, StepEnded,
};
use crate::id::{CallId, InputId};
use crate::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs, ProposedCall};
use crate::reason::RejectReason;
use crate::session::{
    Awaited, Call, CallState, Opened, Phase, REMEMBERED_INPUTS, Round, Run, RunUsage, Session, Summing,
};
use crate::time::Timestamp;

mod approval;
pub(crate) mod budget;
mod call;
mod step;
pub(crate) mod summary;
mod vote;

use approval::{admission_answered, approval_decided, approval_reminded, run_paused};
pub(crate) use call::outcome_digest;
use call::{call_acknowledged, call_decided, call_dispatched, call_ended};

/// Folds one logged event: `apply`, and what only the log knows of it (epoch, input id).
pub fn fold(session: &mut Session, recorded: &Recorded) {
    apply(session, &recorded.event);
    place(session, recorded.seq, recorded.epoch, recorded.input_id.as_ref());
}

/// The part of [`fold`] that [`apply`] leaves out: the place in the log of an event that is applied already, and the input it
/// records.
pub fn place(session: &mut Session, seq: u64, epoch: u64, input_id: Option<&InputId>) {
    session.epoch = epoch;
    if let Some(id) = input_id {
        if session.recent_inputs.len() >= REMEMBERED_INPUTS {
            session.recent_inputs.pop_front();
        }
        session.recent_inputs.push_back((id.clone(), seq));
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
        Event::MessageReceived(e) => {
            session.speakers.insert(e.by.clone());
            session.transcript.push(Arc::new(Entry::User { text: e.content.text.clone() }));
        }
        Event::RunStarted(e) => run_started(session, e),
        Event::BallotReceived(e) => ballot_received(session, e),
        Event::SummaryAsked(e) => summary::asked(session, e),
        Event::SummaryReceived(e) => summary::received(session, e),
        Event::VoteWidened(e) => vote::widened(session, e),
        Event::ConsensusDecided(e) => vote::decided(session, e),
        Event::CallDecided(e) => call_decided(session, e),
        Event::CallDispatched(e) => call_dispatched(session, e),
        Event::CallAcknowledged(e) => call_acknowledged(session, e),
        Event::CallEnded(e) => call_ended(session, e),
        Event::AdmissionAnswered(e) => admission_answered(session, e),
        Event::ApprovalDecided(e) => approval_decided(session, e),
        Event::ApprovalReminded(e) => approval_reminded(session, e),
        Event::BudgetReserved(e) => budget::budget_reserved(session, e),
        Event::ReservationAnswered(e) => budget::reservation_answered(session, e),
        Event::BudgetSettled(e) => budget::settled(session, &e.settled),
        Event::RunPaused(e) => run_paused(session, e),
        Event::WrapUpStarted(_) => {
            if let Some(run) = session.run.as_mut() {
                run.wrapping_up = true;
            }
        }
        Event::StepEnded(e) => step_ended(session, e),
        Event::RunEnded(e) => run_ended(session, e),
        Event::ClientAttached(e) => {
            session.executor = Some(e.instance.clone());
            session.executor_by = Some(e.by.clone());
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
        control: e.control,
        dry_run: e.dry_run,
        output_schema: e.content.output_schema.clone(),
        prompt: e.content.prompt.clone(),
        rules_version: e.rules_version,
    });
    session.speakers.insert(e.by.clone());
    session.capabilities.clone_from(&e.capabilities);
    session.transcript.push(Arc::new(Entry::User { text: e.content.prompt.clone() }));
    session.classifying = e.classify_by.map(|_| 1);
    session.classify_by = e.classify_by;
}

fn run_started(session: &mut Session, e: &RunStarted) {
    session.run = Some(fresh_run(e.run, e.limits.clone(), e.deadline_at));
}

fn fresh_run(no: u32, limits: Limits, deadline_at: Timestamp) -> Run {
    Run {
        no,
        phase: Phase::Asking(Round::new(1, 1, limits.ballots)),
        limits,
        deadline_at,
        steps: 0,
        model_calls: 0,
        tool_calls: 0,
        rejections: 0,
        parse_failures: 0,
        schema_failures: 0,
        repeats: BTreeMap::new(),
        evidence: BTreeMap::new(),
        spent: crate::event::Amount::default(),
        wrapping_up: false,
        usage: RunUsage::default(),
        pauses: 0,
        refused_reports: 0,
        output: None,
        detail: None,
    }
}

fn ballot_received(session: &mut Session, e: &BallotReceived) {
    budget::paid(session, e.seat.ballot, e.charged);
    let Some(run) = session.run.as_mut() else { return };
    run.model_calls += 1;
    run.usage.add(e.usage, e.cost_microusd);
    if let Phase::Asking(round) = &mut run.phase {
        round.arrived.push(e.seat.ballot);
        round.ballots.insert(e.seat.ballot, unsealed(session.id, e));
        if round.ballots.len() >= usize::try_from(e.of).unwrap_or(usize::MAX) {
            session.rounds += 1;
        }
    }
}

/// The ballot as it came: with its redacted arguments in full, as far as their seals still exist.
pub(crate) fn unsealed(session: crate::id::SessionId, e: &BallotReceived) -> Ballot {
    let mut ballot = e.content.ballot.clone();
    ballot.cut = e.cut;
    if let BallotVerdict::Proposal(Proposal::Calls(calls)) = &mut ballot.verdict {
        for (index, call) in (0_u32..).zip(calls.iter_mut()) {
            if let Some(full) = e.sealed.get(&CallId::at(session, e.seat.run, e.seat.step, index)) {
                call.args = ProposedArgs::Readable(full.clone());
            }
        }
    }
    ballot
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
    run.schema_failures = if e.reason == RejectReason::OutputSchemaInvalid { run.schema_failures + 1 } else { 0 };
    run.phase = Phase::Asking(Round::new(e.step + 1, 1, run.limits.ballots));
}

fn run_ended(session: &mut Session, e: &RunEnded) {
    if let (Some(output), Some(ballot)) =
        (&e.content.output, asking(session).and_then(|r| only_ballot(&r.ballots).cloned()))
    {
        let text = if ballot.text.is_empty() { output_text(output) } else { ballot.text };
        session.transcript.push(Arc::new(Entry::Model { text, calls: Vec::new(), opaque: ballot.opaque }));
    }
    session.classifying = None;
    budget::ballots_lost(session);
    // A run whose profile was never found ends before it has started: it had no bounds and did nothing.
    let run = session.run.get_or_insert_with(|| fresh_run(e.run, Limits::default(), Timestamp(0)));
    run.steps = e.steps;
    run.model_calls = e.model_calls;
    run.phase = Phase::Ended(e.ending);
    run.output.clone_from(&e.content.output);
    run.detail.clone_from(&e.content.detail);
}

fn recovered(session: &mut Session) {
    if let Some(attempt) = session.classifying.as_mut() {
        *attempt += 1;
    }
    for call in open_calls_mut(session) {
        if let CallState::Waiting(Awaited::Admission(awaited)) = &mut call.state {
            awaited.attempt += 1;
        }
    }
    let Some(run) = session.run.as_mut() else { return };
    let Phase::Asking(round) = &mut run.phase else { return };
    // What was never asked is not lost: its question still stands.
    if !budget::is_asked(round) {
        return;
    }
    let missing = round.awaited_count();
    budget::ballots_missed(session, missing);
    if let Some(round) = asking(session) {
        round.attempt += 1;
        // A lost summary is asked for again, if there is still room for it.
        if round.asked_to_sum_up().is_some() {
            round.summing = Summing::Not;
        }
    }
}

fn open_calls_mut(session: &mut Session) -> &mut [Call] {
    match session.run.as_mut().map(|run| &mut run.phase) {
        Some(Phase::Acting(step)) => &mut step.calls,
        Some(Phase::Asking(_) | Phase::Ended(_)) | None => &mut [],
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
    if let serde_json::Value::String(text) = output.value() { text } else { output.as_str().to_owned() }
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
