//! Remembered approvals: what one grant covers, and by what a call misses it. What is not here: who may give one, and
//! keeping them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exact::same;

/// A remembered approval. It covers exactly what was approved: one tool as it was then, one bundle, one session, one
/// value of every argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The tool.
    pub tool: String,
    /// The version of its contract.
    pub tool_version: String,
    /// The bundle's digest.
    pub bundle: String,
    /// The session.
    pub session: String,
    /// The arguments that were approved.
    pub args: Value,
    /// Top-level arguments that the approver left open: they may have any value, or be absent. Empty covers the exact
    /// arguments alone.
    #[serde(default)]
    pub open: std::collections::BTreeSet<String>,
    /// When it ends, microseconds since 1970; from then on it covers nothing.
    pub expires_at_micros: u64,
}

/// A call that may be covered.
#[derive(Debug, Clone, Copy)]
pub struct GrantCall<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The version of its contract.
    pub tool_version: &'a str,
    /// The bundle's digest.
    pub bundle: &'a str,
    /// The session.
    pub session: &'a str,
    /// The arguments.
    pub args: &'a Value,
    /// Now, microseconds since 1970.
    pub at_micros: u64,
}

/// Why a grant does not cover a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantMiss {
    /// Another tool.
    #[error("the grant is for another tool")]
    Tool,
    /// The tool's contract changed.
    #[error("the tool is another version than the one approved")]
    ToolVersion,
    /// The bundle changed.
    #[error("the bundle is another than the one under which it was approved")]
    Bundle,
    /// Another session.
    #[error("the grant is for another session")]
    Session,
    /// It has expired.
    #[error("the grant has expired")]
    Expired,
    /// Other arguments.
    #[error("the arguments are others than those approved")]
    Args,
}

impl Grant {
    /// Whether the grant covers a call. A null argument is not an absent one, here as everywhere.
    pub fn covers(&self, call: &GrantCall<'_>) -> Result<(), GrantMiss> {
        let checks = [
            (self.tool == call.tool, GrantMiss::Tool),
            (self.tool_version == call.tool_version, GrantMiss::ToolVersion),
            (self.session == call.session, GrantMiss::Session),
            (self.bundle == call.bundle, GrantMiss::Bundle),
            (call.at_micros < self.expires_at_micros, GrantMiss::Expired),
            (self.args_fit(call.args), GrantMiss::Args),
        ];
        checks.into_iter().find_map(|(holds, miss)| (!holds).then_some(miss)).map_or(Ok(()), Err)
    }

    fn args_fit(&self, args: &Value) -> bool {
        match (&self.args, args) {
            (Value::Object(granted), Value::Object(args)) => {
                let bound = |name: &str| !self.open.contains(name);
                granted
                    .iter()
                    .filter(|(name, _)| bound(name))
                    .all(|(name, value)| args.get(name).is_some_and(|other| same(value, other)))
                    && args.keys().filter(|name| bound(name)).all(|name| granted.contains_key(name))
            }
            (granted, args) => same(granted, args),
        }
    }
}
