//! What the policies found about a call, as the log keeps it: safe to show, without any value of the call.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolgate_policy::{Decision, Finding, Judgement, Outcome};

/// What the policies found about one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// `allow`, `ask` or `deny`.
    pub decision: Cow<'static, str>,
    /// The rule that made it, unless allowed.
    pub rule: Option<Arc<str>>,
    /// That rule's code.
    pub code: Option<Cow<'static, str>>,
    /// Every rule looked at, in order; layers after one that denies are not looked at.
    pub findings: Vec<FindingRecord>,
    /// What the policy files answered, if they were asked.
    pub cedar: Option<CedarRecord>,
}

/// What one rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingRecord {
    /// The rule.
    pub rule: Arc<str>,
    /// `pass`, `ask` or `deny`.
    pub outcome: Cow<'static, str>,
    /// Why, unless it passed without a remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'static, str>>,
    /// The rule is recorded, not enforced.
    #[serde(default)]
    pub shadow: bool,
    /// What would change the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The inputs it looked at, by name.
    pub looked_at: Arc<[String]>,
}

/// What the policy files answered, and which they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CedarRecord {
    /// The policies that made the answer.
    pub deciding: Vec<String>,
    /// Policies that failed.
    pub failed: Vec<String>,
    /// SHA-256 over the enforced sets, hex.
    pub policy_hash: Arc<str>,
    /// SHA-256 of the schema, hex.
    pub schema_hash: Arc<str>,
    /// Version of the engine and of the language.
    pub engine: Arc<str>,
}

impl From<Judgement> for PolicyRecord {
    fn from(judgement: Judgement) -> Self {
        Self {
            decision: match judgement.decision {
                Decision::Allow => "allow",
                Decision::Ask => "ask",
                Decision::Deny => "deny",
            }
            .into(),
            code: judgement.first.as_ref().map(|first| first.code.code().into()),
            rule: judgement.first.map(|first| first.rule_id),
            findings: judgement.findings.into_iter().map(FindingRecord::from).collect(),
            cedar: judgement.cedar.map(|cedar| CedarRecord {
                deciding: cedar.deciding,
                failed: cedar.failed,
                policy_hash: cedar.policy_hash,
                schema_hash: cedar.schema_hash,
                engine: cedar.engine,
            }),
        }
    }
}

impl From<Finding> for FindingRecord {
    fn from(finding: Finding) -> Self {
        Self {
            rule: finding.rule_id,
            outcome: match finding.outcome {
                Outcome::Pass => "pass",
                Outcome::Ask => "ask",
                Outcome::Deny => "deny",
            }
            .into(),
            code: finding.code.map(|code| code.code().into()),
            shadow: finding.shadow,
            detail: finding.detail,
            looked_at: finding.looked_at,
        }
    }
}
