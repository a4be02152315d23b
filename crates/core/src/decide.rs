//! Decides one input: pure, synchronous, reads nothing but its arguments. One file per kind of input stands below; this
//! one holds the match, the draft they write on, and how runs move on and end. What is not here: the fold (`apply`).

use crate::apply::apply;
use crate::apply::budget::is_asked;
use crate::bundle::Bundle;
use crate::event::{
    CallDispatched, CallEnd, CallEnded, EndCause, EndedContent, Event, FindingRecord, LATE_IS_DOUBT, OutcomeRefused,
    RULES_VERSION, RunContent, RunEnded,
};
use crate::id::CallId;
use crate::input::{Input, OutcomeReport, Stamped};
use crate::json::Json;
use crate::output::{NotExecuted, Outcome, OutcomeStatus};
use crate::profile::{OnReject, Profile};
use crate::reason::{Ending, Refusal, RefusalCode, RejectReason};
use crate::session::{Call, CallState, Phase, Session};
use crate::time::Timestamp;
use crate::tool::ToolClass;

mod admission;
mod advance;
mod approval;
mod ballot;
pub(crate) mod budget;
mod calls;
mod client;
mod open;
mod outcome;
mod redact;
mod stop;
mod summary;
mod termination;
mod tick;
mod vote;

pub use approval::{approval_digest, revocable};

/// Times a `read` or `idempotent` call is sent at most.
pub const MAX_ATTEMPTS: u32 = 5;
/// Calls that one answer may ask for; an answer with more, or with none, is malformed.
pub const MAX_CALLS_PER_STEP: usize = 128;
/// Refused reports recorded per run; further ones, and those before the first run, are answered only.
pub const MAX_REFUSALS_RECORDED: u32 = 32;

/// What follows from an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// What is to be appended; empty means nothing changes and nothing is logged.
    pub events: Vec<Event>,
    /// What the sender is told once the events are durable.
    pub reply: Reply,
}

/// The answer to the sender of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Taken.
    Accepted,
    /// Nothing was due.
    Unchanged,
    /// The same input was taken before.
    Already {
        /// Where it stands in the log.
        seq: u64,
    },
    /// It does not fit now.
    Refused(Refusal),
}

/// Decides one input against the state and the pinned bundle.
#[must_use]
pub fn decide(session: &Session, bundle: &Bundle, stamped: &Stamped) -> Decided {
    decide_and_apply(session, bundle, stamped).0
}

/// [`decide`], and the state with the events applied: for an owner, which would else copy and apply once more.
#[must_use]
pub fn decide_and_apply(session: &Session, bundle: &Bundle, stamped: &Stamped) -> (Decided, Session) {
    decide_by(RULES_VERSION, session, bundle, stamped)
}

/// As [`decide_and_apply`], where a session that is yet to be opened follows these rules. One that is open keeps its own.
pub(crate) fn decide_by(rules: u32, session: &Session, bundle: &Bundle, stamped: &Stamped) -> (Decided, Session) {
    if let Some((_, seq)) =
        stamped.id.as_ref().and_then(|id| session.recent_inputs.iter().find(|(known, _)| known == id))
    {
        return (Decided { events: Vec::new(), reply: Reply::Already { seq: *seq } }, session.clone());
    }
    let mut draft = Draft { session: session.clone(), bundle, at: stamped.at, events: Vec::new(), new_rules: rules };
    let reply = match (&stamped.input, session.closed, session.opened.is_some()) {
        (Input::Open(open), _, _) => open::open(&mut draft, open),
        (_, _, false) => Err(Refusal::new(RefusalCode::NotOpen, "the session is not open")),
        (Input::Outcome(report), _, true) => outcome::outcome(&mut draft, report),
        (Input::Settled(keys), _, true) => budget::settled(&mut draft, keys),
        (Input::Tick, true, true) | (Input::Recovered, true, true) => Ok(Reply::Unchanged),
        (_, true, true) => Err(Refusal::new(RefusalCode::SessionClosed, "the session is closed")),
        (Input::Classified(classified), false, true) => open::classified(&mut draft, classified),
        (Input::Message(message), false, true) => open::message(&mut draft, message),
        (Input::Ballot(cast), false, true) => ballot::ballot(&mut draft, cast),
        (Input::Summary(written), false, true) => summary::summary(&mut draft, written),
        (Input::CallAck(ack), false, true) => client::acknowledge(&mut draft, ack),
        (Input::ClientAttached(client), false, true) => client::attach(&mut draft, client),
        (Input::Approval(answer), false, true) => approval::answer(&mut draft, answer),
        (Input::Admission(answer), false, true) => admission::answer(&mut draft, answer),
        (Input::Reservation(answer), false, true) => budget::reservation(&mut draft, answer),
        (Input::Tick, false, true) => tick::tick(&mut draft),
        (Input::Recovered, false, true) => tick::recovered(&mut draft),
        (Input::Cancel(stop), false, true) => stop::cancel(&mut draft, stop),
        (Input::Close(stop), false, true) => stop::close(&mut draft, stop),
    };
    let reply = reply.unwrap_or_else(Reply::Refused);
    (Decided { events: draft.events, reply }, draft.session)
}

/// A working copy of the state and the events that led to it.
#[derive(Debug, Clone)]
struct Draft<'a> {
    session: Session,
    bundle: &'a Bundle,
    at: Timestamp,
    events: Vec<Event>,
    /// The rules of a session that is yet to be opened.
    new_rules: u32,
}

impl<'a> Draft<'a> {
    fn push(&mut self, event: Event) {
        apply(&mut self.session, &event);
        self.events.push(event);
    }

    /// The rules that the session follows: those that it was opened with, for all its runs.
    fn rules(&self) -> u32 {
        self.session.opened.as_ref().map_or(self.new_rules, |opened| opened.rules_version)
    }

    /// The session's profile in the pinned bundle.
    fn profile(&self) -> Option<&'a Profile> {
        self.session.profile.as_ref().and_then(|name| self.bundle.profile(name))
    }

    /// Whether this rejection ends the run. A forged identity always does.
    fn ends_run(&self, reason: RejectReason) -> bool {
        reason == RejectReason::CrossTenantDenied
            || self.profile().is_some_and(|profile| profile.on_reject.get(&reason) == Some(&OnReject::End))
    }

    fn dispatch(&mut self, call: &CallId, dispatch: crate::event::Dispatch) {
        let Some((run, step)) = self.step() else { return };
        self.push(Event::CallDispatched(CallDispatched { call: call.clone(), run, step, dispatch }));
    }

    /// Run and step that are under way.
    fn step(&self) -> Option<(u32, u32)> {
        let run = self.session.active_run()?;
        match &run.phase {
            Phase::Asking(round) => Some((run.no, round.step)),
            Phase::Acting(step) => Some((run.no, step.no)),
            Phase::Ended(_) => None,
        }
    }

    /// Writes the one terminal record of a call.
    fn end_call(&mut self, id: &CallId, close: Close) {
        let Some(call) = self.session.call(id) else { return };
        let Some((run, step)) = self.step() else { return };
        let attempt = match &call.state {
            CallState::Dispatched(open) => open.attempt,
            CallState::Waiting(_) | CallState::Queued | CallState::Ended(_) => 0,
        };
        let output = close.outcome.as_ref().and_then(|outcome| outcome.output.as_ref());
        let event = CallEnded {
            call: id.clone(),
            run,
            step,
            attempt,
            end: close.end,
            cause: close.cause,
            reason: close.reason,
            replaced_by: close.replaced_by,
            output_bytes: output.map_or(0, crate::output::Output::size),
            content: EndedContent { outcome: close.outcome, detail: close.detail },
        };
        self.push(Event::CallEnded(Box::new(event)));
    }

    /// Ends the run: first every open call gets its terminal record (ruling 13), then the ending is written.
    fn end_run(&mut self, ending: Ending, output: Option<Json>, detail: Option<String>) {
        self.close_run(ending, Vec::new(), RunContent { output, detail });
    }

    /// `shadow` is what evidence rules in shadow missed.
    fn close_run(&mut self, ending: Ending, shadow: Vec<FindingRecord>, content: RunContent) {
        let open: Vec<Call> =
            self.session.calls().iter().filter(|call| !matches!(call.state, CallState::Ended(_))).cloned().collect();
        for call in open {
            self.end_call(&call.id, Close::because(&call, ending));
        }
        let run = self.session.run.as_ref();
        // Models that are being asked when the run ends count: they may have answered, and cost.
        let in_flight = run.map_or(0, |run| match &run.phase {
            Phase::Asking(round) if is_asked(round) => u32::try_from(round.reserved.len()).unwrap_or(u32::MAX),
            Phase::Asking(_) | Phase::Acting(_) | Phase::Ended(_) => 0,
        });
        let event = RunEnded {
            run: run.map_or(1, |run| run.no),
            ending,
            steps: run.map_or(0, |run| run.steps + u32::from(ending == Ending::Done)),
            tool_calls: run.map_or(0, |run| run.tool_calls),
            model_calls: run.map_or(0, |run| run.model_calls.saturating_add(in_flight)),
            wrapped_up: run.is_some_and(|run| run.wrapping_up),
            shadow,
            content,
        };
        self.push(Event::RunEnded(event));
    }

    /// Whether a call that may or may not have happened stops the run.
    fn stops_in_doubt(&self, call: &Call, status: OutcomeStatus) -> bool {
        let late = status == OutcomeStatus::TimedOut && self.rules() >= LATE_IS_DOUBT;
        (late || status == OutcomeStatus::Indeterminate)
            && call.class == Some(ToolClass::Once)
            && self.profile().is_some_and(|profile| profile.on_indeterminate == OnReject::End)
    }

    /// Refuses a report; records that it was made, up to a cap.
    fn refuse_report(&mut self, report: &OutcomeReport, refusal: Refusal) -> Refusal {
        let run = self.session.run.as_ref().filter(|run| run.refused_reports < MAX_REFUSALS_RECORDED);
        if let Some(run) = run.map(|run| run.no) {
            self.push(Event::OutcomeRefused(OutcomeRefused {
                run,
                call: report.call.clone(),
                code: refusal.code,
                reporter: report.reporter.clone(),
                claimed: report.outcome.status,
            }));
        }
        refusal
    }
}

/// How a call is to be closed.
struct Close {
    end: CallEnd,
    cause: EndCause,
    outcome: Option<Outcome>,
    detail: Option<String>,
    /// Why a call that was allowed or escalated is not executed.
    reason: Option<RejectReason>,
    replaced_by: Option<CallId>,
}

impl Close {
    fn not_executed(why: NotExecuted, cause: EndCause, detail: &str) -> Self {
        Self {
            end: CallEnd::NotExecuted(why),
            cause,
            outcome: None,
            detail: Some(detail.to_owned()),
            reason: None,
            replaced_by: None,
        }
    }

    /// As `not_executed`; the detail begins with the reason's code.
    fn refused(why: NotExecuted, cause: EndCause, reason: RejectReason, detail: &str) -> Self {
        Self { reason: Some(reason), ..Self::not_executed(why, cause, detail) }
    }

    fn unknown(status: OutcomeStatus, cause: EndCause, detail: &str) -> Self {
        Self {
            end: CallEnd::Outcome(status),
            cause,
            outcome: Some(Outcome::bare(status, detail)),
            detail: Some(detail.to_owned()),
            reason: None,
            replaced_by: None,
        }
    }

    /// What the end of the run makes of an open call: sent means unknown, not sent means not executed.
    fn because(call: &Call, ending: Ending) -> Self {
        let sent = matches!(call.state, CallState::Dispatched(_));
        match (sent, ending) {
            (true, Ending::DeadlineExceeded) => Self::unknown(
                OutcomeStatus::TimedOut,
                EndCause::Timeout,
                "the run's deadline passed before an outcome came; it may have happened",
            ),
            (true, Ending::Cancelled) => Self::unknown(
                OutcomeStatus::Indeterminate,
                EndCause::Cancelled,
                "the run was cancelled while it was under way; it may have happened",
            ),
            (true, _) => Self::unknown(
                OutcomeStatus::Indeterminate,
                EndCause::RunEnded,
                "the run ended while it was under way; it may have happened",
            ),
            (false, Ending::Cancelled) => Self::not_executed(
                NotExecuted::Cancelled,
                EndCause::Cancelled,
                "the run was cancelled before it was sent",
            ),
            (false, _) => {
                Self::not_executed(NotExecuted::RunEnded, EndCause::RunEnded, "the run ended before it was sent")
            }
        }
    }
}
