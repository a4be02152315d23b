//! Facts about admission hooks: an operator's own endpoints that allow, deny or rewrite a call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolgate_policy::RuleId;

use super::ApprovalOpened;
use crate::id::{CallId, Sha256Digest};
use crate::json::Json;
use crate::time::Timestamp;

/// Hooks that must let a call pass before it may go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionOpened {
    /// The hooks, in the order in which they are asked.
    pub hooks: Vec<RuleId>,
    /// When the first must have answered; without an answer the call is denied.
    pub answer_by: Timestamp,
    /// Digest of what a human must approve once every hook has let it pass; absent when none must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256Digest>,
}

/// What a hook said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionVerb {
    /// The call may go on.
    Allow,
    /// It may not.
    Deny,
    /// It may with other arguments: a new linked call, judged again.
    Rewrite,
    /// The hook gave no usable answer, which is a denial.
    Failed,
}

impl AdmissionVerb {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Rewrite => "rewrite",
            Self::Failed => "failed",
        }
    }
}

/// See [`super::Event::AdmissionAnswered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionAnswered {
    /// The call.
    pub call: CallId,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The hook.
    pub hook: RuleId,
    /// The question it answers.
    pub attempt: u32,
    /// What it said.
    pub verdict: AdmissionVerb,
    /// When the next hook must have answered, if there is one.
    pub next_by: Option<Timestamp>,
    /// What a human must decide, once every hook has let the call pass.
    pub approval: Option<ApprovalOpened>,
    /// Reason and arguments.
    pub content: AdmissionContent,
    /// The rewritten arguments in full where something was redacted; gone once the call has ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sealed: BTreeMap<CallId, Json>,
}

/// Content of [`AdmissionAnswered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionContent {
    /// The hook's words, or what went wrong.
    pub reason: Option<String>,
    /// The rewritten arguments, redacted where the tool says so.
    pub args: Option<Json>,
    /// Whether `args` differs from what was written.
    pub redacted: bool,
}
