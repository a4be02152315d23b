//! Summaries in the public form.

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use super::{AmountView, UsageView};

/// The conversation has outgrown a model, and its earlier steps are summed up first.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct SummaryAsked {
    /// The round within the step.
    pub round: u32,
    /// Grows after a take-over in which the answer was lost.
    pub attempt: u32,
    /// The bundle's name of the model that is asked.
    pub model: String,
    /// Entries of the conversation that it is to stand for, from the beginning; what users said among them stays.
    pub entries: u32,
    /// Answers of models among them.
    pub answers: u32,
}

/// A summary came, or none.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct SummaryReceived {
    /// The round within the step.
    pub round: u32,
    /// The question it answers.
    pub attempt: u32,
    /// Why it cannot be used, and earlier steps are left out: `failed`, `malformed`, `calls`, `empty` or `not_shorter`.
    pub fault: Option<&'static str>,
    /// What the provider said it spent.
    pub usage: UsageView,
    /// The model the provider reported.
    pub model: Option<String>,
    /// What it cost in millionths of a dollar, by the model's prices; absent when the provider did not say what it spent.
    pub cost_microusd: Option<u64>,
    /// What counts against the budgets: what it cost, or what was set aside where that is unknown.
    pub charged: AmountView,
    /// What came.
    pub content: SummaryContent,
}

/// What came of the question for a summary.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct SummaryContent {
    /// The summary, cut to the length that the profile allows.
    pub text: Option<String>,
    /// Why none came.
    pub detail: Option<String>,
}
