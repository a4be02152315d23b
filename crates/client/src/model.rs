//! Documents of the REST interface, as far as this client reads them; unknown fields are ignored. What is not here: frames
//! of the channel (`frame`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Starts a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SessionRequest {
    /// The caller's own id: the same request again leads to the same session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The label, where the bundle classifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The first message.
    pub prompt: String,
    /// What the caller's client can execute.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<String>,
    /// Narrower bounds: `max_steps`, `max_tool_calls`, `max_model_calls`, `deadline_ms`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// Which calls a human is asked about besides those whose tool or rule asks: `none`, `risky` or `all`; never fewer
    /// than the profile asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Decide and record, and execute nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// JSON Schema that the final output must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Free metadata for people.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SessionRequest {
    /// A request under a profile.
    #[must_use]
    pub fn new(profile: &str, prompt: &str) -> Self {
        Self { profile: Some(profile.to_owned()), prompt: prompt.to_owned(), ..Self::default() }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The caller's own id.
    #[serde(default)]
    pub alias: Option<String>,
    /// `running`, `waiting_approval`, `waiting_client`, `idle` or `closed`.
    pub status: String,
    /// The profile; absent until it is chosen.
    #[serde(default)]
    pub profile: Option<String>,
    /// The last sequence number of its log.
    pub head_seq: u64,
    /// The current or last run.
    #[serde(default)]
    pub run: Option<Run>,
    /// Whom it waits for.
    #[serde(default)]
    pub waiting: Waiting,
    /// What may be asked of it now.
    #[serde(default)]
    pub allowed_actions: Vec<String>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Run {
    /// Its number, from 1.
    pub no: u32,
    /// Why it ended; absent while it goes on.
    #[serde(default)]
    pub ending: Option<String>,
    /// Steps completed.
    #[serde(default)]
    pub steps: u32,
    /// The final output, once done.
    #[serde(default)]
    pub output: Option<Value>,
    /// What ended it, in a sentence.
    #[serde(default)]
    pub detail: Option<String>,
    /// What its models said they used: `input_tokens`, `output_tokens`, `cost_microusd`, `unreported`.
    #[serde(default)]
    pub usage: Option<Value>,
}

/// Whom a session waits for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Waiting {
    /// Approvals that nobody has decided: `id`, `call_id`, `tool`, `digest`, `expires_at`.
    #[serde(default)]
    pub approvals: Vec<Value>,
    /// Calls that a client must execute: `call_id`, `tool`, `state`, `client_id`, `attempt`, `deadline_at`.
    #[serde(default)]
    pub client_calls: Vec<Value>,
}

/// An event of a session's log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    /// Place in the log, from 1 without gaps.
    pub seq: u64,
    /// The session.
    pub session_id: String,
    /// When it was recorded; RFC 3339.
    pub at: String,
    /// The kind, for example `call_decided`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The run it belongs to.
    #[serde(default)]
    pub run: Option<u32>,
    /// The step it belongs to.
    #[serde(default)]
    pub step: Option<u32>,
    /// The call it is about.
    #[serde(default)]
    pub call_id: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A page of events, oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EventPage {
    /// The events.
    pub items: Vec<Event>,
    /// The cursor for the next page.
    pub last_seq: u64,
    /// The last sequence number of the log.
    pub head_seq: u64,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor for the next page; absent at the end.
    pub next_cursor: Option<String>,
}

/// An approval. In lists, only the fields up to `allowed_decisions` are set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: String,
    /// The session.
    pub session_id: String,
    /// The call that waits.
    pub call_id: String,
    /// `pending`, `approved`, `denied`, `edited`, `expired` or `cancelled`.
    pub status: String,
    /// When it lapses.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// Who settled it.
    #[serde(default)]
    pub settled_by: Option<String>,
    /// What may be decided now.
    #[serde(default)]
    pub allowed_decisions: Vec<String>,
    /// The tool.
    #[serde(default)]
    pub tool: Option<String>,
    /// The exact arguments.
    #[serde(default)]
    pub args: Option<Value>,
    /// The same with control and direction-changing characters escaped, where `args` has any.
    #[serde(default)]
    pub args_escaped: Option<String>,
    /// Digest of what exactly is approved; the decision repeats it.
    #[serde(default)]
    pub digest: Option<String>,
    /// The recorded answer.
    #[serde(default)]
    pub decision: Option<String>,
}

/// An answer to an approval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run exactly this.
    Approve {
        /// Digest of what was shown.
        digest: String,
        /// Leave for further calls of the session as well.
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<Grant>,
    },
    /// Do not run it.
    Deny {
        /// Digest of what was shown.
        digest: String,
        /// Words for the model and the record.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Run it with other arguments.
    Edit {
        /// Digest of what was shown.
        digest: String,
        /// The new arguments, an object.
        arguments: Value,
    },
    /// Take an approval back that was given, with what it granted, as far as nothing was sent on it.
    Revoke {
        /// Digest of what was shown.
        digest: String,
    },
}

/// Leave for further calls of the session: the same tool with the same arguments, but for those left open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Top-level arguments that may have any value.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub open: BTreeSet<String>,
    /// How long it holds in milliseconds, 1,000 to 2,592,000,000; absent means a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Verification {
    /// Whether chain and decisions fit.
    pub verified: bool,
    /// `ok`, `redacted`, `erased`, `chain_broken`, `diverged`, `unknown_rules` or `invariant_broken`.
    pub code: String,
    /// Rows checked.
    pub events: u64,
    /// The first sequence number that does not fit.
    #[serde(default)]
    pub first_bad_seq: Option<u64>,
    /// What does not fit.
    #[serde(default)]
    pub detail: Option<String>,
}

/// A stored bundle.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BundleInfo {
    /// The digest of its canonical form; `If-Match` of the next write.
    pub digest: String,
    /// Tools by name.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Profiles by name.
    #[serde(default)]
    pub profiles: Vec<String>,
}
