//! Facts in the log, past tense. Everything that tells content stands in a field named `content`, what must vanish when
//! the call ends in `sealed`; all other fields are safe to show. What is not here: bytes, hashes, keys (the store's codec).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{
    ActorId, CallId, Capability, ClientInstance, InputId, Label, ProfileName, Sha256Digest, Tag, TenantId,
};
use crate::input::{ClassificationFailure, ClassifiedLabel, Narrowed, Reporter, Seat};
use crate::json::Json;
use crate::output::OutcomeStatus;
use crate::profile::ControlMode;
use crate::proposal::{Ballot, Usage};
use crate::reason::{Ending, RefusalCode, RejectReason};
use crate::time::Timestamp;
use crate::window::Cut;

mod admission;
mod budget;
mod call;
mod kind;
mod policy;
mod summary;
mod vote;
mod wrap_up;

pub use admission::{AdmissionAnswered, AdmissionContent, AdmissionOpened, AdmissionVerb};
pub use budget::{
    Amount, BallotBudget, Bound, BudgetReserved, BudgetSettled, Charge, LedgerAnswer, MOST, Purpose, Raise,
    RaiseContent, ReservationAnswered, RunPaused, Settlement,
};
pub use policy::{CedarRecord, FindingRecord, PolicyRecord};

pub use call::{
    ApprovalContent, ApprovalDecided, ApprovalOpened, ApprovalReminded, ApprovalVerb, CallAcknowledged, CallContent,
    CallDecided, CallDispatched, CallEnd, CallEnded, Dispatch, EndCause, EndedContent, GrantGiven,
};
pub use kind::Marks;
pub use summary::{SummaryAsked, SummaryContent, SummaryFault, SummaryReceived};
pub use wrap_up::WrapUpStarted;

pub use vote::{ConsensusDecided, ConsensusResult, VoteWidened, WidenedBy};

/// Version of the deciding behaviour. A change that would decide an old log differently gets a new number.
pub const RULES_VERSION: u32 = 4;

/// The first version whose votes may be decided early, compared in part and widened.
pub(crate) const EARLY_VOTES: u32 = 3;

/// The first version in which a `once` call that timed out is one of unknown outcome for `on_indeterminate`, too.
pub(crate) const LATE_IS_DOUBT: u32 = 4;

/// The schema engine that decided, recorded per run (ruling 11).
pub const SCHEMA_ENGINE: &str = "jsonschema 0.61";

/// An event as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Place in the log, from 1 without gaps.
    pub seq: u64,
    /// The ownership under which it was written.
    pub epoch: u64,
    /// When the input that caused it arrived.
    pub at: Timestamp,
    /// The input's id; only on the event that records the input.
    pub input_id: Option<InputId>,
    /// The fact.
    pub event: Event,
}

/// A fact in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// Input: a session was started.
    SessionOpened(Box<SessionOpened>),
    /// By the store: a node took the session over.
    OwnerChanged(OwnerChanged),
    /// Input: the classifier answered.
    ClassificationReceived(ClassificationReceived),
    /// Decision: the profile and evidence of the session.
    ProfileChosen(ProfileChosen),
    /// Input: a further message.
    MessageReceived(MessageReceived),
    /// Decision: a run began under these bounds.
    RunStarted(RunStarted),
    /// Input: a model answered.
    BallotReceived(Box<BallotReceived>),
    /// Decision: the conversation has outgrown a model, and its earlier steps are summed up first.
    SummaryAsked(SummaryAsked),
    /// Input: the summary came, or none.
    SummaryReceived(Box<SummaryReceived>),
    /// Decision: a tool asks for a larger vote than the round's; more ballots are asked for.
    VoteWidened(VoteWidened),
    /// Decision: how the ballots of a round added up.
    ConsensusDecided(ConsensusDecided),
    /// Decision: a call was allowed, rejected or escalated.
    CallDecided(Box<CallDecided>),
    /// Decision: an allowed call may be sent now.
    CallDispatched(CallDispatched),
    /// Input: a client took a call over.
    CallAcknowledged(CallAcknowledged),
    /// Input or decision (see `CallEnded::cause`): the one terminal record of a call.
    CallEnded(Box<CallEnded>),
    /// Input: an admission hook answered, or gave no usable answer.
    AdmissionAnswered(Box<AdmissionAnswered>),
    /// Input: an approver decided.
    ApprovalDecided(Box<ApprovalDecided>),
    /// Decision: an approval is still open after the time that the profile names.
    ApprovalReminded(ApprovalReminded),
    /// Decision: what a round of ballots may cost is set aside.
    BudgetReserved(BudgetReserved),
    /// Input: the tenant's ledger answered.
    ReservationAnswered(ReservationAnswered),
    /// Input: the ledger has taken what was really spent.
    BudgetSettled(BudgetSettled),
    /// Decision: the run stands at a bound that a human may raise.
    RunPaused(Box<RunPaused>),
    /// Decision: the steps are used up, and the model gets one turn to finish in.
    WrapUpStarted(WrapUpStarted),
    /// Decision: a step without calls is over (unreadable, not done yet, no consensus).
    StepEnded(StepEnded),
    /// Decision: a run is over.
    RunEnded(RunEnded),
    /// Input: a client is ready to execute.
    ClientAttached(AttachedClient),
    /// Input: somebody stops the run.
    CancelRequested(StopRequested),
    /// Input: somebody closes the session.
    CloseRequested(StopRequested),
    /// Decision: the session is closed; nothing but refusals, settlements and erasures may follow.
    SessionClosed(SessionClosed),
    /// Input: time passed, and something was due.
    Ticked(Ticked),
    /// Input: the new owner found work whose fate is unknown.
    Recovered(Ticked),
    /// An input that claims an effect was refused; capped per run.
    OutcomeRefused(OutcomeRefused),
}

/// See [`Event::SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// Owner of the session.
    pub tenant: TenantId,
    /// Who started it.
    pub by: ActorId,
    /// The caller's id.
    pub alias: Option<String>,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// The profile asked for.
    pub profile: Option<ProfileName>,
    /// The label asked for.
    pub label: Option<Label>,
    /// Profiles the credential may use.
    pub ceiling: Option<BTreeSet<ProfileName>>,
    /// What the caller's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// Narrower bounds.
    pub limits: Narrowed,
    /// Which calls a human is asked about, when the session wants more than its profile.
    #[serde(default)]
    pub control: Option<ControlMode>,
    /// Nothing is executed, whatever the profile says.
    #[serde(default)]
    pub dry_run: bool,
    /// When the classifier must have answered; absent when it is not asked.
    pub classify_by: Option<Timestamp>,
    /// Deciding behaviour.
    pub rules_version: u32,
    /// W3C trace context of the request.
    pub trace: Option<String>,
    /// Reserved (ruling 18).
    pub agent: Option<String>,
    /// Reserved (ruling 18).
    pub parent: Option<String>,
    /// Reserved (ruling 18).
    pub forked_from: Option<String>,
    /// What was said.
    pub content: OpenedContent,
}

/// Content of [`SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedContent {
    /// The first message.
    pub prompt: String,
    /// The session's own output schema.
    pub output_schema: Option<Json>,
    /// Free metadata.
    pub metadata: BTreeMap<String, String>,
}

/// See [`Event::OwnerChanged`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerChanged {
    /// The node's persistent id.
    pub node: String,
    /// Its incarnation.
    pub incarnation: u64,
}

/// See [`Event::ClassificationReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassificationReceived {
    /// Which question it answers.
    pub attempt: u32,
    /// What the provider said it spent.
    pub usage: Usage,
    /// The answer.
    pub content: ClassificationContent,
}

/// Content of [`ClassificationReceived`]: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassificationContent {
    /// The label.
    pub found: Option<ClassifiedLabel>,
    /// Why there is none.
    pub failed: Option<ClassificationFailure>,
}

/// See [`Event::ProfileChosen`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileChosen {
    /// The profile.
    pub profile: ProfileName,
    /// The label that led to it; absent when the caller named the profile, or the default rule was used.
    pub label: Option<Label>,
    /// Evidence that must be there before `done`.
    pub trace_requirements: BTreeMap<Tag, u32>,
}

/// See [`Event::MessageReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageReceived {
    /// Who speaks.
    pub by: ActorId,
    /// The words.
    pub content: TextContent,
}

/// A piece of text as content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextContent {
    /// The text.
    pub text: String,
}

/// See [`Event::RunStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Number of the run, from 1.
    pub run: u32,
    /// Deciding behaviour.
    pub rules_version: u32,
    /// The schema engine.
    pub schema_engine: String,
    /// The bounds in force.
    pub limits: Limits,
    /// When the run must be over.
    pub deadline_at: Timestamp,
}

/// The bounds of one run, resolved. The default allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Steps.
    pub max_steps: u32,
    /// Tool calls.
    pub max_tool_calls: u32,
    /// Model calls.
    pub max_model_calls: u32,
    /// Milliseconds from start to deadline.
    pub deadline_ms: u64,
    /// Calls under way at once.
    pub max_parallel_calls: u32,
    /// Steps in a row without an allowed call.
    pub max_consecutive_rejections: u32,
    /// Unreadable answers in a row.
    pub max_parse_failures: u32,
    /// Final answers in a row that do not match the output schema; absent means that only the bound of all rejections counts
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_schema_failures: Option<u32>,
    /// Proposals of one canonical call.
    pub repeat_limit: u32,
    /// Ballots with which a round begins.
    pub ballots: u32,
    /// Tokens.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Money in millionths of a dollar.
    #[serde(default)]
    pub max_cost_microusd: Option<u64>,
}

/// See [`Event::BallotReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BallotReceived {
    /// The question it answers.
    pub seat: Seat,
    /// Ballots of the round so far; a larger vote may follow.
    pub of: u32,
    /// `calls`, `done`, `malformed` or `failed`.
    pub verdict: String,
    /// The reason code of `malformed` and `failed`.
    pub reason: Option<String>,
    /// How many calls it asks for.
    pub calls: u32,
    /// What the provider said it spent.
    pub usage: Usage,
    /// The model the provider reported.
    pub model: Option<String>,
    /// What it cost in millionths of a dollar, by the model's prices; absent when the provider did not say what it spent.
    pub cost_microusd: Option<u64>,
    /// What counts against the budgets: what it cost, or what was reserved where that is unknown.
    #[serde(default)]
    pub charged: Amount,
    /// What of the conversation the model was not shown, since it did not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// The answer, redacted where a tool says so.
    pub content: BallotContent,
    /// The canonical arguments in full, by call id, where something was redacted; gone once the call has ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sealed: BTreeMap<CallId, Json>,
}

/// Content of [`BallotReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BallotContent {
    /// The answer.
    pub ballot: Ballot,
    /// Calls of which something was redacted; their full form was in `sealed`.
    pub redacted: BTreeSet<CallId>,
}

/// See [`Event::StepEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEnded {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// Why.
    pub reason: RejectReason,
    /// Missing evidence per tag, when that is the reason.
    pub deficits: BTreeMap<Tag, Deficit>,
    /// What the model is told.
    pub content: TextContent,
}

/// Evidence that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deficit {
    /// Successes so far.
    pub have: u32,
    /// Successes needed.
    pub need: u32,
}

/// See [`Event::RunEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: u32,
    /// Why; exactly one.
    pub ending: Ending,
    /// Steps taken.
    pub steps: u32,
    /// Tool calls counted.
    pub tool_calls: u32,
    /// Model calls counted, lost ones included.
    pub model_calls: u32,
    /// It ended in, or after, the turn that it got to finish in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrapped_up: bool,
    /// What evidence rules in shadow missed when the run was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<FindingRecord>,
    /// What the run leaves.
    pub content: RunContent,
}

/// Content of [`RunEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunContent {
    /// The final output, when done.
    pub output: Option<Json>,
    /// What ended it, in a sentence.
    pub detail: Option<String>,
}

/// See [`Event::ClientAttached`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedClient {
    /// The instance.
    pub instance: ClientInstance,
    /// Who.
    pub by: ActorId,
    /// What it can do.
    pub capabilities: BTreeSet<Capability>,
}

/// See [`Event::CancelRequested`] and [`Event::CloseRequested`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequested {
    /// Who.
    pub by: ActorId,
    /// Why, in their words.
    pub content: StopContent,
}

/// Content of [`StopRequested`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopContent {
    /// The reason given.
    pub reason: Option<String>,
}

/// See [`Event::SessionClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// Runs the session held.
    pub runs: u32,
}

/// See [`Event::Ticked`] and [`Event::Recovered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticked {
    /// The run that was under way; 0 before the first.
    pub run: u32,
}

/// See [`Event::OutcomeRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRefused {
    /// The run that was under way, or the last one.
    pub run: u32,
    /// The call it named.
    pub call: CallId,
    /// Why it was refused.
    pub code: RefusalCode,
    /// Who sent it.
    pub reporter: Reporter,
    /// What it claimed; the output is not kept.
    pub claimed: OutcomeStatus,
}
