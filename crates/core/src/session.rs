//! The state of a session, folded from its log. What is not here: how it changes (`apply`), what follows from it
//! (`decide`, `outstanding`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ask::Entry;
use crate::event::{ApprovalOpened, CallEnd, Limits};
use crate::id::{
    ActorId, ApprovalId, CallId, Capability, ClientInstance, InputId, Label, ProfileName, SessionId, Sha256Digest, Tag,
    TenantId, ToolId,
};
use crate::input::Narrowed;
use crate::json::Json;
use crate::output::Outcome;
use crate::proposal::Ballot;
use crate::reason::{Ending, RejectReason};
use crate::time::Timestamp;
use crate::tool::{ToolClass, Venue};

/// Input ids remembered in the state; older ones are caught by the store (ruling 16).
pub(crate) const REMEMBERED_INPUTS: usize = 256;
/// Ended calls remembered, so that a late or repeated report is told apart from a foreign one.
pub(crate) const REMEMBERED_CALLS: usize = 256;

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its key.
    pub id: SessionId,
    /// Events folded so far; the last sequence number.
    pub head: u64,
    /// Current ownership.
    pub epoch: u64,
    /// What it was opened with; absent before the first event.
    pub opened: Option<Opened>,
    /// The chosen profile; absent while classifying.
    pub profile: Option<ProfileName>,
    /// The label that led to it.
    pub label: Option<Label>,
    /// Evidence needed before `done`.
    pub trace_requirements: BTreeMap<Tag, u32>,
    /// The classifier's question that is open, by attempt.
    pub classifying: Option<u32>,
    /// When the classifier must have answered; meaningless once it has.
    pub classify_by: Option<Timestamp>,
    /// The client that executes, if one has come.
    pub executor: Option<ClientInstance>,
    /// What the session's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// The current or last run.
    pub run: Option<Run>,
    /// The conversation, oldest first; shared, since `decide` works on a copy of the state.
    pub transcript: Vec<Arc<Entry>>,
    /// Model rounds that have ended, over all runs.
    pub rounds: u32,
    /// Successful calls by tool and caller key.
    pub idempotency: Arc<BTreeMap<ToolId, BTreeMap<String, KeyedSuccess>>>,
    /// The latest input ids and where they were recorded, oldest first.
    pub recent_inputs: VecDeque<(InputId, u64)>,
    /// The latest ended calls, oldest first.
    pub recent_calls: VecDeque<EndedCall>,
    /// Calls of completed steps over all runs, oldest first: what rules over earlier calls read.
    pub history: Vec<Arc<PastCall>>,
    /// Closed for good.
    pub closed: bool,
}

/// A call of a completed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastCall {
    /// The run.
    pub run: u32,
    /// The call.
    pub call: CallId,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// Its canonical key; absent if the arguments are unreadable.
    pub key: Option<Sha256Digest>,
    /// The arguments, redacted where the tool says so; absent if unreadable.
    pub args: Option<serde_json::Value>,
    /// How it ended.
    pub end: CallEnd,
    /// It was answered with an earlier outcome.
    pub replayed: bool,
    /// What came back, as the model was shown it.
    pub result: String,
    /// When it was decided.
    pub decided_at: Timestamp,
}

/// What a session was opened with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Owner.
    pub tenant: TenantId,
    /// Who started it.
    pub by: ActorId,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// Profiles the credential may use.
    pub ceiling: Option<BTreeSet<ProfileName>>,
    /// Narrower bounds.
    pub limits: Narrowed,
    /// Its own output schema.
    pub output_schema: Option<Json>,
    /// The first message.
    pub prompt: String,
    /// Deciding behaviour.
    pub rules_version: u32,
}

/// A success that a caller's key stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedSuccess {
    /// Hash of the arguments without the key's change: all of them.
    pub args_hash: Sha256Digest,
    /// The call that succeeded.
    pub call: CallId,
    /// What it returned.
    pub outcome: Outcome,
}

/// An ended call, remembered for late reports and answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCall {
    /// The call.
    pub call: CallId,
    /// The tool, if it exists.
    pub tool: Option<ToolId>,
    /// The approval it waited for, if it did.
    pub approval: Option<ApprovalId>,
    /// Where its terminal record stands.
    pub seq: u64,
    /// Its last attempt.
    pub attempt: u32,
    /// How it ended.
    pub end: CallEnd,
    /// Digest of the reported outcome, so that the same report again is told apart from another.
    pub outcome_digest: Option<Sha256Digest>,
    /// Whether somebody reported it, or Toolgate closed it.
    pub reported: bool,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its number, from 1.
    pub no: u32,
    /// The bounds.
    pub limits: Limits,
    /// When it must be over.
    pub deadline_at: Timestamp,
    /// What it is doing.
    pub phase: Phase,
    /// Steps completed.
    pub steps: u32,
    /// Model calls counted, lost ones included.
    pub model_calls: u32,
    /// Tool calls allowed or waiting for approval, not yet refused.
    pub tool_calls: u32,
    /// Steps in a row in which nothing was allowed.
    pub rejections: u32,
    /// Unreadable answers in a row.
    pub parse_failures: u32,
    /// How often each canonical call was proposed.
    pub repeats: BTreeMap<Sha256Digest, u32>,
    /// Successes per tag.
    pub evidence: BTreeMap<Tag, u32>,
    /// Refused reports recorded.
    pub refused_reports: u32,
    /// The final output, once the run is done.
    pub output: Option<Json>,
    /// What ended the run, in a sentence.
    pub detail: Option<String>,
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for model answers.
    Asking(Round),
    /// Executing the calls of a step.
    Acting(Step),
    /// Over.
    Ended(Ending),
}

/// A round of ballots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The step.
    pub step: u32,
    /// 1, and one more for each retry without consensus.
    pub round: u32,
    /// 1, and one more after each take-over.
    pub attempt: u32,
    /// Answers so far, by number.
    pub ballots: BTreeMap<u32, Ballot>,
}

/// A step whose calls have been decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 1.
    pub no: u32,
    /// How many calls the model asked for; edited ones come on top.
    pub proposed: u32,
    /// Its calls in order.
    pub calls: Vec<Call>,
    /// Whether anything was allowed, escalated or answered from the record.
    pub any_accepted: bool,
    /// Whether arguments of some call could not be read.
    pub any_malformed: bool,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// Its place in the step, from 0.
    pub index: u32,
    /// The tool, if it exists.
    pub tool: Option<ToolId>,
    /// The name as the model wrote it.
    pub tool_text: String,
    /// The arguments in full, until the call has ended; then gone if redacted.
    pub args: Option<Json>,
    /// The arguments as the log shows them, redacted where the tool says so.
    pub shown_args: Option<Json>,
    /// Hash of the full arguments.
    pub args_hash: Option<Sha256Digest>,
    /// Why the call was rejected or escalated.
    pub reason: Option<RejectReason>,
    /// Who executes.
    pub venue: Option<Venue>,
    /// What may happen after an unknown outcome.
    pub class: Option<ToolClass>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<Tag>,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// What the model is told although the call was allowed: it begins to go round in circles.
    pub warning: Option<String>,
    /// The call it was edited from.
    pub edited_from: Option<CallId>,
    /// The approval it waits or waited for.
    pub approval: Option<ApprovalId>,
    /// Where it stands.
    pub state: CallState,
}

/// Where a call stands. Dispatch, execution and success are different things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Its decision waits for an answer from outside (ruling 3). Approval is the only such answer so far.
    Waiting(ApprovalOpened),
    /// Allowed; its turn has not come, or no client is there.
    Queued,
    /// Sent, or about to be.
    Dispatched(DispatchedCall),
    /// Over.
    Ended(EndedState),
}

/// A dispatched call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchedCall {
    /// The attempt.
    pub attempt: u32,
    /// The sequence number of the dispatch; reports repeat it.
    pub fence: u64,
    /// When the outcome is overdue.
    pub deadline_at: Timestamp,
    /// The client instance it is for.
    pub instance: Option<ClientInstance>,
    /// A client said that it has started.
    pub acknowledged: bool,
}

/// An ended call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedState {
    /// How.
    pub end: CallEnd,
    /// What the model is told besides the output.
    pub reason: Option<String>,
    /// What came back, as the model is shown it.
    pub shown: String,
    /// The edited call that takes its place.
    pub replaced_by: Option<CallId>,
    /// It is answered with the outcome of an earlier equal call.
    pub replayed: bool,
}

impl Session {
    /// A session before its first event.
    #[must_use]
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            head: 0,
            epoch: 0,
            opened: None,
            profile: None,
            label: None,
            trace_requirements: BTreeMap::new(),
            classifying: None,
            classify_by: None,
            executor: None,
            capabilities: BTreeSet::new(),
            run: None,
            transcript: Vec::new(),
            rounds: 0,
            idempotency: Arc::default(),
            recent_inputs: VecDeque::new(),
            recent_calls: VecDeque::new(),
            history: Vec::new(),
            closed: false,
        }
    }

    /// The run that is under way.
    #[must_use]
    pub fn active_run(&self) -> Option<&Run> {
        self.run.as_ref().filter(|run| !matches!(run.phase, Phase::Ended(_)))
    }

    /// The calls of the current step.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Acting(step)) => &step.calls,
            Some(Phase::Asking(_) | Phase::Ended(_)) | None => &[],
        }
    }

    /// A call of the current step.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls().iter().find(|call| call.id == *id)
    }

    /// One word for lists and clients.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.closed {
            return Status::Closed;
        }
        if self.opened.is_none() || self.classifying.is_some() {
            return Status::Running;
        }
        let Some(run) = self.active_run() else { return Status::Idle };
        let Phase::Acting(step) = &run.phase else { return Status::Running };
        let open = || step.calls.iter().filter(|call| !matches!(call.state, CallState::Ended(_)));
        let runs_here =
            open().any(|call| call.venue == Some(Venue::Server) && matches!(call.state, CallState::Dispatched(_)));
        if runs_here {
            Status::Running
        } else if open().any(|call| matches!(call.state, CallState::Waiting(_))) {
            Status::WaitingApproval
        } else {
            Status::WaitingClient
        }
    }
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A model or a server tool is at work.
    Running,
    /// A human must decide before it goes on.
    WaitingApproval,
    /// A client must execute or come back.
    WaitingClient,
    /// No run is under way; the next message starts one.
    Idle,
    /// Closed for good.
    Closed,
}

impl Status {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::WaitingApproval => "waiting_approval",
            Self::WaitingClient => "waiting_client",
            Self::Idle => "idle",
            Self::Closed => "closed",
        }
    }
}
