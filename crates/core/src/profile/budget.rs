//! Bounds on what a session may spend over all its runs, and on what a tenant may spend over all its sessions. What is
//! not here: the bounds of one run (`Harness`), and counting (`apply`, and the ledger for tenants).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Target;
use crate::id::ProfileName;

/// What happens when a bound of steps, model calls, tool calls, tokens or money is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtLimit {
    /// The run ends; a call beyond the bound is rejected.
    #[default]
    End,
    /// At `max_steps` the model gets one further turn, in which it can only finish; at the other bounds the run ends.
    WrapUp,
    /// The run pauses, and a human may raise the bound; a call beyond the bound waits for an approval of its own.
    PauseAndAsk,
}

/// Bounds over all runs of one session; absent ones are not bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionBudget {
    /// Model calls, lost ones included, at least 1.
    #[serde(default)]
    pub max_model_calls: Option<u64>,
    /// Tool calls that may be executed.
    #[serde(default)]
    pub max_tool_calls: Option<u64>,
    /// Tokens of prompts and answers, at least 1.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Money in millionths of a dollar.
    #[serde(default)]
    pub max_cost_microusd: Option<u64>,
}

/// Bounds over all sessions of the tenant whose bundles name them; kept by the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantBudget {
    /// Length of the window in milliseconds, 60,000 to 2,678,400,000; windows begin at multiples of it since 1970, so that
    /// 86,400,000 is a day of UTC. Absent means for ever.
    #[serde(default)]
    pub window_ms: Option<u64>,
    /// Model calls.
    #[serde(default)]
    pub max_model_calls: Option<u64>,
    /// Tool calls.
    #[serde(default)]
    pub max_tool_calls: Option<u64>,
    /// Tokens.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Money in millionths of a dollar.
    #[serde(default)]
    pub max_cost_microusd: Option<u64>,
}

/// A bound over the tenant's calls of some tools in a window: how many, or the sum of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantLimit {
    /// The calls it counts.
    pub on: Target,
    /// Profiles whose sessions count; empty means all.
    #[serde(default)]
    pub profiles: BTreeSet<ProfileName>,
    /// Length of the window in milliseconds, as in [`TenantBudget::window_ms`].
    #[serde(default)]
    pub window_ms: Option<u64>,
    /// The most calls.
    #[serde(default)]
    pub max_count: Option<u64>,
    /// JSON pointer to the argument that is added up; a call without a whole number of at least 0 there is rejected.
    #[serde(default)]
    pub argument: Option<String>,
    /// The largest sum of `argument`.
    #[serde(default)]
    pub max_sum: Option<u64>,
}
