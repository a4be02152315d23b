//! Facts from outside, as `decide` takes them. What is not here: how they are logged (`event`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_policy::RuleId;

use crate::event::{ApprovalVerb, LedgerAnswer, Purpose, SummaryFault};
use crate::id::{
    ActorId, ApprovalId, CallId, Capability, ClientInstance, InputId, Label, ProfileName, Sha256Digest, TenantId,
};
use crate::json::Json;
use crate::output::Outcome;
use crate::profile::ControlMode;
use crate::proposal::{Ballot, ProviderFailure, Usage};
use crate::time::Timestamp;

/// An input with the time it arrived; `decide` knows no other clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    /// When it arrived.
    pub at: Timestamp,
    /// Unique in the session when given; a repeated one is answered, not applied.
    pub id: Option<InputId>,
    /// The fact.
    pub input: Input,
}

/// A fact from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Somebody starts a session.
    Open(Box<Open>),
    /// The classifier answered.
    Classified(Classified),
    /// The user says something more; opens the next run.
    Message(Message),
    /// A model answered.
    Ballot(Box<BallotCast>),
    /// A model summed up earlier steps, or did not.
    Summary(Box<SummaryWritten>),
    /// Somebody reports what became of a call.
    Outcome(OutcomeReport),
    /// A client took a call over and starts it.
    CallAck(CallAck),
    /// A client is ready to execute calls.
    ClientAttached(ClientAttached),
    /// An approver decided.
    Approval(ApprovalAnswer),
    /// An admission hook answered.
    Admission(AdmissionAnswer),
    /// The tenant's ledger answered.
    Reservation(ReservationAnswer),
    /// The ledger has taken what was really spent of these reservations.
    Settled(Vec<String>),
    /// Time has passed.
    Tick,
    /// The owner of the session has changed; what was under way is unknown.
    Recovered,
    /// Somebody stops the run.
    Cancel(Stop),
    /// Somebody closes the session for good.
    Close(Stop),
}

/// The start of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// From the credential.
    pub tenant: TenantId,
    /// From the credential.
    pub by: ActorId,
    /// The caller's own id for the session, if given.
    pub alias: Option<String>,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// The profile asked for.
    pub profile: Option<ProfileName>,
    /// The label asked for.
    pub label: Option<Label>,
    /// Profiles the credential may use; absent means all of the bundle.
    pub ceiling: Option<BTreeSet<ProfileName>>,
    /// What the caller's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// Narrower bounds than the profile's.
    pub limits: Narrowed,
    /// More questions to a human than the profile asks; absent means as the profile says.
    pub control: Option<ControlMode>,
    /// Nothing is executed, whatever the profile says.
    pub dry_run: bool,
    /// The session's own output schema.
    pub output_schema: Option<Json>,
    /// The first message.
    pub prompt: String,
    /// W3C trace context of the request.
    pub trace: Option<String>,
    /// Free metadata for people.
    pub metadata: BTreeMap<String, String>,
}

/// Bounds that a session asks for; each must be at least 1 and no wider than the profile's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Narrowed {
    /// Steps.
    pub max_steps: Option<u32>,
    /// Tool calls.
    pub max_tool_calls: Option<u32>,
    /// Model calls.
    pub max_model_calls: Option<u32>,
    /// Milliseconds.
    pub deadline_ms: Option<u64>,
}

/// What the classifier made of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// Which question it answers: 1 for the first, one more after each take-over.
    pub attempt: u32,
    /// The label, or why there is none.
    pub result: Result<ClassifiedLabel, ClassificationFailure>,
    /// What the provider said it spent.
    pub usage: Usage,
}

/// A found label.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClassifiedLabel {
    /// The label as the classifier wrote it.
    pub label: String,
    /// 0 to 1,000.
    pub confidence_milli: u32,
    /// The classifier's words, at most 2,000 characters.
    pub reasoning: Option<String>,
}

/// Why no label was found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClassificationFailure {
    /// The provider failed in this way; absent when it answered something unusable.
    pub provider: Option<ProviderFailure>,
    /// What happened; at most 400 characters.
    pub detail: String,
}

/// A further message of the user.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// From the credential.
    pub by: ActorId,
    /// The words.
    pub text: String,
}

/// Names one question to one model; the answer repeats it, so that a late one is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Seat {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The round within the step: 1, and one more for each retry without consensus.
    pub round: u32,
    /// The ballot within the round, from 1; 0 is the summary that its models are shown.
    pub ballot: u32,
    /// 1, and one more after each take-over in which the answer was lost.
    pub attempt: u32,
}

/// An answer and the question it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BallotCast {
    /// The question.
    pub seat: Seat,
    /// The answer.
    pub ballot: Ballot,
}

/// What came of the question for a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryWritten {
    /// The question.
    pub seat: Seat,
    /// The summary, or why there is none.
    pub result: Result<String, SummaryFailure>,
    /// What the provider said it spent.
    pub usage: Usage,
    /// The model the provider reported.
    pub model: Option<String>,
}

/// Why no summary came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryFailure {
    /// The closed reason; one of those that are reported.
    pub fault: SummaryFault,
    /// What happened, without secrets; at most 400 characters.
    pub detail: String,
}

/// A report about a dispatched call.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OutcomeReport {
    /// The call.
    pub call: CallId,
    /// The attempt the reporter ran.
    pub attempt: u32,
    /// Who reports.
    pub reporter: Reporter,
    /// What came out.
    pub outcome: Outcome,
}

/// Who reports an outcome.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reporter {
    /// Toolgate's own runner.
    Server,
    /// A client; what it says is its claim.
    Client {
        /// The instance.
        instance: ClientInstance,
        /// From the credential.
        by: ActorId,
        /// The fence of the dispatch, repeated.
        fence: u64,
        /// Hash of the arguments it ran, repeated.
        args_hash: Sha256Digest,
    },
}

/// A client took a call over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CallAck {
    /// The call.
    pub call: CallId,
    /// The attempt.
    pub attempt: u32,
    /// The instance.
    pub instance: ClientInstance,
}

/// A client that is ready to execute.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClientAttached {
    /// The instance.
    pub instance: ClientInstance,
    /// From the credential.
    pub by: ActorId,
    /// What it can do.
    pub capabilities: BTreeSet<Capability>,
}

/// An approver's answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApprovalAnswer {
    /// The approval.
    pub approval: ApprovalId,
    /// From the credential.
    pub by: ActorId,
    /// Digest of what the approver was shown.
    pub digest: Sha256Digest,
    /// The bundle under which the approver looked, if they name it.
    pub bundle: Option<Sha256Digest>,
    /// The answer.
    pub decision: ApprovalDecision,
}

/// What an approver decided.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ApprovalDecision {
    /// Run exactly this.
    Approve {
        /// Leave for further calls of the session as well.
        grant: Option<GrantAsked>,
    },
    /// Do not run it.
    Deny {
        /// For the model and the record.
        message: Option<String>,
    },
    /// Run it with these arguments instead; a new linked call, judged again.
    Edit {
        /// The new arguments.
        args: Json,
    },
    /// Take an approval back that was given, with what it granted, as far as nothing was sent on it.
    Revoke,
}

impl ApprovalDecision {
    /// The kind of answer.
    #[must_use]
    pub const fn verb(&self) -> ApprovalVerb {
        match self {
            Self::Approve { .. } => ApprovalVerb::Approve,
            Self::Deny { .. } => ApprovalVerb::Deny,
            Self::Edit { .. } => ApprovalVerb::Edit,
            Self::Revoke => ApprovalVerb::Revoke,
        }
    }
}

/// What an approver leaves open for further calls of the session: the same tool, and the same arguments but for these.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GrantAsked {
    /// Top-level arguments that may have any value.
    pub open: BTreeSet<String>,
    /// How long it holds in milliseconds, 1,000 to 2,592,000,000; absent means a day.
    pub ttl_ms: Option<u64>,
}

/// An admission hook's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionAnswer {
    /// The call.
    pub call: CallId,
    /// The hook.
    pub hook: RuleId,
    /// The question it answers.
    pub attempt: u32,
    /// What it said.
    pub verdict: AdmissionVerdict,
}

/// What an admission hook said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// The call may go on.
    Allow {
        /// The hook's words.
        reason: Option<String>,
    },
    /// It may not.
    Deny {
        /// The hook's words.
        reason: Option<String>,
    },
    /// It may with other arguments.
    Rewrite {
        /// The hook's words.
        reason: Option<String>,
        /// The new arguments.
        args: Json,
    },
    /// There is no usable answer.
    Failed {
        /// What went wrong, without content or secrets; at most 400 characters.
        detail: String,
    },
}

/// The answer of the tenant's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationAnswer {
    /// What it was for.
    pub purpose: Purpose,
    /// The answer.
    pub answer: LedgerAnswer,
    /// Earlier reservations that were settled with the same request.
    pub settled: Vec<String>,
}

/// Somebody stops a run or closes a session.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stop {
    /// From the credential.
    pub by: ActorId,
    /// Why, in their words.
    pub reason: Option<String>,
}
