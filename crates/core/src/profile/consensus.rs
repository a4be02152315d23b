//! More than one ballot per step: how many, from whom, and when they agree. What is not here: counting (`consensus`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::consensus::{Electorate, Rule};
use crate::id::{ModelName, ToolId};
use crate::tool::Risk;

/// n ballots, of which enough must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consensus {
    /// Ballots per round, 1 to 9.
    pub n: u32,
    /// Who wins.
    #[serde(default)]
    pub rule: Rule,
    /// Equal proposals that win by the rule `k_of_n`, 1 to n; no other rule has it.
    #[serde(default)]
    pub k: Option<u32>,
    /// Models in turn per ballot; empty means the profile's model for all.
    #[serde(default)]
    pub models: Vec<ModelName>,
    /// Texts of which each ballot gets one, in turn, after its instructions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variety: Vec<String>,
    /// When a round is decided.
    #[serde(default)]
    pub decide: DecideWhen,
    /// Arguments that must agree, as JSON pointers, by tool; for other tools all of them must.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub compare: BTreeMap<ToolId, Vec<String>>,
    /// What happens without agreement.
    #[serde(default)]
    pub on_no_consensus: OnNoConsensus,
    /// Further rounds when `on_no_consensus` is `retry`, 0 to 10; after them the step is rejected.
    #[serde(default)]
    pub retries: u32,
    /// A human must approve the calls of a winner with which less than this share of all ballots agrees, 1 to 100.
    #[serde(default)]
    pub escalate_below_percent: Option<u32>,
    /// Larger votes for calls of tools of a risk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_risk: BTreeMap<Risk, Votes>,
    /// Larger votes for calls of a tool; before those for its risk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_tool: BTreeMap<ToolId, Votes>,
}

impl Consensus {
    /// The vote with which a round begins.
    #[must_use]
    pub fn electorate(&self) -> Electorate {
        Electorate::new(self.n, self.rule, self.k)
    }

    /// Ballots of the largest vote that a round can become.
    #[must_use]
    pub fn most_ballots(&self) -> u32 {
        self.by_risk.values().chain(self.by_tool.values()).map(|votes| votes.n).fold(self.n, u32::max)
    }
}

/// Ballots and how many of them must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Votes {
    /// Ballots, 1 to 9.
    pub n: u32,
    /// Who wins; not `first`.
    #[serde(default)]
    pub rule: Rule,
    /// Equal proposals that win by the rule `k_of_n`, 1 to n; no other rule has it.
    #[serde(default)]
    pub k: Option<u32>,
}

/// When a round is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecideWhen {
    /// As soon as no missing ballot can change what follows; the missing ones are cancelled.
    #[default]
    Early,
    /// When all ballots are there.
    All,
}

/// What happens when the ballots do not agree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNoConsensus {
    /// Another round, then rejection.
    Retry,
    /// The calls of the strongest group wait for a human.
    Escalate,
    /// The step is rejected.
    #[default]
    Reject,
}
