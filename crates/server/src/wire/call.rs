//! Calls of a session as callers see them, folded from its events. What is not here: the events (`wire::event`).

use serde::Serialize;
use toolgate_core::event::{
    AdmissionVerb, ApprovalVerb, CallDecided, CallEnded, Event, LedgerAnswer, Purpose, Recorded,
};
use toolgate_core::pipeline::Decision;
use utoipa::ToSchema;

use super::event::fact::{ApprovalOpenedView, OutputView};
use super::event::{class_word, venue_word};
use super::{RawJson, time_text};

/// A call, from its decision to its one terminal record.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallView {
    /// Its id.
    pub call_id: String,
    /// Where its decision stands in the log.
    pub seq: u64,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// Place within the step, from 0.
    pub index: u32,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// Who executes: `server` or `client`; null for unknown tools.
    pub venue: Option<&'static str>,
    /// `read`, `idempotent` or `once`; null for unknown tools.
    pub class: Option<&'static str>,
    /// `waiting_admission` (a hook is asked), `waiting_approval`, `waiting_budget` (the tenant's ledger is asked), `queued`,
    /// `dispatched`, `acknowledged` or `ended`.
    pub state: &'static str,
    /// `allow`, `escalate` or `reject`.
    pub decision: &'static str,
    /// The reason code, unless allowed.
    pub reason: Option<&'static str>,
    /// The attempt that was dispatched last; 0 before.
    pub attempt: u32,
    /// Where that dispatch stands in the log; reports repeat it.
    pub fence: Option<u64>,
    /// When the outcome is overdue.
    pub deadline_at: Option<String>,
    /// The client instance it was dispatched to.
    pub client_id: Option<String>,
    /// The canonical arguments, redacted where the tool says so; null when unreadable.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Hash of the full canonical arguments.
    pub args_hash: Option<String>,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// What a human had to decide.
    pub approval: Option<ApprovalOpenedView>,
    /// The call whose approver wrote these arguments instead.
    pub edited_from: Option<String>,
    /// The edited call that takes its place.
    pub replaced_by: Option<String>,
    /// How it ended: an outcome, or why it was not executed.
    pub status: Option<&'static str>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// What the tool returned.
    pub output: Option<OutputView>,
    /// What was wrong, in a sentence.
    pub detail: Option<String>,
    /// Whether the tenant's ledger must grant it before it may be sent.
    pub charged: bool,
}

/// What a call that nothing else holds back does next.
const fn ready(charged: bool) -> &'static str {
    if charged { "waiting_budget" } else { "queued" }
}

/// A page of calls, in the order of their decisions.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallPage {
    /// The calls.
    pub items: Vec<CallView>,
    /// Give it as `after_seq` to get the next page; null at the end.
    pub next_after_seq: Option<u64>,
}

impl CallView {
    fn decided(recorded: &Recorded, e: &CallDecided) -> Self {
        let rejected = e.decision == Decision::Reject;
        let state = match (e.decision, &e.dispatch) {
            (Decision::Reject, _) => "ended",
            (Decision::Allow | Decision::Escalate, _) if e.admission.is_some() => "waiting_admission",
            (Decision::Escalate, _) => "waiting_approval",
            (Decision::Allow, None) => ready(!e.content.charges.is_empty()),
            (Decision::Allow, Some(_)) => "dispatched",
        };
        let dispatch = e.dispatch.as_ref();
        Self {
            call_id: e.call.to_string(),
            seq: recorded.seq,
            run: e.run,
            step: e.step,
            index: e.index,
            tool: e.content.tool.clone(),
            venue: e.venue.map(venue_word),
            class: e.class.map(class_word),
            state,
            decision: e.decision.code(),
            reason: e.reason.map(toolgate_core::reason::RejectReason::code),
            attempt: dispatch.map_or(0, |dispatch| dispatch.attempt),
            fence: dispatch.map(|_| recorded.seq),
            deadline_at: dispatch.map(|dispatch| time_text(dispatch.deadline_at)),
            client_id: dispatch.and_then(|dispatch| dispatch.instance.as_ref()).map(ToString::to_string),
            args: e.content.args.as_ref().map(RawJson::from),
            args_hash: e.content.args_hash.as_ref().map(ToString::to_string),
            redacted: e.content.redacted,
            approval: e.approval.as_ref().map(ApprovalOpenedView::from),
            edited_from: e.edited_from.as_ref().map(ToString::to_string),
            replaced_by: None,
            status: rejected.then_some("rejected"),
            ended_at: rejected.then(|| time_text(recorded.at)),
            output: None,
            detail: e.content.detail.clone(),
            charged: !e.content.charges.is_empty(),
        }
    }

    fn end(&mut self, recorded: &Recorded, e: &CallEnded) {
        let outcome = e.content.outcome.as_ref();
        self.state = "ended";
        self.status = Some(e.end.code());
        self.ended_at = Some(time_text(recorded.at));
        self.replaced_by = e.replaced_by.as_ref().map(ToString::to_string);
        self.output = outcome.and_then(|outcome| outcome.output.as_ref()).map(OutputView::from);
        self.detail = outcome.and_then(|outcome| outcome.detail.clone()).or_else(|| e.content.detail.clone());
    }
}

/// Folds events into the first calls after a place in the log.
#[derive(Debug)]
pub struct CallFold {
    calls: Vec<CallView>,
    limit: usize,
    more: bool,
}

impl CallFold {
    /// Keeps at most `limit` calls.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { calls: Vec::new(), limit, more: false }
    }

    /// Takes the next event.
    pub fn take(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::CallDecided(_) if self.calls.len() >= self.limit => self.more = true,
            Event::CallDecided(e) => self.calls.push(CallView::decided(recorded, e)),
            Event::CallDispatched(e) => {
                if let Some(call) = self.find(e.call.as_str()) {
                    call.state = "dispatched";
                    call.attempt = e.dispatch.attempt;
                    call.fence = Some(recorded.seq);
                    call.deadline_at = Some(time_text(e.dispatch.deadline_at));
                    call.client_id = e.dispatch.instance.as_ref().map(ToString::to_string);
                }
            }
            Event::CallAcknowledged(e) => {
                if let Some(call) = self.find(e.call.as_str()) {
                    call.state = "acknowledged";
                }
            }
            Event::ApprovalDecided(e) => {
                let settles = e.decision == ApprovalVerb::Approve && e.missing == 0;
                if let Some(call) = self.find(e.call.as_str()).filter(|_| settles) {
                    call.state = ready(call.charged);
                }
            }
            Event::AdmissionAnswered(e) => {
                let passed = e.verdict == AdmissionVerb::Allow && e.next_by.is_none();
                if let Some(call) = self.find(e.call.as_str()).filter(|_| passed) {
                    call.approval = e.approval.as_ref().map(ApprovalOpenedView::from);
                    call.state = if e.approval.is_some() { "waiting_approval" } else { ready(call.charged) };
                }
            }
            Event::ReservationAnswered(e) => {
                if let (Purpose::Call { call }, LedgerAnswer::Granted) = (&e.purpose, &e.answer)
                    && let Some(call) = self.find(call.as_str())
                {
                    call.state = "queued";
                }
            }
            Event::CallEnded(e) => {
                if let Some(call) = self.find(e.call.as_str()) {
                    call.end(recorded, e);
                }
            }
            _ => {}
        }
    }

    fn find(&mut self, id: &str) -> Option<&mut CallView> {
        self.calls.iter_mut().rev().find(|call| call.call_id == id)
    }

    /// The page.
    #[must_use]
    pub fn page(self) -> CallPage {
        let next_after_seq = self.calls.last().map(|call| call.seq).filter(|_| self.more);
        CallPage { items: self.calls, next_after_seq }
    }
}
