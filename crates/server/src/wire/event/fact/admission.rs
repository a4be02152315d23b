//! The forms of events about admission hooks. What is not here: the other kinds (`fact`).

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApprovalOpenedView;
use crate::wire::RawJson;

/// Hooks that must let a call pass before it may go on.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct AdmissionOpenedView {
    /// The hooks, in the order in which they are asked.
    pub hooks: Vec<String>,
    /// When the first must have answered; without an answer the call is denied.
    pub answer_by: String,
}

/// An admission hook answered, or gave no usable answer.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct AdmissionAnswered {
    /// The hook.
    pub hook: String,
    /// The question it answers.
    pub attempt: u32,
    /// `allow`, `deny`, `rewrite` or `failed`; the last is a denial.
    pub verdict: &'static str,
    /// When the next hook must have answered, if there is one.
    pub next_by: Option<String>,
    /// What a human must decide, once every hook has let the call pass.
    pub approval: Option<ApprovalOpenedView>,
    /// Reason and arguments.
    pub content: AdmissionContent,
}

/// What a hook wrote.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct AdmissionContent {
    /// Its words, or what went wrong.
    pub reason: Option<String>,
    /// The rewritten arguments, redacted where the tool says so.
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Whether `args` differs from what was written.
    pub redacted: bool,
}
