//! One row of the log as it is stored. What is not here: what an event means (`toolgate_core::event`), how it becomes
//! bytes (`codec`), and how rows are chained (`chain`).

use serde::{Deserialize, Serialize};
use toolgate_core::id::{CallId, InputId};
use toolgate_core::time::Timestamp;

/// The kind of the row after which only late facts may follow.
pub const SESSION_CLOSED: &str = "session_closed";

/// The kinds that may follow [`SESSION_CLOSED`].
pub const AFTER_CLOSE: [&str; 4] = ["late_outcome", "outcome_refused", "budget_settled", "erased"];

/// One row of a session's log, without the tenant and session that own it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Position in the session's log, gap-free from 1.
    pub seq: u64,
    /// The ownership period in which it was written; never decreases.
    pub epoch: u64,
    /// The kind of the event, in snake case.
    pub kind: String,
    /// The run it belongs to, from 1.
    pub run: Option<u32>,
    /// The step within the run, from 1.
    pub step: Option<u32>,
    /// The call it is about.
    pub call: Option<CallId>,
    /// What the row does to its call.
    pub marks: Marks,
    /// The input it records; unique in the session.
    pub input_id: Option<InputId>,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The part that is safe to show, as the exact bytes that are hashed.
    pub header: Vec<u8>,
    /// The sealed content; the header holds its digest. Empty when there is none.
    pub payload: Vec<u8>,
    /// The hash of the row before, or zeros at the first.
    pub prev_hash: [u8; 32],
    /// The hash of this row.
    pub hash: [u8; 32],
}

/// What a row does to the call it names. The database holds rules over these: one decision, one dispatch per attempt and
/// one terminal record per call, a dispatch only after an allow, a terminal record only after a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Marks {
    /// The row is the pipeline's decision about the call (allow, reject or escalate).
    #[serde(skip_serializing_if = "is_false")]
    pub decision: bool,
    /// From this row on the call may run: the decision was allow, or an approval was granted.
    #[serde(skip_serializing_if = "is_false")]
    pub allow: bool,
    /// The row dispatches this attempt of the call, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch_attempt: Option<u32>,
    /// The row is the call's terminal record.
    #[serde(skip_serializing_if = "is_false")]
    pub terminal: bool,
}

impl Marks {
    /// A row that does nothing to a call.
    pub const NONE: Self = Self { decision: false, allow: false, dispatch_attempt: None, terminal: false };

    /// Whether the row does nothing to a call.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}
