//! Rules that end a run once a condition on its log holds. What is not here: asking them (`decide::termination`).

use serde::{Deserialize, Serialize};

use crate::id::{Tag, ToolId};
use crate::output::OutcomeStatus;
use crate::reason::RejectReason;

/// A condition on the calls of the current run; exactly one of the conditions must be named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndWhen {
    /// For people and for the ending's detail.
    #[serde(default)]
    pub description: String,
    /// So many calls with this outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<OutcomeCount>,
    /// So many calls that were rejected, denied or lapsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedCount>,
    /// So many successes for a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceCount>,
}

/// Calls with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeCount {
    /// The tool; absent means any.
    #[serde(default)]
    pub tool: Option<ToolId>,
    /// The outcome.
    pub status: OutcomeStatus,
    /// How many, at least 1.
    pub at_least: u32,
}

/// Calls that were not executed by decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedCount {
    /// The tool's name as the model wrote it; absent means any.
    #[serde(default)]
    pub tool: Option<String>,
    /// The reason; absent means any.
    #[serde(default)]
    pub reason: Option<RejectReason>,
    /// How many, at least 1.
    pub at_least: u32,
}

/// Successes for a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceCount {
    /// The tag.
    pub tag: Tag,
    /// How many, at least 1.
    pub at_least: u32,
}
