//! The forms of each kind of event on the wire. What is not here: what the kinds mean (`toolgate_core::event`, in whose
//! order they stand) and how the forms are filled (`make`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use crate::wire::RawJson;

mod admission;
mod budget;
mod call;
mod run;
mod summary;
mod vote;

pub use admission::{AdmissionAnswered, AdmissionContent, AdmissionOpenedView};
pub use budget::{
    AmountView, BallotBudgetView, BudgetReserved, BudgetSettled, ChargeView, RaiseContent, RaiseView,
    ReservationAnswered, RunPaused,
};
pub use call::{
    ApprovalContent, ApprovalDecided, ApprovalOpenedView, ApprovalReminded, BlobView, CallAcknowledged, CallContent,
    CallDecided, CallEnded, CedarView, DispatchView, EndedContent, FindingView, GrantView, OutcomeRefused, OutputView,
    PolicyView, ReporterView,
};
pub use run::{DeficitView, RunContent, RunEnded, StepEnded, WrapUpStarted};
pub use summary::{SummaryAsked, SummaryContent, SummaryReceived};
pub use vote::{ConsensusDecided, ElectorateView, VoteWidened};

/// What happened.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    /// A session was started.
    SessionOpened(Box<SessionOpened>),
    /// A node of the cluster took the session over.
    OwnerChanged(OwnerChanged),
    /// The classifier answered.
    ClassificationReceived(ClassificationReceived),
    /// The profile and evidence of the session were fixed.
    ProfileChosen(ProfileChosen),
    /// A further message came.
    MessageReceived(MessageReceived),
    /// A run began under these bounds.
    RunStarted(RunStarted),
    /// A model answered.
    BallotReceived(Box<BallotReceived>),
    /// The conversation has outgrown a model, and its earlier steps are summed up first.
    SummaryAsked(SummaryAsked),
    /// A summary came, or none.
    SummaryReceived(Box<SummaryReceived>),
    /// A tool asks for a larger vote than the round's.
    VoteWidened(VoteWidened),
    /// The ballots of a round were added up.
    ConsensusDecided(ConsensusDecided),
    /// A call was allowed, rejected or escalated.
    CallDecided(Box<CallDecided>),
    /// An allowed call may be sent now.
    CallDispatched(DispatchView),
    /// A client took a call over.
    CallAcknowledged(CallAcknowledged),
    /// A call ended; its one terminal record.
    CallEnded(Box<CallEnded>),
    /// An admission hook answered, or gave no usable answer.
    AdmissionAnswered(Box<AdmissionAnswered>),
    /// An approver decided.
    ApprovalDecided(Box<ApprovalDecided>),
    /// An approval is still open after the time that the profile names.
    ApprovalReminded(ApprovalReminded),
    /// What a round of ballots may cost was set aside.
    BudgetReserved(BudgetReserved),
    /// The tenant's ledger answered.
    ReservationAnswered(ReservationAnswered),
    /// The ledger has taken what was really spent.
    BudgetSettled(BudgetSettled),
    /// The run stands at a bound that a human may raise.
    RunPaused(Box<RunPaused>),
    /// The steps are used up, and the model gets one turn to finish in.
    WrapUpStarted(WrapUpStarted),
    /// A step without calls is over.
    StepEnded(StepEnded),
    /// A run is over.
    RunEnded(RunEnded),
    /// A client is ready to execute.
    ClientAttached(ClientAttached),
    /// Somebody stopped the run.
    CancelRequested(StopRequested),
    /// Somebody closed the session.
    CloseRequested(StopRequested),
    /// The session is closed for good.
    SessionClosed(SessionClosed),
    /// Time passed, and something was due.
    Ticked(Ticked),
    /// A new owner found work whose fate is unknown.
    Recovered(Ticked),
    /// A report that claims an effect was refused.
    OutcomeRefused(OutcomeRefused),
}

/// A session was started.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct SessionOpened {
    /// Who started it.
    pub by: String,
    /// The caller's own id.
    pub alias: Option<String>,
    /// Digest of the pinned bundle.
    pub bundle: String,
    /// The profile asked for.
    pub profile: Option<String>,
    /// The label asked for.
    pub label: Option<String>,
    /// Profiles the credential may use; absent means all.
    pub ceiling: Option<BTreeSet<String>>,
    /// What the caller's client can do.
    pub capabilities: BTreeSet<String>,
    /// Narrower bounds asked for.
    pub limits: NarrowedView,
    /// Which calls a human is asked about, when the session wants more than its profile: `none`, `risky` or `all`.
    pub control: Option<&'static str>,
    /// Nothing is executed, whatever the profile says.
    pub dry_run: bool,
    /// Version of the deciding behaviour.
    pub rules_version: u32,
    /// W3C trace context of the request.
    pub trace: Option<String>,
    /// What was said.
    pub content: OpenedContent,
}

/// Narrower bounds that a session asked for.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct NarrowedView {
    /// Steps.
    pub max_steps: Option<u32>,
    /// Tool calls.
    pub max_tool_calls: Option<u32>,
    /// Model calls.
    pub max_model_calls: Option<u32>,
    /// Milliseconds.
    pub deadline_ms: Option<u64>,
}

/// What was said when a session was started.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct OpenedContent {
    /// The first message.
    pub prompt: String,
    /// The session's own output schema.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub output_schema: Option<RawJson>,
    /// Free metadata.
    pub metadata: BTreeMap<String, String>,
}

/// A node of the cluster took the session over.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct OwnerChanged {
    /// The node's persistent id.
    pub node: String,
    /// Counts the starts of the node.
    pub incarnation: u64,
}

/// The classifier answered.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ClassificationReceived {
    /// Which question it answers.
    pub attempt: u32,
    /// What the provider said it spent.
    pub usage: UsageView,
    /// The answer.
    pub content: ClassificationContent,
}

/// What a provider says it spent; an absent figure is unknown, not zero.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct UsageView {
    /// Tokens of the prompt.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer.
    pub output_tokens: Option<u64>,
}

/// The classifier's answer: a label, or why there is none.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ClassificationContent {
    /// The label as the classifier wrote it.
    pub label: Option<String>,
    /// 0 to 1,000.
    pub confidence_milli: Option<u32>,
    /// The classifier's words.
    pub reasoning: Option<String>,
    /// Why there is no label.
    pub failure: Option<String>,
}

/// The profile and evidence of the session were fixed.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ProfileChosen {
    /// The profile.
    pub profile: String,
    /// The label that led to it.
    pub label: Option<String>,
    /// Successful calls per tag that must be in the log before the run may be done.
    pub trace_requirements: BTreeMap<String, u32>,
}

/// A further message came.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct MessageReceived {
    /// Who speaks.
    pub by: String,
    /// The words.
    pub content: TextContent,
}

/// A piece of text.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct TextContent {
    /// The text.
    pub text: String,
}

/// A run began under these bounds.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RunStarted {
    /// Version of the deciding behaviour.
    pub rules_version: u32,
    /// The schema engine that decides.
    pub schema_engine: String,
    /// The bounds in force.
    pub limits: LimitsView,
    /// When the run must be over.
    pub deadline_at: String,
}

/// The bounds of one run.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct LimitsView {
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
    /// Final answers in a row that do not match the output schema; absent means no bound of their own.
    pub max_output_schema_failures: Option<u32>,
    /// Proposals of one canonical call.
    pub repeat_limit: u32,
    /// Ballots with which a round begins.
    pub ballots: u32,
    /// Tokens of prompts and answers; absent means no bound.
    pub max_tokens: Option<u64>,
    /// Money in millionths of a dollar; absent means no bound.
    pub max_cost_microusd: Option<u64>,
}

/// A model answered.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BallotReceived {
    /// The round within the step.
    pub round: u32,
    /// The ballot within the round, from 1.
    pub ballot: u32,
    /// Ballots of the round.
    pub of: u32,
    /// Grows after a take-over in which the answer was lost.
    pub attempt: u32,
    /// `calls`, `done`, `malformed` or `failed`.
    pub verdict: String,
    /// The reason code of `malformed` and `failed`.
    pub reason: Option<String>,
    /// How many calls it asks for.
    pub calls: u32,
    /// What the provider said it spent.
    pub usage: UsageView,
    /// The model the provider reported.
    pub model: Option<String>,
    /// What it cost in millionths of a dollar, by the model's prices; absent when the provider did not say what it spent.
    pub cost_microusd: Option<u64>,
    /// What counts against the budgets: what it cost, or what was set aside where that is unknown.
    pub charged: AmountView,
    /// What of the conversation the model was not shown, since it did not fit into `max_input_tokens`.
    pub cut: Option<CutView>,
    /// The answer.
    pub content: BallotContent,
}

/// What of a conversation was left out, the oldest first.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CutView {
    /// Results that were shown without their body.
    pub results: u32,
    /// Earlier answers of models that were left out, each with the results of its calls.
    pub answers: u32,
    /// Bytes left out.
    pub bytes: u64,
}

/// A model's answer.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BallotContent {
    /// Its text.
    pub text: String,
    /// The calls it asks for, in its order.
    pub calls: Vec<ProposedCallView>,
    /// The final output, when it is done.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub output: Option<RawJson>,
    /// What was wrong, when it is unreadable or failed.
    pub detail: Option<String>,
    /// Every deviation that was put right, by name.
    pub normalised: Vec<String>,
    /// Calls of which something was redacted.
    pub redacted: Vec<String>,
}

/// A call as a model asked for it.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ProposedCallView {
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The id the provider gave.
    pub provider_id: Option<String>,
    /// The canonical arguments; absent when unreadable.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Why the arguments are unreadable.
    pub fault: Option<String>,
    /// The exact text of the arguments as sent, or as redacted.
    pub raw_args: String,
}

/// A client is ready to execute.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ClientAttached {
    /// The client instance.
    pub client_id: String,
    /// The principal of its credential.
    pub by: String,
    /// What it can do.
    pub capabilities: BTreeSet<String>,
}

/// Somebody stopped a run or closed a session.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct StopRequested {
    /// Who.
    pub by: String,
    /// Their words.
    pub content: StopContent,
}

/// Why somebody stopped.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct StopContent {
    /// The reason given.
    pub reason: Option<String>,
}

/// The session is closed for good.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct SessionClosed {
    /// Runs it held.
    pub runs: u32,
}

/// Time passed, or a new owner came.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct Ticked {}
