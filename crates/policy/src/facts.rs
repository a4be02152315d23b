//! What a judgement may read, as plain values: the tools as contracts declare them, the call, what happened before.
//! What is not here: where the values come from (a bundle and a log, which the caller reads).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::derive::DerivedForm;

/// A tool, as far as rules can ask about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFacts {
    /// Its id.
    pub id: String,
    /// Who executes.
    pub venue: Venue,
    /// What may happen after an unknown outcome.
    pub class: Class,
    /// How much harm a wrong call can do.
    pub risk: Risk,
    /// Its evidence tags.
    pub tags: BTreeSet<String>,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Fields that its contract derives from the arguments.
    pub derived: Vec<DerivedForm>,
    /// JSON pointers into the arguments whose values must not leave the engine, neither in details nor derived.
    pub secret: Vec<String>,
}

/// Who executes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Venue {
    /// Toolgate's own server.
    Server,
    /// The user's machine.
    Client,
}

/// What may happen to a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// No effect: may run again.
    Read,
    /// May run again under the same key.
    Idempotent,
    /// At most one dispatch.
    Once,
}

/// How much harm a wrong call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Venue {
    /// The word used in policies.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

impl Class {
    /// The word used in policies.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Once => "once",
        }
    }
}

impl Risk {
    /// The word used in policies.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One proposed call and everything that a decision about it may read.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The tool's id.
    pub tool: &'a str,
    /// The canonical arguments.
    pub args: &'a Value,
    /// The session's profile.
    pub profile: &'a str,
    /// Who the credential says the session belongs to.
    pub principal: Principal<'a>,
    /// The session.
    pub session: SessionFacts<'a>,
    /// Time of the input under decision, microseconds since 1970.
    pub at_micros: u64,
    /// Earlier calls of the session, oldest first, those of the same step that were decided before this one included.
    pub earlier: &'a [EarlierCall<'a>],
    /// What the user wrote, one entry a message.
    pub user_words: &'a [&'a str],
    /// Where a path argument really leads, by JSON pointer, where the driver could ask the file system (a logged input).
    pub resolved_paths: Option<&'a BTreeMap<String, String>>,
}

/// Who a session belongs to; from the credential alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Principal<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The actor's id within the tenant.
    pub id: &'a str,
    /// The credential's roles.
    pub roles: &'a [&'a str],
}

/// Facts of the session that policies may read.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionFacts<'a> {
    /// Its id.
    pub id: &'a str,
    /// The label that classification gave, if it ran.
    pub label: Option<&'a str>,
    /// The run, from 1.
    pub run: u32,
    /// The step within the run, from 1.
    pub step: u32,
    /// Tool calls counted in the run so far.
    pub tool_calls: u64,
    /// Micro-units of money spent in the run so far.
    pub spent_micros: u64,
    /// The run's limit in micro-units, if there is one.
    pub limit_micros: Option<u64>,
    /// Ballots of the step.
    pub ballots: u32,
    /// Ballots that agreed on this proposal.
    pub agreed: u32,
}

/// A call that was proposed before.
#[derive(Debug, Clone, Copy)]
pub struct EarlierCall<'a> {
    /// The run it belongs to.
    pub run: u32,
    /// The name it was proposed under; may be no tool.
    pub tool: &'a str,
    /// Where it stands now.
    pub status: CallStatus,
    /// The canonical arguments; absent if they could not be read.
    pub args: Option<&'a Value>,
    /// The result as text, if it is kept and may be looked at.
    pub result: Option<&'a str>,
    /// When it was decided, microseconds since 1970.
    pub at_micros: u64,
}

/// Where an earlier call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// It waits for an approval or another answer.
    Waiting,
    /// Allowed; no outcome yet.
    Running,
    /// It succeeded.
    Ok,
    /// It failed.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// Nobody knows whether it happened.
    Indeterminate,
    /// The client refused to run it.
    DeniedByClient,
    /// It never ran: rejected, denied, expired, cancelled, run ended.
    NotExecuted,
    /// Decided in a dry run; nothing ran.
    DryRun,
    /// An earlier outcome was returned; nothing ran.
    Replayed,
}

impl CallStatus {
    /// Whether the call has, may have, or may still have an effect. Limits and `after` rules count these.
    #[must_use]
    pub const fn may_have_effect(self) -> bool {
        match self {
            Self::Waiting | Self::Running | Self::Ok | Self::Failed | Self::TimedOut | Self::Indeterminate => true,
            Self::DeniedByClient | Self::NotExecuted | Self::DryRun | Self::Replayed => false,
        }
    }
}
