//! Why a call was decided as it was, and what became of it, from the log alone. What is not here: fetching logs, the
//! wire's form (the server), deciding again (`verify`).
//!
//! Reads facts only and asks no rule anew, so it explains logs of any age, also where content was redacted.

use std::collections::BTreeSet;

use toolgate_policy::RuleId;

use crate::event::{
    AdmissionVerb, CallEnd, Charge, Dispatch, GrantGiven, LedgerAnswer, Limits, PolicyRecord, Recorded,
};
use crate::id::{ActorId, ApprovalId, CallId, ClientInstance, Label, ProfileName, Sha256Digest, Tag, ToolId};
use crate::input::Reporter;
use crate::json::Json;
use crate::output::OutcomeStatus;
use crate::pipeline::{Decision, Layer};
use crate::profile::ControlMode;
use crate::reason::{Ending, RefusalCode, RejectReason};
use crate::time::Timestamp;
use crate::tool::{ToolClass, Venue};

mod gather;
mod looked_at;
mod text;

pub use gather::Explainer;

/// Everything the log says about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The call.
    pub call: CallId,
    /// The run, from 1.
    pub run: u32,
    /// The step within the run, from 1.
    pub step: u32,
    /// Place within the step, from 0.
    pub index: u32,
    /// What was asked.
    pub asked: Asked,
    /// By what it was judged.
    pub basis: Basis,
    /// The decision.
    pub decided: Decided,
    /// The layers asked, in order.
    pub layers: Vec<LookedAt>,
    /// What the policies found, where they were asked.
    pub policy: Option<PolicyRecord>,
    /// How the ballots of the step added up, where there were several.
    pub consensus: Option<Consensus>,
    /// The call whose approver wrote these arguments instead, and their answer.
    pub edited_from: Option<CallId>,
    /// The approver who wrote these arguments; with `edited_from`.
    pub edited_by: Option<ActorId>,
    /// The admission hook that wrote these arguments; with `edited_from`.
    pub rewritten_by: Option<RuleId>,
    /// The approver's answer that holds these arguments.
    pub edit: Option<Answer>,
    /// The edited call that took this one's place.
    pub replaced_by: Option<CallId>,
    /// The earlier call whose outcome was returned.
    pub replay_of: Option<CallId>,
    /// The earlier approval that covers this call.
    pub granted_by: Option<ApprovalId>,
    /// The admission hooks that must let it pass, in order.
    pub hooks: Vec<RuleId>,
    /// What they answered.
    pub admissions: Vec<Admitted>,
    /// What the tenant's ledger must grant.
    pub charges: Vec<Charge>,
    /// What the ledger answered.
    pub ledger: Vec<Reserved>,
    /// What humans were asked.
    pub approval: Option<Asking>,
    /// What they answered, in order; a revoked grant of this approval too.
    pub answers: Vec<Answer>,
    /// Each leave to send it.
    pub dispatches: Vec<Sent>,
    /// Clients that took it over.
    pub acknowledged: Vec<Acknowledged>,
    /// Reports about it that were refused.
    pub refused: Vec<RefusedReport>,
    /// Its terminal record.
    pub end: Option<End>,
    /// How its run ended.
    pub run_ending: Option<Ending>,
}

/// What a call asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The tool, if it exists; absent too where unreadable arguments kept everybody from looking for it.
    pub tool: Option<ToolId>,
    /// Hash of its contract.
    pub tool_version: Option<Sha256Digest>,
    /// Who would execute.
    pub venue: Option<Venue>,
    /// What may happen after an unknown outcome.
    pub class: Option<ToolClass>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<Tag>,
    /// The arguments, redacted where the tool says so; absent when unreadable.
    pub args: Option<Json>,
    /// Hash of the full canonical arguments.
    pub args_hash: Option<Sha256Digest>,
    /// Length of the full canonical arguments in bytes.
    pub args_bytes: u64,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// Fields derived from the arguments, as policies read them.
    pub derived: Option<Json>,
    /// The caller's idempotency key towards the tool.
    pub idempotency_key: Option<String>,
}

/// By what a call was judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Basis {
    /// Who started the session.
    pub by: Option<ActorId>,
    /// The pinned bundle.
    pub bundle: Option<Sha256Digest>,
    /// The session's profile.
    pub profile: Option<ProfileName>,
    /// The label that led to it.
    pub label: Option<Label>,
    /// The deciding behaviour of the run.
    pub rules_version: Option<u32>,
    /// The schema engine of the run.
    pub schema_engine: Option<String>,
    /// The bounds of the run.
    pub limits: Option<Limits>,
    /// The control mode that the session asked for.
    pub control: Option<ControlMode>,
    /// Decides and records, and executes nothing.
    pub dry_run: bool,
}

/// The decision about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The decision.
    pub decision: Decision,
    /// Why, unless allowed.
    pub reason: Option<RejectReason>,
    /// The layer that decided.
    pub layer: Layer,
    /// The rejection ends the run.
    pub ends_run: bool,
    /// What made the decision, in one sentence.
    pub cause: String,
    /// What would change the answer, or what it was warned of.
    pub change: Option<String>,
}

/// A layer of the pipeline that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedAt {
    /// The layer's name.
    pub layer: String,
    /// What it answered.
    pub answer: LayerAnswer,
    /// What it looked at, by name.
    pub inputs: Vec<&'static str>,
}

/// What a layer answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerAnswer {
    /// It let the call pass.
    Passed,
    /// It made the decision.
    Decided,
}

impl LayerAnswer {
    /// The word for people and the wire.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Decided => "decided",
        }
    }
}

/// How the ballots of a step added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consensus {
    /// The round.
    pub round: u32,
    /// Ballots that were asked for.
    pub n: u32,
    /// Who wins.
    pub rule: crate::consensus::Rule,
    /// Ballots needed.
    pub k: u32,
    /// The tool that asked for a larger vote than the round began with, and where the profile says so.
    pub widened: Option<(ToolId, crate::event::WidenedBy)>,
    /// Ballots of equal proposals, largest group first.
    pub groups: Vec<Vec<u32>>,
    /// Ballots without a readable proposal.
    pub unreadable: Vec<u32>,
    /// Ballots that could change nothing any more.
    pub cancelled: Vec<u32>,
    /// What followed.
    pub result: crate::event::ConsensusResult,
}

/// A question to a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// Its id.
    pub id: ApprovalId,
    /// When it lapses.
    pub expires_at: Timestamp,
    /// Digest of what exactly is approved.
    pub digest: Sha256Digest,
    /// How many different people must approve.
    pub approvers: u32,
    /// Reminders sent.
    pub reminders: u32,
}

/// An admission hook's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The hook.
    pub hook: RuleId,
    /// The question it answers.
    pub attempt: u32,
    /// What it said.
    pub verdict: AdmissionVerb,
    /// Its words.
    pub reason: Option<String>,
}

/// The ledger's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What it said.
    pub answer: LedgerAnswer,
}

/// A human's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The approval it answers.
    pub approval: ApprovalId,
    /// Who.
    pub by: ActorId,
    /// What they saw.
    pub digest: Sha256Digest,
    /// What they said.
    pub verb: crate::event::ApprovalVerb,
    /// Approvals still missing after it.
    pub missing: u32,
    /// What it covers from then on besides this call.
    pub grant: Option<GrantGiven>,
    /// Their words.
    pub message: Option<String>,
}

/// A leave to send a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Place in the log; the fence of the attempt.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Attempt, deadline and addressee.
    pub dispatch: Dispatch,
}

/// A client took a call over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The attempt.
    pub attempt: u32,
    /// The client instance.
    pub instance: ClientInstance,
}

/// A report that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedReport {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub code: RefusalCode,
    /// Who sent it.
    pub reporter: Reporter,
    /// What it claimed.
    pub claimed: OutcomeStatus,
}

/// The one terminal record of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// How.
    pub end: CallEnd,
    /// What closed it: `reported`, `timeout` and so on; `decision` where the rejection itself is the record.
    pub cause: &'static str,
    /// The reason code, where something else than its outcome closed it.
    pub reason: Option<RejectReason>,
    /// Who reported it.
    pub reporter: Option<Reporter>,
    /// The last attempt; 0 when never dispatched.
    pub attempt: u32,
    /// Size of the output in bytes.
    pub output_bytes: u64,
    /// A sentence about it.
    pub detail: Option<String>,
}

/// Explains a call from a whole log; none where the log decides no such call.
#[must_use]
pub fn explain(log: &[Recorded], call: &CallId) -> Option<Explanation> {
    let mut explainer = Explainer::new(call.clone());
    log.iter().for_each(|recorded| explainer.take(recorded));
    explainer.finish()
}
