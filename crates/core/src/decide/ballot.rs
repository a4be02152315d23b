//! Answers of models: the vote, the gates before `done`, and what an unreadable answer costs.

use std::collections::BTreeMap;

use super::{Draft, MAX_CALLS_PER_STEP, Reply, redact};
use crate::apply::budget::is_asked;
use crate::consensus::tally;
use crate::event::{
    BallotContent, BallotReceived, ConsensusDecided, ConsensusResult, Deficit, Event, RunContent, StepEnded,
    TextContent,
};
use crate::evidence;
use crate::id::{CallId, Tag};
use crate::input::{BallotCast, Seat};
use crate::json::Json;
use crate::pipeline::missing_evidence;
use crate::profile::OnNoConsensus;
use crate::proposal::{Ballot, BallotVerdict, Proposal};
use crate::reason::{Ending, Refusal, RefusalCode, RejectReason};
use crate::schema::{Mismatch, Schema, describe};
use crate::session::{Phase, Round};

pub(super) fn ballot(draft: &mut Draft<'_>, cast: &BallotCast) -> Result<Reply, Refusal> {
    let stale = || Refusal::new(RefusalCode::StaleAnswer, "this question is answered or was asked again");
    let run = draft.session.active_run().ok_or_else(stale)?;
    let Phase::Asking(round) = &run.phase else { return Err(stale()) };
    let expected =
        Seat { run: run.no, step: round.step, round: round.round, attempt: round.attempt, ballot: cast.seat.ballot };
    if !is_asked(round) {
        return Err(stale());
    }
    let known = (1..=run.limits.ballots).contains(&cast.seat.ballot) && !round.ballots.contains_key(&cast.seat.ballot);
    if cast.seat != expected || !known {
        return Err(stale());
    }
    let of = run.limits.ballots;
    let event = received(draft, cast, of);
    draft.push(event);
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    let Some(round) = asking(draft) else { return Ok(Reply::Accepted) };
    if round.ballots.len() < usize::try_from(of).unwrap_or(usize::MAX) {
        return Ok(Reply::Accepted);
    }
    if of == 1 {
        act(draft, None);
    } else {
        vote(draft, round);
    }
    Ok(Reply::Accepted)
}

fn asking(draft: &Draft<'_>) -> Option<Round> {
    match draft.session.active_run().map(|run| &run.phase) {
        Some(Phase::Asking(round)) => Some(round.clone()),
        Some(Phase::Acting(_) | Phase::Ended(_)) | None => None,
    }
}

/// The record of an answer, with secrets moved to the seal.
fn received(draft: &Draft<'_>, cast: &BallotCast, of: u32) -> Event {
    let (kept, cut_from) = redact::ballot(draft.bundle, draft.profile(), &cast.ballot);
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
        cut: draft.cut(cast.seat.ballot),
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

/// Adds up a full round and does what the profile says.
fn vote(draft: &mut Draft<'_>, round: Round) {
    let Some(consensus) = draft.profile().and_then(|profile| profile.consensus.as_ref()) else { return };
    let failed = round.ballots.values().all(|ballot| matches!(ballot.verdict, BallotVerdict::Failed { .. }));
    if failed {
        let detail = round.ballots.values().next().and_then(failure_detail);
        return draft.end_run(Ending::ProviderFailed, None, detail);
    }
    let tally = tally(round.ballots.iter().map(|(number, ballot)| (*number, &ballot.verdict)));
    let result = match (tally.winner(consensus.k), consensus.on_no_consensus, tally.strongest()) {
        (Some(ballot), _, _) => ConsensusResult::Agreed { ballot },
        (None, OnNoConsensus::Retry, _) if round.round <= consensus.retries => ConsensusResult::Retry,
        (None, OnNoConsensus::Escalate, Some(ballot)) if asks_for_calls(round.ballots.get(&ballot)) => {
            ConsensusResult::Escalated { ballot }
        }
        (None, OnNoConsensus::Retry | OnNoConsensus::Escalate | OnNoConsensus::Reject, _) => ConsensusResult::Rejected,
    };
    let largest = tally.groups.first().map_or(0, Vec::len);
    let Some((run, step)) = draft.step() else { return };
    let n = round.ballots.len();
    draft.push(Event::ConsensusDecided(ConsensusDecided {
        run,
        step,
        round: round.round,
        k: consensus.k,
        tally,
        result,
    }));
    match result {
        ConsensusResult::Agreed { .. } => act(draft, None),
        ConsensusResult::Escalated { .. } => act(draft, Some(RejectReason::NoConsensus)),
        ConsensusResult::Retry => draft.check_bounds(),
        ConsensusResult::Rejected => {
            let text = format!(
                "{n} answers were asked for and {} had to agree; the most that agreed were {largest}",
                consensus.k
            );
            end_step(draft, RejectReason::NoConsensus, BTreeMap::new(), text);
        }
    }
}

fn asks_for_calls(ballot: Option<&Ballot>) -> bool {
    matches!(ballot.map(|ballot| &ballot.verdict), Some(BallotVerdict::Proposal(Proposal::Calls(_))))
}

fn failure_detail(ballot: &Ballot) -> Option<String> {
    match &ballot.verdict {
        BallotVerdict::Failed { detail, .. } => Some(detail.clone()),
        BallotVerdict::Proposal(_) | BallotVerdict::Malformed { .. } => None,
    }
}

/// Does what the one ballot left in the round says.
fn act(draft: &mut Draft<'_>, escalate: Option<RejectReason>) {
    let Some(ballot) = asking(draft).and_then(|round| round.ballots.into_values().next()) else { return };
    match ballot.verdict {
        BallotVerdict::Failed { detail, .. } => draft.end_run(Ending::ProviderFailed, None, Some(detail)),
        BallotVerdict::Malformed { detail, .. } => end_step(draft, RejectReason::Malformed, BTreeMap::new(), detail),
        BallotVerdict::Proposal(Proposal::Done { output }) => done(draft, output),
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
fn end_step(draft: &mut Draft<'_>, reason: RejectReason, deficits: BTreeMap<Tag, Deficit>, text: String) {
    let Some((run, step)) = draft.step() else { return };
    let detail = text.clone();
    draft.push(Event::StepEnded(StepEnded { run, step, reason, deficits, content: TextContent { text } }));
    if draft.ends_run(reason) {
        draft.end_run(reason.into(), None, Some(detail));
    } else {
        draft.check_bounds();
    }
}
