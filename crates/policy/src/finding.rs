//! What a judgement says: a decision, the rule that made it, and what every rule that was looked at found.
//! What is not here: how the rules find it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::cedar::CedarAnswer;
use crate::derive::Derived;

/// The answer to "may this call run"; the strictest finding wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run, as far as this engine is asked.
    Allow,
    /// A human must be asked.
    Ask,
    /// It may not run.
    Deny,
}

/// What one rule found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rule has no objection; with a code it has flagged the call all the same.
    Pass,
    /// The rule wants a human to be asked.
    Ask,
    /// The rule denies.
    Deny,
}

/// The layers in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Lists of tools that may not be called.
    List,
    /// Fields that contracts derive from arguments.
    Derived,
    /// Rules on arguments.
    Argument,
    /// Rules on the order of calls.
    Sequence,
    /// Calls per time.
    Rate,
    /// Counts and sums over a run or session.
    Total,
    /// Where an argument's value comes from.
    Origin,
    /// Plausibility.
    Check,
    /// Cedar policies.
    Cedar,
}

/// Why a rule objects or flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The engine knows no tool of this name.
    UnknownTool,
    /// A list names the tool.
    Denylisted,
    /// A declared field cannot be derived from the argument.
    DerivedRefused,
    /// The argument that a rule looks at is missing.
    ArgumentMissing,
    /// The argument that a rule looks at is of another kind.
    ArgumentWrongKind,
    /// A rule on an argument does not hold.
    ArgumentRule,
    /// A call came after one that forbids it, or before one that it needs.
    SequenceRule,
    /// Too many calls in a window of time.
    RateLimited,
    /// A count or sum would pass its limit.
    CumulativeLimit,
    /// The value occurs neither in the user's words nor in a trusted result.
    OriginUnknown,
    /// An amount of zero.
    AmountZeroSuspicious,
    /// An amount below zero.
    AmountNegative,
    /// An amount beyond what is plausible.
    AmountImplausiblyLarge,
    /// A text longer than what is plausible.
    TextImplausiblyLong,
    /// A text with characters that people cannot see or may mistake.
    HiddenCharacters,
    /// A policy forbids the call.
    PolicyForbids,
    /// No policy permits the call.
    PolicyNotPermitted,
    /// A policy permits the call if a human agrees.
    PolicyEscalates,
    /// The call cannot be put before the policies as the schema says.
    ContextInvalid,
    /// A policy failed while it was evaluated.
    PolicyFault,
}

impl Code {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::Denylisted => "denylisted",
            Self::DerivedRefused => "derived_refused",
            Self::ArgumentMissing => "argument_missing",
            Self::ArgumentWrongKind => "argument_wrong_kind",
            Self::ArgumentRule => "argument_rule",
            Self::SequenceRule => "sequence_rule",
            Self::RateLimited => "rate_limited",
            Self::CumulativeLimit => "cumulative_limit",
            Self::OriginUnknown => "origin_unknown",
            Self::AmountZeroSuspicious => "amount_zero_suspicious",
            Self::AmountNegative => "amount_negative",
            Self::AmountImplausiblyLarge => "amount_implausibly_large",
            Self::TextImplausiblyLong => "text_implausibly_long",
            Self::HiddenCharacters => "hidden_characters",
            Self::PolicyForbids => "policy_forbids",
            Self::PolicyNotPermitted => "policy_not_permitted",
            Self::PolicyEscalates => "policy_escalates",
            Self::ContextInvalid => "context_invalid",
            Self::PolicyFault => "policy_fault",
        }
    }
}

/// What one rule found, and what it looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's id; stable as long as the policy is.
    pub rule_id: Arc<str>,
    /// The layer it belongs to.
    pub layer: Layer,
    /// What it found.
    pub outcome: Outcome,
    /// Why, unless it passed without a remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The rule is recorded, not enforced.
    pub shadow: bool,
    /// What would change the answer, without any value of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The inputs it looked at, by name.
    pub looked_at: Arc<[String]>,
}

/// The rule that made the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct First {
    /// Its id.
    pub rule_id: Arc<str>,
    /// Why.
    pub code: Code,
    /// What would change the answer.
    pub detail: String,
}

/// What the engine says about one call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The decision: the strictest of the enforced findings.
    pub decision: Decision,
    /// The first rule, in the fixed order, with that outcome; absent if the call is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<First>,
    /// Every rule looked at, in order. A layer after one that denies is not looked at.
    pub findings: Vec<Finding>,
    /// The derived fields of the call, by name; those from secret arguments are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub derived: BTreeMap<String, Derived>,
    /// What the policy files answered, if they were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cedar: Option<CedarAnswer>,
}
