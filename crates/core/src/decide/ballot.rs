//! Answers of models: the gates before `done`, and what an unreadable answer costs. What is not here: several answers
//! to one question (`vote`).

use std::collections::BTreeMap;

use super::{Draft, MAX_CALLS_PER_STEP, Reply, redact, vote};
use crate::apply::budget::is_asked;
use crate::consensus::trimmed;
use crate::event::{BallotContent, BallotReceived, Deficit, EARLY_VOTES, Event, RunContent, StepEnded, TextContent};
use crate::evidence;
use crate::id::{CallId, Tag};
use crate::input::{BallotCast, Seat};
use crate::json::Json;
use crate::pipeline::missing_evidence;
use crate::proposal::{BallotVerdict, Proposal};
use crate::reason::{Ending, Refusal, RefusalCode, RejectReason};
use crate::schema::{Mismatch, Schema, describe};
use crate::session::{Phase, Round};

pub(super) fn ballot(draft: &mut Draft<'_>, cast: &BallotCast) -> Result<Reply, Refusal> {
    let stale = || Refusal::new(RefusalCode::StaleAnswer, "this question is answered or was asked again");
    let run = draft.session.active_run().ok_or_else(stale)?;
    let Phase::Asking(round) = &run.phase else { return Err(stale()) };
    let expected =
        Seat { run: run.no, step: round.step, round: round.round, attempt: round.attempt, ballot: cast.seat.ballot };
    if !is_asked(round) || round.asked_to_sum_up().is_some() {
        return Err(stale());
    }
    let awaited = round.missing().any(|ballot| ballot == cast.seat.ballot);
    if cast.seat != expected || !awaited {
        return Err(stale());
    }
    let of = round.n;
    let event = received(draft, cast, of);
    draft.push(event);
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    vote::count(draft);
    Ok(Reply::Accepted)
}

pub(super) fn asking(draft: &Draft<'_>) -> Option<Round> {
    match draft.session.active_run().map(|run| &run.phase) {
        Some(Phase::Asking(round)) => Some(round.clone()),
        Some(Phase::Acting(_) | Phase::Ended(_)) | None => None,
    }
}

/// The record of an answer, with secrets moved to the seal.
fn received(draft: &Draft<'_>, cast: &BallotCast, of: u32) -> Event {
    let (mut kept, cut_from) = redact::ballot(draft.bundle, draft.profile(), &cast.ballot);
    let cut = kept.cut.take();
    let id = |index| CallId::at(draft.session.id, cast.seat.run, cast.seat.step, index);
    let sealed: BTreeMap<CallId, Json> = cut_from.into_iter().map(|(index, full)| (id(index), full)).collect();
    let redacted = sealed.keys().cloned().collect();
    let (verdict, reason, calls) = describe_verdict(&kept.verdict);
    let (cost_microusd, charged) = draft.charged(cast.seat.ballot, kept.usage);
    Event::BallotReceived(Box::new(BallotReceived {
        seat: cast.seat,
        of,
        verdict: verdict.to_owned(),
        reason,
        calls,
        usage: kept.usage,
        model: kept.model.clone(),
        cost_microusd,
        charged,
        cut,
        content: BallotContent { ballot: kept, redacted },
        sealed,
    }))
}

fn describe_verdict(verdict: &BallotVerdict) -> (&'static str, Option<String>, u32) {
    fn code<T: serde::Serialize>(reason: &T) -> Option<String> {
        serde_json::to_value(reason).ok()?.as_str().map(ToOwned::to_owned)
    }
    match verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            ("calls", None, u32::try_from(calls.len()).unwrap_or(u32::MAX))
        }
        BallotVerdict::Proposal(Proposal::Done { .. }) => ("done", None, 0),
        BallotVerdict::Malformed { reason, .. } => ("malformed", code(reason), 0),
        BallotVerdict::Failed { reason, .. } => ("failed", code(reason), 0),
    }
}

/// Does what the one ballot left in the round says.
pub(super) fn act(draft: &mut Draft<'_>, escalate: Option<RejectReason>) {
    let Some(round) = asking(draft) else { return };
    // Answers that differ by the white space around them are one vote, so that none of it may depend on who was faster.
    let voted = round.n > 1 && draft.rules() >= EARLY_VOTES;
    let Some(ballot) = round.ballots.into_values().next() else { return };
    match ballot.verdict {
        BallotVerdict::Failed { detail, .. } => draft.end_run(Ending::ProviderFailed, None, Some(detail)),
        BallotVerdict::Malformed { detail, .. } => end_step(draft, RejectReason::Malformed, BTreeMap::new(), detail),
        BallotVerdict::Proposal(Proposal::Done { output }) => {
            let output = if voted { trimmed(&output).unwrap_or(output) } else { output };
            done(draft, output);
        }
        BallotVerdict::Proposal(Proposal::Calls(calls)) if (1..=MAX_CALLS_PER_STEP).contains(&calls.len()) => {
            draft.decide_calls(&calls, escalate);
        }
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let text = format!("an answer asks for 1 to {MAX_CALLS_PER_STEP} calls, not {}", calls.len());
            end_step(draft, RejectReason::Malformed, BTreeMap::new(), text);
        }
    }
}

/// The gates before an end: the output's schema, then the evidence.
fn done(draft: &mut Draft<'_>, output: Json) {
    let own = draft.session.opened.as_ref().and_then(|opened| opened.output_schema.clone());
    let own = own.and_then(|schema| Schema::compile(&schema.value()).ok());
    let of_profile = draft.session.profile.as_ref().and_then(|name| draft.bundle.output_schema(name));
    // The session's schema comes on top of the profile's: a caller may narrow, never widen.
    let fitted = own.as_ref().into_iter().chain(of_profile).try_fold(output, |output, schema| fit(schema, output));
    let output = match fitted {
        Ok(output) => output,
        Err(text) => return end_step(draft, RejectReason::OutputSchemaInvalid, BTreeMap::new(), text),
    };
    let counts = draft.session.active_run().map(|run| run.evidence.clone()).unwrap_or_default();
    let deficits = evidence::deficits(&draft.session.trace_requirements, &counts);
    if !deficits.is_empty() {
        let text = evidence::describe(&deficits);
        return end_step(draft, RejectReason::TraceRequirementsNotMet, deficits, text);
    }
    let (missing, shadow) = missing_evidence(draft.bundle, &draft.session);
    if !missing.is_empty() {
        let text = format!("not done yet; {}", missing.join("; "));
        return end_step(draft, RejectReason::TraceRequirementsNotMet, BTreeMap::new(), text);
    }
    draft.close_run(Ending::Done, shadow, RunContent { output: Some(output), detail: None });
}

/// The output if it matches, or the JSON that stands in it as text if that matches.
fn fit(schema: &Schema, output: Json) -> Result<Json, String> {
    let value = output.value();
    let mismatches = schema.mismatches(&value, false);
    if mismatches.is_empty() {
        return Ok(output);
    }
    let inner = if let serde_json::Value::String(text) = &value { Json::parse(text.trim()).ok() } else { None };
    let Some(inner) = inner else { return Err(unfit(&mismatches)) };
    let mismatches = schema.mismatches(&inner.value(), false);
    if mismatches.is_empty() { Ok(inner) } else { Err(unfit(&mismatches)) }
}

fn unfit(mismatches: &[Mismatch]) -> String {
    format!("the final output does not match its schema: {}", describe(mismatches))
}

/// Closes a step that holds no calls, and the run where the profile says so.
pub(super) fn end_step(draft: &mut Draft<'_>, reason: RejectReason, deficits: BTreeMap<Tag, Deficit>, text: String) {
    let Some((run, step)) = draft.step() else { return };
    let detail = text.clone();
    draft.push(Event::StepEnded(StepEnded { run, step, reason, deficits, content: TextContent { text } }));
    if draft.ends_run(reason) {
        draft.end_run(reason.into(), None, Some(detail));
    } else {
        draft.check_bounds();
    }
}
