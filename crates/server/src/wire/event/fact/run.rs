//! How steps and runs end, in the public form.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use super::{FindingView, TextContent};
use crate::wire::RawJson;

/// A step without calls is over.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct StepEnded {
    /// The reason code.
    pub reason: &'static str,
    /// Missing evidence per tag.
    pub deficits: BTreeMap<String, DeficitView>,
    /// What the model is told.
    pub content: TextContent,
}

/// Evidence that is not there yet.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct DeficitView {
    /// Successes so far.
    pub have: u32,
    /// Successes needed.
    pub need: u32,
}

/// A run is over.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RunEnded {
    /// Why; exactly one code.
    pub ending: &'static str,
    /// Steps taken.
    pub steps: u32,
    /// Tool calls counted.
    pub tool_calls: u32,
    /// Model calls counted.
    pub model_calls: u32,
    /// It ended in, or after, the turn that it got to finish in.
    pub wrapped_up: bool,
    /// What evidence rules in shadow missed when the run was done.
    pub shadow: Vec<FindingView>,
    /// What the run leaves.
    pub content: RunContent,
}

/// What a run leaves.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RunContent {
    /// The final output, when done.
    #[schema(value_type = RawJson)]
    #[schema(value_type = RawJson)]
    pub output: Option<RawJson>,
    /// What ended it, in a sentence.
    pub detail: Option<String>,
}

/// The steps are used up, and the model gets one turn to finish in, without calls.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct WrapUpStarted {}
