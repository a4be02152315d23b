//! The policy section of a bundle, as written. What is not here: what the single rules say (their modules), checking and
//! compiling (`engine`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::ArgumentRule;
use crate::cedar::CedarForm;
use crate::facts::CallStatus;
use crate::fault::Fault;
use crate::history::{EvidenceRule, RateRule, RepeatRule, SequenceRule, TotalRule};
use crate::origin::OriginRule;
use crate::rule::{Mode, RuleId, Selector};
use crate::semantic::CheckRule;
use crate::written;

/// The policy section of a bundle. Rules are maps by id; their order means nothing: deny wins over ask, ask over allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyForm {
    /// Calls that are denied, whatever else is said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lists: BTreeMap<RuleId, ListRule>,
    /// Rules on arguments.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<RuleId, ArgumentRule>,
    /// Rules on the order of calls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: BTreeMap<RuleId, SequenceRule>,
    /// Calls per time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<RuleId, RateRule>,
    /// Cumulative limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<RuleId, TotalRule>,
    /// Rules on where a value comes from.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<RuleId, OriginRule>,
    /// Plausibility checks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checks: BTreeMap<RuleId, CheckRule>,
    /// Policy files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cedar: BTreeMap<RuleId, CedarForm>,
    /// Loop detection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RepeatRule>,
    /// Evidence before a run is done.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<RuleId, EvidenceRule>,
    /// What is done with rules that are valid and known traps.
    pub lint: LintMode,
    /// Calls and the decision each must get; checked when the policy is compiled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<PolicyExample>,
}

/// Calls that are denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRule {
    /// The calls.
    pub on: Selector,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What is done with rules that are valid and known traps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LintMode {
    /// `Policy::lint` names them.
    #[default]
    Warn,
    /// The policy is refused.
    Strict,
}

/// A call and the decision it must get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyExample {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The profile; may be left out where there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default = "empty_object")]
    pub args: Value,
    /// What the user wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<String>,
    /// Earlier calls, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<ExampleCall>,
    /// Roles of the credential.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// `allow`, `ask` or `deny`; with `:` and the id of the rule that must decide, or the code it must give.
    pub expect: String,
}

/// An earlier call of an example, in the same run, one second apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default = "empty_object")]
    pub args: Value,
    /// Where it stands.
    #[serde(default = "ok")]
    pub status: CallStatus,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

const fn ok() -> CallStatus {
    CallStatus::Ok
}

impl PolicyForm {
    /// Reads a policy section strictly. The fault names the place of the first thing that is no part of the format.
    pub fn read(value: &Value) -> Result<Self, Fault> {
        written::read(value).map_err(|misfit| Fault { pointer: misfit.pointer, rule: "shape", detail: misfit.detail })
    }
}
