//! Reports about calls: which one is taken, which is refused and why.

use super::{Close, Draft, Reply};
use crate::apply::outcome_digest;
use crate::event::{CallEnd, EndCause};
use crate::id::ToolId;
use crate::input::{OutcomeReport, Reporter};
use crate::output::{Body, Outcome, OutcomeStatus};
use crate::reason::{Ending, Refusal, RefusalCode};
use crate::schema::{Schema, describe};
use crate::session::{Call, CallState, DispatchedCall};
use crate::tool::Venue;

pub(super) fn outcome(draft: &mut Draft<'_>, report: &OutcomeReport) -> Result<Reply, Refusal> {
    if let Some(seq) = repeated(draft, report) {
        return Ok(Reply::Already { seq });
    }
    let call = match open_call(draft, report) {
        Ok(call) => call,
        Err(refusal) => return Err(draft.refuse_report(report, refusal)),
    };
    let outcome = checked(draft, call.tool.as_ref(), report.outcome.clone());
    let status = outcome.status;
    let detail = doubt(status);
    draft.end_call(
        &call.id,
        Close {
            end: CallEnd::Outcome(status),
            cause: EndCause::Reported(report.reporter.clone()),
            outcome: Some(outcome),
            detail,
            reason: None,
            replaced_by: None,
        },
    );
    if draft.stops_in_doubt(&call, status) {
        draft.end_run(
            Ending::IndeterminateOutcome,
            None,
            Some(format!("whether `{}` happened is unknown", call.tool_text)),
        );
    } else {
        draft.advance();
    }
    Ok(Reply::Accepted)
}

/// What the model is told when the effect may have happened.
pub(super) fn doubt(status: OutcomeStatus) -> Option<String> {
    let unknown = matches!(status, OutcomeStatus::TimedOut | OutcomeStatus::Indeterminate);
    unknown.then(|| "no outcome is known; it may have happened".to_owned())
}

/// The place of the same report, if it was taken before.
fn repeated(draft: &Draft<'_>, report: &OutcomeReport) -> Option<u64> {
    let ended = draft.session.recent_calls.iter().rev().find(|ended| ended.call == report.call)?;
    if !ended.reported || ended.attempt != report.attempt {
        return None;
    }
    let outcome = checked(draft, ended.tool.as_ref(), report.outcome.clone());
    (ended.outcome_digest == Some(outcome_digest(&outcome))).then_some(ended.seq)
}

/// The dispatched call that the report fits, or why it fits none.
fn open_call(draft: &Draft<'_>, report: &OutcomeReport) -> Result<Call, Refusal> {
    if let Some(ended) = draft.session.recent_calls.iter().rev().find(|ended| ended.call == report.call) {
        return Err(match (ended.reported, ended.end) {
            (true, _) => Refusal::new(RefusalCode::OutcomeConflict, "the call has another outcome already"),
            (false, CallEnd::Outcome(status)) => {
                let detail = format!("the call was closed as `{}` before this arrived", status.code());
                Refusal::new(RefusalCode::LateOutcome, detail)
            }
            (false, CallEnd::NotExecuted(why)) => {
                let detail = format!("the call was closed as `{}` and was never to be executed", why.code());
                Refusal::new(RefusalCode::CallNotDispatched, detail)
            }
        });
    }
    let Some(call) = draft.session.call(&report.call) else {
        return Err(Refusal::new(RefusalCode::UnknownCall, "the session has no such call"));
    };
    let CallState::Dispatched(open) = &call.state else {
        return Err(Refusal::new(RefusalCode::CallNotDispatched, "the call has not been sent to anybody"));
    };
    if open.attempt != report.attempt {
        let detail = format!("attempt {} is open, not {}", open.attempt, report.attempt);
        return Err(Refusal::new(RefusalCode::StaleAttempt, detail));
    }
    fits(call, open, &report.reporter)?;
    Ok(call.clone())
}

fn fits(call: &Call, open: &DispatchedCall, reporter: &Reporter) -> Result<(), Refusal> {
    match (reporter, call.venue) {
        (Reporter::Server, Some(Venue::Server)) => Ok(()),
        (Reporter::Client { instance, fence, args_hash, .. }, Some(Venue::Client)) => {
            if open.instance.as_ref() != Some(instance) {
                let detail = "the call was sent to another client instance";
                return Err(Refusal::new(RefusalCode::CallNotDispatched, detail));
            }
            if open.fence != *fence {
                return Err(Refusal::new(RefusalCode::StaleAttempt, format!("the fence is {}", open.fence)));
            }
            if call.args_hash != Some(*args_hash) {
                return Err(Refusal::new(RefusalCode::ArgsHashMismatch, "other arguments were approved"));
            }
            Ok(())
        }
        (Reporter::Server | Reporter::Client { .. }, _) => {
            Err(Refusal::new(RefusalCode::CallNotDispatched, "the call belongs to the other venue"))
        }
    }
}

/// A success whose result does not match the tool's schema is a failure that says so.
fn checked(draft: &Draft<'_>, tool: Option<&ToolId>, outcome: Outcome) -> Outcome {
    let schema = tool.and_then(|id| draft.bundle.tool(id)).and_then(|tool| tool.result.as_ref());
    let Some(schema) = schema.filter(|_| outcome.status == OutcomeStatus::Ok) else { return outcome };
    match mismatch(schema, &outcome) {
        None => outcome,
        Some(detail) => Outcome { status: OutcomeStatus::Failed, detail: Some(detail), ..outcome },
    }
}

fn mismatch(schema: &Schema, outcome: &Outcome) -> Option<String> {
    let complaint = |why: &str| Some(format!("reported as ok, but the result {why}"));
    let Some(output) = &outcome.output else { return complaint("is missing") };
    let Body::Text(text) = &output.body else { return complaint("is too large or no text, so it cannot be checked") };
    let Ok(value) = crate::json::Json::parse(text) else { return complaint("is not JSON") };
    let mismatches = schema.mismatches(&value.value(), false);
    if mismatches.is_empty() {
        return None;
    }
    complaint(&format!("does not match the tool's schema: {}", describe(&mismatches)))
}
