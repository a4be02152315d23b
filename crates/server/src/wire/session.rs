//! A session as callers see it. What is not here: what they send (`request`), its events (`wire::event`).

use serde::Serialize;
use toolgate_core::ask::Entry;
use toolgate_core::session::{Awaited, AwaitedApproval, CallState, Phase, Run, Session, Status};
use toolgate_core::tool::Venue;
use toolgate_store::SessionRow;
use utoipa::ToSchema;

use super::event::fact::LimitsView;
use super::{RawJson, time_text};
use crate::sessions::Snapshot;

mod request;

pub use request::{AddMessage, ControlAsked, LimitsAsked, MAX_TEXT, StartSession, StopReason, checked_text, is_alias};

/// A session.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionView {
    /// Its id.
    #[schema(example = "ses_01a228f32d97767e9c20a4e838e1021d")]
    pub id: String,
    /// The caller's own id.
    pub alias: Option<String>,
    /// `running`, `waiting_approval`, `waiting_client`, `idle` or `closed`.
    pub status: &'static str,
    /// The profile; null until it is chosen.
    pub profile: Option<String>,
    /// The label that led to the profile.
    pub label: Option<String>,
    /// Digest of the pinned bundle.
    pub bundle: Option<String>,
    /// The last sequence number of its log.
    pub head_seq: u64,
    /// When it was created.
    pub created_at: String,
    /// When its last event was written.
    pub updated_at: String,
    /// The current or last run; null before the first.
    pub run: Option<RunView>,
    /// Whom it waits for.
    pub waiting: WaitingView,
    /// What may be asked of it now: `add_message`, `cancel`, `close`, `decide_approval`.
    pub allowed_actions: Vec<&'static str>,
}

/// A run.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunView {
    /// Its number, from 1.
    pub no: u32,
    /// `running` or `ended`.
    pub status: &'static str,
    /// Why it ended; exactly one code.
    pub ending: Option<&'static str>,
    /// Steps completed.
    pub steps: u32,
    /// Tool calls counted.
    pub tool_calls: u32,
    /// Model calls counted.
    pub model_calls: u32,
    /// What its models said they used.
    pub usage: RunUsageView,
    /// When it must be over.
    pub deadline_at: String,
    /// The final output, once done. Answers to writes leave it out: ask for the session.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub output: Option<RawJson>,
    /// What ended it, in a sentence. Answers to writes leave it out.
    pub detail: Option<String>,
    /// What the model said last, once the run has ended without a final output: a part of an answer may be in it. Answers
    /// to writes leave it out.
    pub last_text: Option<String>,
    /// The bounds in force.
    pub limits: LimitsView,
}

/// What the models of a run said they used, summed up over its answers, failed and outvoted ones included.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RunUsageView {
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Money in millionths of a dollar, by the models' prices.
    pub cost_microusd: u64,
    /// Answers whose provider left out a figure; what they used is in none of the sums.
    pub unreported: u32,
}

/// Whom a session waits for.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct WaitingView {
    /// Approvals that nobody has decided.
    pub approvals: Vec<WaitingApproval>,
    /// Calls that a client must execute.
    pub client_calls: Vec<WaitingCall>,
}

/// An approval that nobody has decided.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WaitingApproval {
    /// Its id.
    pub id: String,
    /// The call that waits.
    pub call_id: String,
    /// The tool.
    pub tool: Option<String>,
    /// Digest of what exactly is approved.
    pub digest: String,
    /// When it lapses.
    pub expires_at: String,
}

/// A call that a client must execute.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WaitingCall {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: Option<String>,
    /// `queued` (no client is there), `offered` or `running`.
    pub state: &'static str,
    /// The client instance it is for.
    pub client_id: Option<String>,
    /// The attempt; null while queued.
    pub attempt: Option<u32>,
    /// When its outcome is overdue; null while queued.
    pub deadline_at: Option<String>,
}

/// Status and body of the answer to a request, from the session as it is after the effect: what an idempotency key keeps.
pub fn receipt(status: u16, snapshot: &Snapshot) -> (u16, Vec<u8>) {
    // The wire's own types serialize; the fallback cannot be reached.
    let body = serde_json::to_vec(&SessionView::receipt(snapshot)).unwrap_or_else(|_| b"null".to_vec());
    (status, body)
}

impl SessionView {
    /// The session as it is.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let state = &snapshot.state;
        Self {
            id: state.id.to_string(),
            alias: snapshot.alias.clone(),
            status: state.status().code(),
            profile: state.profile.as_ref().map(ToString::to_string),
            label: state.label.as_ref().map(ToString::to_string),
            bundle: state.opened.as_ref().map(|opened| opened.bundle.to_string()),
            head_seq: state.head,
            created_at: time_text(snapshot.created_at),
            updated_at: time_text(snapshot.updated_at),
            run: state.run.as_ref().map(|run| RunView::of(run, state)),
            waiting: WaitingView::of(state),
            allowed_actions: allowed_actions(state),
        }
    }

    /// The session without anything that people, models or tools said, so that it may be kept beside the log.
    #[must_use]
    pub fn receipt(snapshot: &Snapshot) -> Self {
        let mut view = Self::of(snapshot);
        if let Some(run) = view.run.as_mut() {
            run.output = None;
            run.detail = None;
            run.last_text = None;
        }
        view
    }
}

impl RunView {
    fn of(run: &Run, session: &Session) -> Self {
        let ending = match run.phase {
            Phase::Ended(ending) => Some(ending.code()),
            Phase::Asking(_) | Phase::Acting(_) => None,
        };
        Self {
            no: run.no,
            status: if ending.is_some() { "ended" } else { "running" },
            ending,
            steps: run.steps,
            tool_calls: run.tool_calls,
            model_calls: run.model_calls,
            usage: RunUsageView {
                input_tokens: run.usage.input_tokens,
                output_tokens: run.usage.output_tokens,
                cost_microusd: run.usage.cost_microusd,
                unreported: run.usage.unreported,
            },
            deadline_at: time_text(run.deadline_at),
            output: run.output.as_ref().map(RawJson::from),
            detail: run.detail.clone(),
            last_text: if ending.is_some() && run.output.is_none() { last_text(session) } else { None },
            limits: (&run.limits).into(),
        }
    }
}

/// The last words of the model since the last message of the user; none where it said nothing.
fn last_text(session: &Session) -> Option<String> {
    let of_run = session.transcript.iter().rev().take_while(|entry| !matches!(***entry, Entry::User { .. }));
    let mut texts = of_run.filter_map(|entry| match &**entry {
        Entry::Model { text, .. } => Some(text),
        Entry::User { .. } | Entry::Result { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => None,
    });
    texts.next().filter(|text| !text.is_empty()).cloned()
}

impl WaitingApproval {
    fn of(call_id: String, tool: Option<String>, awaited: &AwaitedApproval) -> Self {
        Self {
            id: awaited.opened.id.to_string(),
            call_id,
            tool,
            digest: awaited.opened.digest.to_string(),
            expires_at: time_text(awaited.opened.expires_at),
        }
    }
}

impl WaitingView {
    fn of(session: &Session) -> Self {
        let mut waiting = Self::default();
        for call in session.calls() {
            let call_id = call.id.to_string();
            let tool = call.tool.as_ref().map(ToString::to_string);
            match &call.state {
                CallState::Waiting(Awaited::Approval(awaited)) => {
                    waiting.approvals.push(WaitingApproval::of(call_id, tool, awaited));
                }
                CallState::Queued if call.venue == Some(Venue::Client) => waiting.client_calls.push(WaitingCall {
                    call_id,
                    tool,
                    state: "queued",
                    client_id: None,
                    attempt: None,
                    deadline_at: None,
                }),
                CallState::Dispatched(open) if call.venue == Some(Venue::Client) => {
                    waiting.client_calls.push(WaitingCall {
                        call_id,
                        tool,
                        state: if open.acknowledged { "running" } else { "offered" },
                        client_id: open.instance.as_ref().map(ToString::to_string),
                        attempt: Some(open.attempt),
                        deadline_at: Some(time_text(open.deadline_at)),
                    });
                }
                CallState::Waiting(Awaited::Admission(_) | Awaited::Reservation)
                | CallState::Queued
                | CallState::Dispatched(_)
                | CallState::Ended(_) => {}
            }
        }
        if let Some(pause) = session.pause() {
            let tool = Some(toolgate_core::RAISE_TOOL.to_owned());
            waiting.approvals.push(WaitingApproval::of(pause.call.to_string(), tool, &pause.approval));
        }
        waiting
    }
}

fn allowed_actions(session: &Session) -> Vec<&'static str> {
    match session.status() {
        Status::Closed => Vec::new(),
        Status::Idle => vec!["add_message", "close"],
        Status::Running | Status::WaitingClient | Status::WaitingApproval => {
            let asked = |state: &CallState| matches!(state, CallState::Waiting(Awaited::Approval(_)));
            let approvals = session.pause().is_some() || session.calls().iter().any(|call| asked(&call.state));
            let decide = approvals.then_some("decide_approval");
            ["cancel", "close"].into_iter().chain(decide).collect()
        }
    }
}

/// A session in a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// The caller's own id.
    pub alias: Option<String>,
    /// `running`, `waiting_approval`, `waiting_client`, `idle` or `closed`.
    pub status: String,
    /// The profile; null until it is chosen.
    pub profile: Option<String>,
    /// Digest of the pinned bundle.
    pub bundle: String,
    /// The last sequence number of its log.
    pub head_seq: u64,
    /// How the last run ended; null while one is under way.
    pub ending: Option<String>,
    /// How many approvals wait.
    pub pending_approvals: u32,
    /// When it was created.
    pub created_at: String,
    /// When its last event was written.
    pub updated_at: String,
}

impl From<SessionRow> for SessionSummary {
    fn from(row: SessionRow) -> Self {
        Self {
            id: row.session.to_string(),
            alias: row.alias,
            status: row.projection.status,
            profile: row.projection.profile.as_ref().map(ToString::to_string),
            bundle: row.bundle.to_string(),
            head_seq: row.head_seq,
            ending: row.projection.ending,
            pending_approvals: row.projection.pending_approvals,
            created_at: time_text(row.created_at),
            updated_at: time_text(row.projection.updated_at),
        }
    }
}
