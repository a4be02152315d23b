//! What a run leaves behind for the checker: what outsiders were told, what tools were asked, and the logs as the API and
//! the database give them. What is not here: judging it (`check`), reading it (`database`, `outside`).

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::journal::Asked;

/// A SHA-256.
pub type Digest = [u8; 32];

/// The digest of an event as an outsider saw it: of its members that are not null, in the order of their names, since the
/// client library does not tell null from absent.
#[must_use]
pub fn digest(event: &Value) -> Digest {
    let mut event = event.clone();
    if let Some(members) = event.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
    event.sort_all_objects();
    Sha256::digest(event.to_string().as_bytes()).into()
}

/// A promise that a caller was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The session.
    pub session: String,
    /// What was acknowledged.
    pub fact: Fact,
}

/// What was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A session was started with this prompt; no other session has it.
    Started(String),
    /// A message with this text was taken; no other has it.
    Said(String),
    /// An approval was decided.
    Decided {
        /// The approval.
        approval: String,
        /// `approve` or `deny`.
        decision: String,
    },
    /// The run was cancelled.
    Cancelled,
    /// The session was closed.
    Closed,
}

/// Everything that outsiders hold in their hands.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Acknowledged requests.
    pub acks: Vec<Ack>,
    /// Events that callers and clients saw, by session and number.
    pub seen: BTreeMap<String, BTreeMap<u64, Digest>>,
    /// Heads of chains that were visible in the database, by session and number.
    pub heads: BTreeMap<String, BTreeMap<u64, Digest>>,
    /// What tools were asked.
    pub journal: Vec<Asked>,
    /// Events that were shown in two forms.
    pub contradictions: Vec<String>,
    /// What did not end in time, did not answer as it should, or ended by itself.
    pub complaints: Vec<String>,
    /// What was not as the first time when an answered request was sent again.
    pub other_answers: Vec<String>,
    /// Answered requests that were sent again.
    pub repeated: u64,
}

/// A row of the log as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub seq: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Its kind.
    pub kind: String,
    /// The call it is about.
    pub call: Option<String>,
    /// Whether the call may be sent from here on.
    pub allow: bool,
    /// The attempt that it dispatches.
    pub dispatch: Option<u64>,
    /// The hash of the row before.
    pub prev_hash: Digest,
    /// Its hash.
    pub hash: Digest,
}

/// One session as it stands in the end.
#[derive(Debug, Clone)]
pub struct SessionLog {
    /// Its id, as the API names it.
    pub id: String,
    /// Number and hash of the last row, as the session's own row says.
    pub head: (u64, Digest),
    /// Whether work is under way.
    pub active: bool,
    /// The rows.
    pub rows: Vec<Row>,
    /// The events as the API gives them.
    pub events: Vec<Value>,
    /// What `toolgate verify` says of it: inputs decided again, or what is broken.
    pub verified: Result<u64, String>,
}
