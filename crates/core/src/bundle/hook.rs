//! An operator's own endpoints: admission hooks, which allow, deny or rewrite a call before anything else happens to it,
//! and observers, which are told afterwards. What is not here: calling them (the server), and what an answer leads to
//! (`decide::admission`).

use serde::{Deserialize, Serialize};
use toolgate_policy::RuleId;

use crate::profile::Target;

/// An admission hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookDef {
    /// Its name, unique in the bundle.
    pub name: RuleId,
    /// What it may do.
    pub kind: HookKind,
    /// The calls it is asked about.
    pub on: Target,
    /// Absolute `http` or `https` URL; one `POST` a question. Redirects are not followed.
    pub url: String,
    /// Name of the environment variable whose value is sent as bearer token; absent means none. Begins with
    /// `TOOLGATE_SECRET_`.
    #[serde(default)]
    pub bearer_env: Option<String>,
    /// Time for an answer in milliseconds, 1 to 30,000. Without an answer the call is denied.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// What a hook may do. Mutating hooks are asked before validating ones, each kind in the order of the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// Allow, deny, or write other arguments.
    Mutating,
    /// Allow or deny.
    Validating,
}

/// An observer: it is told at least once of each fact it asks for, and can change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserverDef {
    /// Its name, unique in the bundle.
    pub name: RuleId,
    /// What it is told of.
    pub on: std::collections::BTreeSet<Observed>,
    /// Absolute `http` or `https` URL; one `POST` a fact. Redirects are not followed.
    pub url: String,
    /// Name of the environment variable whose value is sent as bearer token; absent means none. Begins with
    /// `TOOLGATE_SECRET_`.
    #[serde(default)]
    pub bearer_env: Option<String>,
}

/// What an observer is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// Each call that is over.
    Call,
    /// Each step that is over.
    Step,
    /// Each run that is over.
    Run,
}

const fn default_timeout_ms() -> u64 {
    5_000
}
