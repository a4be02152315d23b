//! The state of a session, folded from its log. What is not here: how it changes (`apply`), what follows from it
//! (`decide`, `outstanding`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ask::Entry;
use crate::event::{Amount, ApprovalVerb, Bound, CallEnd, Settlement};
use crate::id::{
    ActorId, ApprovalId, CallId, Capability, ClientInstance, InputId, Label, ProfileName, SessionId, Sha256Digest, Tag,
    TenantId, ToolId,
};
use crate::input::Narrowed;
use crate::json::Json;
use crate::output::Outcome;
use crate::profile::ControlMode;
use crate::reason::RejectReason;
use crate::time::Timestamp;
use crate::tool::Venue;

mod call;
mod run;

pub use call::{Awaited, AwaitedAdmission, AwaitedApproval, Call, CallState, DispatchedCall, EndedState};
pub use run::{Pause, Phase, Round, Run, RunUsage, Step, Summing};

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
    /// Whose client that is: an instance is known by its name and its actor together.
    pub executor_by: Option<ActorId>,
    /// What the session's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// The current or last run.
    pub run: Option<Run>,
    /// The conversation, oldest first; shared, since `decide` works on a copy of the state.
    pub transcript: Vec<Arc<Entry>>,
    /// Model rounds that have ended, over all runs.
    pub rounds: u32,
    /// Questions for a summary that were answered, over all runs.
    pub summaries: u32,
    /// Successful calls by tool and caller key.
    pub idempotency: Arc<BTreeMap<ToolId, BTreeMap<String, KeyedSuccess>>>,
    /// The latest input ids and where they were recorded, oldest first.
    pub recent_inputs: VecDeque<(InputId, u64)>,
    /// The latest ended calls, oldest first.
    pub recent_calls: VecDeque<EndedCall>,
    /// Calls of completed steps over all runs, oldest first: what rules over earlier calls read.
    pub history: Vec<Arc<PastCall>>,
    /// Whoever started it or spoke in it.
    pub speakers: BTreeSet<ActorId>,
    /// What was spent over all runs.
    pub spent: Spent,
    /// Bounds over all runs that a human has raised, with their new values.
    pub raised: BTreeMap<Bound, u64>,
    /// Approvals that cover further calls, oldest first.
    pub grants: Vec<GivenGrant>,
    /// The latest answers to approvals, oldest first.
    pub answers: VecDeque<GivenAnswer>,
    /// Reservations whose real amount the tenant's ledger has yet to learn, oldest first.
    pub unsettled: Vec<Settlement>,
    /// Closed for good.
    pub closed: bool,
}

/// What was spent, reservations that were lost included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Model calls.
    pub model_calls: u64,
    /// Tool calls allowed or waiting, not yet refused.
    pub tool_calls: u64,
    /// Tokens and money.
    pub amount: Amount,
}

/// An approval that covers further calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenGrant {
    /// The approval that gave it.
    pub approval: ApprovalId,
    /// The call that was approved.
    pub call: CallId,
    /// What it covers.
    pub grant: toolgate_policy::grant::Grant,
}

/// An answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenAnswer {
    /// The approval.
    pub approval: ApprovalId,
    /// The call.
    pub call: CallId,
    /// Who answered.
    pub by: ActorId,
    /// The answer.
    pub verb: ApprovalVerb,
    /// Digest of what was answered.
    pub digest: Sha256Digest,
    /// Whether the answer settled it.
    pub settled: bool,
    /// Where it stands in the log.
    pub seq: u64,
}

/// A call of a completed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastCall {
    /// The run.
    pub run: u32,
    /// The call.
    pub call: CallId,
    /// The tool, if it exists.
    pub tool_id: Option<ToolId>,
    /// Why it was rejected or escalated.
    pub reason: Option<RejectReason>,
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
    /// Another call took its place.
    pub replaced: bool,
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
    /// More control than the profile's, if the session wants it.
    pub control: Option<ControlMode>,
    /// Nothing is executed, whatever the profile says.
    pub dry_run: bool,
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
            executor_by: None,
            capabilities: BTreeSet::new(),
            run: None,
            transcript: Vec::new(),
            rounds: 0,
            summaries: 0,
            idempotency: Arc::default(),
            recent_inputs: VecDeque::new(),
            recent_calls: VecDeque::new(),
            history: Vec::new(),
            speakers: BTreeSet::new(),
            spent: Spent::default(),
            raised: BTreeMap::new(),
            grants: Vec::new(),
            answers: VecDeque::new(),
            unsettled: Vec::new(),
            closed: false,
        }
    }

    /// The run that is under way.
    #[must_use]
    pub fn active_run(&self) -> Option<&Run> {
        self.run.as_ref().filter(|run| !matches!(run.phase, Phase::Ended(_)))
    }

    /// The bound at which the run stands, if it waits for a human to raise it.
    #[must_use]
    pub fn pause(&self) -> Option<&Pause> {
        match self.active_run().map(|run| &run.phase) {
            Some(Phase::Asking(round)) => round.paused.as_deref(),
            Some(Phase::Acting(_) | Phase::Ended(_)) | None => None,
        }
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
        let step = match &run.phase {
            Phase::Asking(round) if round.paused.is_some() => return Status::WaitingApproval,
            Phase::Acting(step) => step,
            Phase::Asking(_) | Phase::Ended(_) => return Status::Running,
        };
        let open = || step.calls.iter().filter(|call| !matches!(call.state, CallState::Ended(_)));
        let runs_here =
            open().any(|call| call.venue == Some(Venue::Server) && matches!(call.state, CallState::Dispatched(_)));
        let asks_here =
            open().any(|call| matches!(call.state, CallState::Waiting(Awaited::Admission(_) | Awaited::Reservation)));
        if runs_here || asks_here {
            Status::Running
        } else if open().any(|call| matches!(call.state, CallState::Waiting(Awaited::Approval(_)))) {
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
