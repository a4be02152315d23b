//! One event as callers see it, in pages, NDJSON, SSE and `StreamEvent` alike. What is not here: the forms of each kind
//! (`fact`) and how they are made (`make`).

use schemars::JsonSchema;
use serde::Serialize;
use toolgate_core::event::Recorded;
use toolgate_core::id::SessionId;
use utoipa::ToSchema;

use super::time_text;

mod control;
pub mod fact;
mod make;
mod policy;
mod read;
mod summary;
mod vote;

pub(crate) use control::control_word;
pub use fact::Fact;
pub(crate) use make::{class_word, reporter, venue_word};
pub use read::{ExportFault, read_export};

/// An event of a session's log. `seq` grows by one from 1 and never changes; `content` holds what people and models
/// said, all other fields are safe to show. A reader must ignore fields and types it does not know.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct EventView {
    /// Place in the log, from 1 without gaps; the cursor of every way to read events.
    pub seq: u64,
    /// The session.
    pub session_id: String,
    /// When it was recorded; RFC 3339 with three decimals.
    pub at: String,
    /// The run it belongs to, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The step within the run, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The call it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The id of the input it records, where the sender gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_id: Option<String>,
    /// What happened; its `type` names the kind.
    #[serde(flatten)]
    pub fact: Fact,
}

impl EventView {
    /// The view of a recorded event of this session.
    #[must_use]
    pub fn of(session: SessionId, recorded: &Recorded) -> Self {
        let (run, step) = recorded.event.position();
        Self {
            seq: recorded.seq,
            session_id: session.to_string(),
            at: time_text(recorded.at),
            run: run.filter(|run| *run > 0),
            step,
            call_id: recorded.event.marks().call.map(|call| call.to_string()),
            input_id: recorded.input_id.as_ref().map(ToString::to_string),
            fact: Fact::from(&recorded.event),
        }
    }

    /// The name of the kind: `type` of the JSON, `event` of SSE.
    #[must_use]
    pub const fn kind(recorded: &Recorded) -> &'static str {
        recorded.event.kind()
    }
}
