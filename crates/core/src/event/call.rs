//! Facts about one call: decided, dispatched, acknowledged, approved, ended.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use toolgate_policy::RuleId;

use super::admission::AdmissionOpened;
use super::budget::{Charge, Raise};
use super::policy::PolicyRecord;
use crate::id::{ActorId, ApprovalId, CallId, ClientInstance, Sha256Digest, Tag, ToolId};
use crate::input::Reporter;
use crate::json::Json;
use crate::output::{NotExecuted, Outcome, OutcomeStatus};
use crate::pipeline::{Decision, Layer};
use crate::reason::RejectReason;
use crate::time::Timestamp;
use crate::tool::{ToolClass, Venue};

/// See [`super::Event::CallDecided`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDecided {
    /// The call.
    pub call: CallId,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// Place within the step, from 0.
    pub index: u32,
    /// When it was decided; rules over time read it.
    pub decided_at: Timestamp,
    /// The call whose approver wrote these arguments instead.
    pub edited_from: Option<CallId>,
    /// The tool, if it exists.
    pub tool: Option<ToolId>,
    /// Hash of its contract.
    pub tool_version: Option<Sha256Digest>,
    /// Who would execute.
    pub venue: Option<Venue>,
    /// What may happen after an unknown outcome.
    pub class: Option<ToolClass>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<Tag>,
    /// The decision.
    pub decision: Decision,
    /// Why, unless allowed.
    pub reason: Option<RejectReason>,
    /// The layer that decided.
    pub layer: Layer,
    /// Every rule looked at, in order.
    pub rules: Vec<String>,
    /// The earlier call whose outcome is returned (`idempotent_replay`).
    pub replay_of: Option<CallId>,
    /// The dispatch, when nothing is awaited.
    pub dispatch: Option<Dispatch>,
    /// What a human must decide, when escalated and no hook is asked before.
    pub approval: Option<ApprovalOpened>,
    /// The approver who wrote these arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_by: Option<ActorId>,
    /// The admission hook that rewrote these arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewritten_by: Option<RuleId>,
    /// The hooks that must let it pass before anything else happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionOpened>,
    /// The earlier approval that covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_by: Option<ApprovalId>,
    /// What the policies found, where the bundle has any and the call came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRecord>,
    /// The rejection ends the run.
    #[serde(default)]
    pub ends_run: bool,
    /// Length of the canonical arguments in bytes.
    pub args_bytes: u64,
    /// What was asked.
    pub content: CallContent,
    /// The arguments in full where something was redacted; gone once the call has ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sealed: BTreeMap<CallId, Json>,
}

/// Content of [`CallDecided`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallContent {
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments, redacted where the tool says so; absent when unreadable.
    pub args: Option<Json>,
    /// Hash of the full canonical arguments.
    pub args_hash: Option<Sha256Digest>,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// Fields that the contract derives from the arguments, as policies read them; those of secret arguments are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Json>,
    /// What the tenant's ledger must grant before it may be sent; a sum tells the value of an argument.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// The caller's idempotency key, where the contract names one.
    pub idempotency_key: Option<String>,
    /// What would change the answer, for the model and for people.
    pub detail: Option<String>,
}

/// Leave to send a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// 1, and one more for each time a `read` or `idempotent` call is sent again.
    pub attempt: u32,
    /// When its outcome is overdue.
    pub deadline_at: Timestamp,
    /// The client instance it is for; absent at venue `server`.
    pub instance: Option<ClientInstance>,
}

/// A question to a human.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalOpened {
    /// Its id.
    pub id: ApprovalId,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it lapses.
    pub expires_at: Timestamp,
    /// Digest over tool, canonical arguments, venue, session and bundle: what exactly is approved.
    pub digest: Sha256Digest,
    /// Time after which the log reminds of it, again and again, in milliseconds; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_ms: Option<u64>,
    /// Different people that must approve.
    #[serde(default = "one")]
    pub approvers: u32,
    /// Who has approved it already: the author of an edit.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub approved_by: BTreeSet<ActorId>,
}

const fn one() -> u32 {
    1
}

/// See [`super::Event::CallDispatched`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDispatched {
    /// The call.
    pub call: CallId,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The leave to send.
    pub dispatch: Dispatch,
}

/// See [`super::Event::CallAcknowledged`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAcknowledged {
    /// The call.
    pub call: CallId,
    /// The attempt.
    pub attempt: u32,
    /// The instance.
    pub instance: ClientInstance,
}

/// See [`super::Event::CallEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnded {
    /// The call.
    pub call: CallId,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The last attempt; 0 when never dispatched.
    pub attempt: u32,
    /// How it ended.
    pub end: CallEnd,
    /// Who or what closed it.
    pub cause: EndCause,
    /// Why it was not executed although it had been allowed or escalated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RejectReason>,
    /// The edited call that takes its place.
    pub replaced_by: Option<CallId>,
    /// Size of the output in bytes.
    pub output_bytes: u64,
    /// What came back.
    pub content: EndedContent,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// It was dispatched, and this is its outcome.
    Outcome(OutcomeStatus),
    /// It was never executed.
    NotExecuted(NotExecuted),
}

impl CallEnd {
    /// The code used in log, API and transcript.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Outcome(status) => status.code(),
            Self::NotExecuted(why) => why.code(),
        }
    }
}

/// Who or what closed a call. Only `reported` is an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Somebody reported it.
    Reported(Reporter),
    /// Its time ran out.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// The owner changed while it was under way.
    OwnerLost,
    /// Its client instance is gone for good.
    ClientLost,
    /// The run ended first.
    RunEnded,
    /// The approver said no, edited it, or took the approval back.
    Approver,
    /// An admission hook denied or rewrote it.
    Admission,
    /// The tenant's ledger refused it.
    Ledger,
    /// Nothing is executed in a dry run.
    DryRun,
    /// Nobody approved in time.
    ApprovalExpired,
    /// An equal call of the same step succeeded first.
    Replayed,
}

/// Content of [`CallEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedContent {
    /// The outcome; absent when never executed.
    pub outcome: Option<Outcome>,
    /// Toolgate's sentence about it, for model and people.
    pub detail: Option<String>,
}

/// See [`super::Event::ApprovalDecided`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecided {
    /// The approval.
    pub approval: ApprovalId,
    /// The call that waited.
    pub call: CallId,
    /// Who decided.
    pub by: ActorId,
    /// What they saw.
    pub digest: Sha256Digest,
    /// `approve`, `deny`, `edit` or `revoke`.
    pub decision: ApprovalVerb,
    /// Approvals of other people that are still missing; 0 settles it.
    #[serde(default)]
    pub missing: u32,
    /// Equal calls that need no further approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantGiven>,
    /// The bounds that it raises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raises: Vec<Raise>,
    /// Their words and arguments.
    pub content: ApprovalContent,
    /// The edited arguments in full where something was redacted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sealed: BTreeMap<CallId, Json>,
}

/// Leave for further calls of the session: the same tool with the same arguments, but for those left open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantGiven {
    /// Top-level arguments that may have any value.
    #[serde(default)]
    pub open: BTreeSet<String>,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// See [`super::Event::ApprovalReminded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalReminded {
    /// The approval.
    pub approval: ApprovalId,
    /// The call that waits.
    pub call: CallId,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// 1 for the first reminder.
    pub reminder: u32,
    /// When the approval lapses.
    pub expires_at: Timestamp,
}

/// The answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerb {
    /// Run it.
    Approve,
    /// Do not.
    Deny,
    /// Run it with other arguments.
    Edit,
    /// An approval that was given is taken back, with what it granted, as far as nothing was sent on it.
    Revoke,
}

impl ApprovalVerb {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Edit => "edit",
            Self::Revoke => "revoke",
        }
    }
}

/// Content of [`ApprovalDecided`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalContent {
    /// The approver's message.
    pub message: Option<String>,
    /// The edited arguments, redacted where the tool says so.
    pub args: Option<Json>,
    /// Whether `args` differs from what was written.
    pub redacted: bool,
}
