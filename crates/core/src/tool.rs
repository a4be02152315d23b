//! Tool contracts: what a tool is called, takes, and is allowed to mean. What is not here: running tools (the server),
//! compiling schemas (`schema`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{Capability, Tag, ToolId};

/// A tool as a bundle declares it. `version` is the hash of this definition (`Bundle::tool`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDef {
    /// Repeats the key in the bundle; may be left out.
    #[serde(default)]
    pub id: Option<ToolId>,
    /// What it does, for the model; 1 to 4,096 characters.
    pub description: String,
    /// JSON Schema of the arguments; `additionalProperties` is `false` unless said.
    pub parameters: Value,
    /// JSON Schema of a successful result; absent means unchecked.
    #[serde(default)]
    pub result: Option<Value>,
    /// Who executes.
    pub venue: Venue,
    /// What may happen after an unknown outcome.
    #[serde(default)]
    pub class: ToolClass,
    /// Evidence tags that one success counts for.
    #[serde(default)]
    pub tags: BTreeSet<Tag>,
    /// A human must approve each call.
    #[serde(default)]
    pub requires_approval: bool,
    /// How much harm a wrong call can do.
    #[serde(default)]
    pub risk: Risk,
    /// Time from dispatch to outcome in milliseconds, 1 to 900,000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Bytes of output that are kept, 1 to 8,388,608.
    #[serde(default = "default_max_output_bytes")]
    pub max_output_bytes: u64,
    /// JSON pointers into the arguments whose values are sealed apart and destroyed when the call ends (ruling 1).
    #[serde(default)]
    pub redact: Vec<String>,
    /// How the server runs it; required for venue `server`, refused for `client`.
    #[serde(default)]
    pub executor: Option<Executor>,
    /// What a client must declare to be offered the tool; venue `client` only.
    #[serde(default)]
    pub capability: Option<Capability>,
    /// Fields computed from the arguments by pure code, for policies to read: a path's real place, a URL's host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<toolgate_policy::derive::DerivedForm>,
    /// The argument that carries the caller's idempotency key, if the contract has one (ruling 6).
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

const fn default_timeout_ms() -> u64 {
    30_000
}
const fn default_max_output_bytes() -> u64 {
    1_048_576
}

/// Who executes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Venue {
    /// Toolgate's own server.
    Server,
    /// The user's machine, over the channel.
    Client,
}

/// What may happen to a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolClass {
    /// No effect: may run again.
    Read,
    /// May run again under the same idempotency key.
    Idempotent,
    /// At most one dispatch; unknown stays unknown.
    #[default]
    Once,
}

/// How much harm a wrong call can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Little.
    Low,
    /// Some.
    #[default]
    Medium,
    /// Much.
    High,
}

impl Risk {
    /// The word used in bundles.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How the server runs a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Executor {
    /// `POST` of the canonical arguments to a URL.
    Http(HttpExecutor),
    /// A pure function inside the server.
    Builtin(String),
}

/// What the name of every variable begins with that a bundle may name as a secret. A bundle comes from a tenant; without
/// this rule it could send any secret of the server to an address of its choice.
pub const SECRET_PREFIX: &str = "TOOLGATE_SECRET_";

/// An HTTP tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpExecutor {
    /// Absolute `http` or `https` URL. Redirects are not followed.
    pub url: String,
    /// Name of the environment variable whose value is sent as bearer token; absent means none. Begins with [`SECRET_PREFIX`].
    #[serde(default)]
    pub bearer_env: Option<String>,
}
