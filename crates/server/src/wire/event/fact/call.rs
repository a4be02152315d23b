//! The forms of events about calls: decided, dispatched, acknowledged, approved, ended, refused. What is not here: the other
//! kinds (`fact`).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use super::{AdmissionOpenedView, ChargeView, RaiseView};
use crate::wire::RawJson;

/// A call was allowed, rejected or escalated.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CallDecided {
    /// Place within the step, from 0.
    pub index: u32,
    /// The call whose approver or admission hook wrote these arguments instead.
    pub edited_from: Option<String>,
    /// The approver who wrote them.
    pub edited_by: Option<String>,
    /// The admission hook that wrote them.
    pub rewritten_by: Option<String>,
    /// The tool, if it exists.
    pub tool: Option<String>,
    /// Hash of its contract.
    pub tool_version: Option<String>,
    /// Who would execute: `server` or `client`.
    pub venue: Option<&'static str>,
    /// `read`, `idempotent` or `once`.
    pub class: Option<&'static str>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<String>,
    /// `allow`, `escalate` or `reject`.
    pub decision: &'static str,
    /// The reason code, unless allowed.
    pub reason: Option<&'static str>,
    /// The layer of the pipeline that decided.
    pub layer: &'static str,
    /// Every rule looked at, in order.
    pub rules: Vec<String>,
    /// The earlier call whose outcome is returned.
    pub replay_of: Option<String>,
    /// The dispatch, when nothing is awaited.
    pub dispatch: Option<DispatchView>,
    /// What a human must decide, when escalated and no hook is asked before.
    pub approval: Option<ApprovalOpenedView>,
    /// The hooks that must let it pass before anything else happens.
    pub admission: Option<AdmissionOpenedView>,
    /// The earlier approval that covers it.
    pub granted_by: Option<String>,
    /// What the policies found, where the bundle has any and the call came so far.
    pub policy: Option<PolicyView>,
    /// Whether the rejection ends the run.
    pub ends_run: bool,
    /// Length of the canonical arguments in bytes.
    pub args_bytes: u64,
    /// What was asked.
    pub content: CallContent,
}

/// What a call asks for.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CallContent {
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The canonical arguments, redacted where the tool says so; absent when unreadable.
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Hash of the full canonical arguments.
    pub args_hash: Option<String>,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// Fields that the contract derives from the arguments, as policies read them.
    #[schema(value_type = RawJson)]
    pub derived: Option<RawJson>,
    /// What the tenant's ledger must grant before it may be sent.
    pub charges: Vec<ChargeView>,
    /// The caller's idempotency key towards the tool.
    pub idempotency_key: Option<String>,
    /// What would change the answer.
    pub detail: Option<String>,
}

/// What the policies found about a call.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct PolicyView {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// The rule that made it, unless allowed.
    pub rule: Option<String>,
    /// That rule's code.
    pub code: Option<String>,
    /// Every rule looked at, in order.
    pub findings: Vec<FindingView>,
    /// What the policy files answered, if they were asked.
    pub cedar: Option<CedarView>,
}

/// What one rule found.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct FindingView {
    /// The rule.
    pub rule: String,
    /// `pass`, `ask` or `deny`.
    pub outcome: String,
    /// Why, unless it passed without a remark.
    pub code: Option<String>,
    /// The rule is recorded, not enforced.
    pub shadow: bool,
    /// What would change the answer.
    pub detail: Option<String>,
    /// The inputs it looked at, by name.
    pub looked_at: Vec<String>,
}

/// What the policy files answered, and which they were.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CedarView {
    /// The policies that made the answer.
    pub deciding: Vec<String>,
    /// Policies that failed.
    pub failed: Vec<String>,
    /// SHA-256 over the enforced sets, hex.
    pub policy_hash: String,
    /// SHA-256 of the schema, hex.
    pub schema_hash: String,
    /// Version of the engine and of the language.
    pub engine: String,
}

/// Leave to send a call.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct DispatchView {
    /// 1, and one more for each time the call is sent again.
    pub attempt: u32,
    /// When its outcome is overdue.
    pub deadline_at: String,
    /// The client instance it is for; absent at venue `server`.
    pub client_id: Option<String>,
}

/// A question to a human.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ApprovalOpenedView {
    /// Its id.
    pub id: String,
    /// When it lapses.
    pub expires_at: String,
    /// Digest of what exactly is approved.
    pub digest: String,
    /// Different people that must approve.
    pub approvers: u32,
    /// Who has approved it already: the author of an edit.
    pub approved_by: BTreeSet<String>,
}

/// A client took a call over.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CallAcknowledged {
    /// The attempt.
    pub attempt: u32,
    /// The client instance.
    pub client_id: String,
}

/// A call ended.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct CallEnded {
    /// The last attempt; 0 when never dispatched.
    pub attempt: u32,
    /// `ok`, `failed`, `timed_out`, `denied_by_client`, `indeterminate`; or, never executed, `rejected`, `denied`,
    /// `expired`, `cancelled`, `run_ended`, `dry_run`.
    pub status: &'static str,
    /// Whether it was dispatched at all.
    pub dispatched: bool,
    /// What closed it: `reported`, `timeout`, `cancelled`, `owner_lost`, `client_lost`, `run_ended`, `approver`,
    /// `approval_expired`, `replayed`, `admission`, `ledger` or `dry_run`.
    pub cause: &'static str,
    /// The reason code of a call that was allowed or escalated and is not executed.
    pub reason: Option<&'static str>,
    /// Who reported it.
    pub reporter: Option<ReporterView>,
    /// The edited call that takes its place.
    pub replaced_by: Option<String>,
    /// Size of the output in bytes.
    pub output_bytes: u64,
    /// What came back.
    pub content: EndedContent,
}

/// Who reported an outcome.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ReporterView {
    /// `server` or `client`.
    pub venue: &'static str,
    /// The client instance.
    pub client_id: Option<String>,
    /// The principal of its credential.
    pub by: Option<String>,
}

/// What came back from a call.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct EndedContent {
    /// What the tool returned.
    pub output: Option<OutputView>,
    /// What went wrong, in the executor's words.
    pub outcome_detail: Option<String>,
    /// Toolgate's sentence about it.
    pub detail: Option<String>,
}

/// What a tool returned: exactly one of `text`, `base64` and `blob`.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct OutputView {
    /// Media type as the executor stated it.
    pub media_type: String,
    /// Valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Other bytes, as standard base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Stored apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobView>,
    /// Size in bytes before the cap cut it; absent when nothing was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<u64>,
}

/// Where a large output is found.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BlobView {
    /// Its name in the session.
    pub digest: String,
    /// Size in bytes.
    pub size: u64,
    /// Its beginning as text.
    pub preview: String,
}

/// An approver decided.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ApprovalDecided {
    /// The approval.
    pub approval_id: String,
    /// Who decided.
    pub by: String,
    /// Digest of what they saw.
    pub digest: String,
    /// `approve`, `deny`, `edit` or `revoke`.
    pub decision: &'static str,
    /// Approvals of other people that are still missing; 0 settles it.
    pub missing: u32,
    /// Equal calls of the session that need no further approval.
    pub grant: Option<GrantView>,
    /// The bounds that it raises.
    pub raises: Vec<RaiseView>,
    /// Their words and arguments.
    pub content: ApprovalContent,
}

/// Leave for further calls: the same tool with the same arguments, but for those left open.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct GrantView {
    /// Top-level arguments that may have any value.
    pub open: BTreeSet<String>,
    /// When it ends.
    pub expires_at: String,
}

/// An approval is still open.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ApprovalReminded {
    /// The approval.
    pub approval_id: String,
    /// 1 for the first reminder.
    pub reminder: u32,
    /// When the approval lapses.
    pub expires_at: String,
}

/// What an approver wrote.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ApprovalContent {
    /// Their message.
    pub message: Option<String>,
    /// The edited arguments, redacted where the tool says so.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Whether `args` differs from what was written.
    pub redacted: bool,
}

/// A report that claims an effect was refused.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct OutcomeRefused {
    /// Why.
    pub code: &'static str,
    /// Who sent it.
    pub reporter: ReporterView,
    /// The status it claimed.
    pub claimed: &'static str,
}
