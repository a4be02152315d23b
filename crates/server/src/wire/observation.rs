//! What observers are told: thin facts without content. Whoever needs more reads the log from `seq`. What is not here:
//! delivering them (`observers`).

use serde::{Deserialize, Serialize};
use toolgate_core::id::{CallId, SessionId, Sha256Digest};
use toolgate_core::time::Timestamp;

use super::time_text;

/// A fact that an observer is told, at least once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observation {
    /// Version of this form; 1.
    pub version: u32,
    /// The observer's name.
    pub observer: String,
    /// Digest of the session's bundle, which says where the observer lives.
    pub bundle: String,
    /// The session.
    pub session_id: String,
    /// The event it tells of, or the last one of what it tells of.
    pub seq: u64,
    /// When it was recorded; RFC 3339 with three decimals.
    pub at: String,
    /// `call_ended`, `call_decided` (rejected), `step_ended` or `run_ended`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The run.
    pub run: Option<u32>,
    /// The step.
    pub step: Option<u32>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// How it ended: the call's status, `completed`, or the run's ending.
    pub status: String,
}

impl Observation {
    /// A fact about a session that has no observer yet.
    #[must_use]
    pub fn new(
        session: SessionId,
        seq: u64,
        at: Timestamp,
        kind: &str,
        run: Option<u32>,
        step: Option<u32>,
        status: &str,
    ) -> Self {
        Self {
            version: 1,
            observer: String::new(),
            bundle: String::new(),
            session_id: session.to_string(),
            seq,
            at: time_text(at),
            kind: kind.to_owned(),
            run,
            step,
            call_id: None,
            status: status.to_owned(),
        }
    }

    /// The same about a call.
    #[must_use]
    pub fn about(self, call: &CallId) -> Self {
        Self { call_id: Some(call.to_string()), ..self }
    }

    /// The same for an observer of a bundle.
    #[must_use]
    pub fn to(self, observer: &str, bundle: Sha256Digest) -> Self {
        Self { observer: observer.to_owned(), bundle: bundle.to_string(), ..self }
    }

    /// Unique in the session; the idempotency key towards the observer.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}-{}-{}", self.seq, self.kind, self.observer)
    }
}
