//! Profiles: the tools a session may use, its bounds, and what happens on rejection. What is not here: checking a
//! profile against its bundle (`bundle::check`).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use toolgate_policy::RuleId;

use crate::id::{ModelName, Tag, ToolId};
use crate::reason::RejectReason;

mod approval;
mod budget;
mod consensus;
mod summarize;
mod target;
mod termination;

pub use approval::{ApprovalMode, ApprovalRules, ControlMode};
pub use budget::{AtLimit, SessionBudget, TenantBudget, TenantLimit};
pub use consensus::{Consensus, DecideWhen, OnNoConsensus, Votes};
pub use summarize::Summarize;
pub use target::Target;
pub use termination::{EndWhen, EvidenceCount, OutcomeCount, RefusedCount};

/// A profile as a bundle declares it: the full form, or a bare list of tools with the tenant's default harness.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ProfileForm {
    /// A bare list of tools.
    Short(Vec<ToolId>),
    /// Everything said.
    Full(Box<Profile>),
}

/// By hand, so that an error inside the full form keeps its place instead of becoming "no variant matched".
impl<'de> Deserialize<'de> for ProfileForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = ProfileForm;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a profile, or a list of tool ids")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(seq)).map(ProfileForm::Short)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(|p| ProfileForm::Full(Box::new(p)))
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Repeats the key in the bundle; may be left out.
    #[serde(default)]
    pub name: Option<crate::id::ProfileName>,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// The tools, in the order the model sees them.
    pub tools: Vec<ToolId>,
    /// The bounds; absent means the bundle's `default_harness`. There is no form without bounds.
    #[serde(default)]
    pub harness: Option<Harness>,
    /// The model that proposes; absent means the bundle's `default_model`.
    #[serde(default)]
    pub model: Option<ModelName>,
    /// More than one ballot per step.
    #[serde(default)]
    pub consensus: Option<Consensus>,
    /// Successful calls per tag that must be in the log before `done`.
    #[serde(default)]
    pub trace_requirements: BTreeMap<Tag, u32>,
    /// What happens when a call needs a human.
    #[serde(default)]
    pub approval: ApprovalRules,
    /// Which calls a human is asked about besides those whose tool or rule asks.
    #[serde(default)]
    pub control: ControlMode,
    /// Calls are decided and recorded, and none is executed.
    #[serde(default)]
    pub dry_run: bool,
    /// Bounds over all runs of a session.
    #[serde(default)]
    pub session_budget: SessionBudget,
    /// Rules that end a run, by name; the first that holds, in the order of their names, is recorded.
    #[serde(default)]
    pub end_when: BTreeMap<RuleId, EndWhen>,
    /// Per reason: feed the rejection back, or end the run with its code. Default: feedback.
    #[serde(default)]
    pub on_reject: BTreeMap<RejectReason, OnReject>,
    /// After an `indeterminate` outcome of a `once` call, which may or may not have happened. Default: end.
    #[serde(default = "end")]
    pub on_indeterminate: OnReject,
    /// Text around the system prompt.
    #[serde(default)]
    pub prompt: PromptHooks,
    /// Who sums up earlier steps once the conversation has outgrown its model; absent means that they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarize: Option<Summarize>,
    /// JSON Schema of the final output.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Free metadata for people.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Proposals and the decision each must get: checked when the bundle is loaded.
    #[serde(default)]
    pub examples: Vec<Example>,
}

impl Profile {
    /// The short form: these tools, everything else by default.
    #[must_use]
    pub fn of_tools(tools: Vec<ToolId>) -> Self {
        Self {
            name: None,
            description: String::new(),
            tools,
            harness: None,
            model: None,
            consensus: None,
            trace_requirements: BTreeMap::new(),
            approval: ApprovalRules::default(),
            control: ControlMode::None,
            dry_run: false,
            session_budget: SessionBudget::default(),
            end_when: BTreeMap::new(),
            on_reject: BTreeMap::new(),
            on_indeterminate: OnReject::End,
            prompt: PromptHooks::default(),
            summarize: None,
            output_schema: None,
            labels: BTreeMap::new(),
            examples: Vec::new(),
        }
    }
}

const fn end() -> OnReject {
    OnReject::End
}

/// The bounds of a run. The first three are required: a run that cannot end cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Harness {
    /// Steps, 1 to 200.
    pub max_steps: u32,
    /// Tool calls that may be executed, 0 to 10,000.
    pub max_tool_calls: u32,
    /// Wall clock in milliseconds, 1 to 2,592,000,000 (30 days).
    pub deadline_ms: u64,
    /// Model calls, lost ones included, 1 to 10,000; absent means steps times the ballots of the largest vote times
    /// (1 + retries), and one more for each round with `summarize`.
    #[serde(default)]
    pub max_model_calls: Option<u32>,
    /// Calls under way at once, 1 to 16.
    #[serde(default = "default_parallel")]
    pub max_parallel_calls: u32,
    /// Steps in a row in which nothing was allowed, 1 to 200.
    #[serde(default = "default_rejections")]
    pub max_consecutive_rejections: u32,
    /// Unreadable answers in a row, 1 to 200.
    #[serde(default = "default_parse_failures")]
    pub max_parse_failures: u32,
    /// Final answers in a row that do not match the output schema, 1 to 200; absent means that only
    /// `max_consecutive_rejections` counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_schema_failures: Option<u32>,
    /// How often one canonical call may be proposed in a run, 1 to 10,000.
    #[serde(default = "default_repeats")]
    pub repeat_limit: u32,
    /// Tokens of prompts and answers, at least 1; absent means no bound.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Money for models in millionths of a dollar; absent means no bound. Every model of the profile needs `prices`.
    #[serde(default)]
    pub max_cost_microusd: Option<u64>,
    /// What happens at these bounds; the deadline always ends the run.
    #[serde(default)]
    pub at_limit: AtLimit,
}

const fn default_parallel() -> u32 {
    1
}
const fn default_rejections() -> u32 {
    10
}
const fn default_parse_failures() -> u32 {
    3
}
const fn default_repeats() -> u32 {
    5
}

/// Feed back, or end the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// The model is told, and the run goes on.
    #[default]
    Feedback,
    /// The run ends with the reason's code.
    End,
}

/// Text around the system prompt. `{{name}}` stands for a value of the moment; `transcript` lists the names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptHooks {
    /// First text of the system role.
    #[serde(default)]
    pub before: Option<String>,
    /// Last text of the system role.
    #[serde(default)]
    pub after: Option<String>,
}

/// A proposal and the decision it must get on an empty session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The call.
    pub propose: ExampleCall,
    /// `allow`, `escalate`, or `reject:` and a reason code.
    pub expect: String,
}

/// The call of an example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments.
    #[serde(default)]
    pub args: Value,
}
