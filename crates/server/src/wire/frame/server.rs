//! The frames that the server sends. What is not here: when they are sent (`channel`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::wire::RawJson;
use crate::wire::event::EventView;

/// The answer to `Hello`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Welcome {
    /// Version of the frames: 1.
    pub protocol: u32,
    /// This connection, for logs and support.
    pub connection_id: String,
    /// A ping comes this often; whoever hears nothing for twice as long is cut off. Milliseconds.
    pub heartbeat_ms: u64,
    /// Longest frame the client may send, in bytes. The server's own frames may be longer.
    pub max_frame_bytes: u64,
    /// Sessions that are followed from here on.
    pub resumed: Vec<Resumed>,
    /// Sessions that this credential cannot see: they do not exist, or belong to somebody else.
    pub gone: Vec<String>,
}

/// A session that is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Resumed {
    /// The session.
    pub id: String,
    /// The first event that will be sent.
    pub from_seq: u64,
}

/// A call to run, exactly as approved. Sent again after each reconnect until `CallSettled`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovedToolCall {
    /// The session.
    pub session_id: String,
    /// The call; the same call and attempt must never be run twice.
    pub call_id: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Place of the dispatch in the log; the report repeats it.
    pub fence: u64,
    /// The tool.
    pub tool: String,
    /// The canonical arguments: the tool gets these very bytes. Integers may use 64 bits.
    pub args: RawJson,
    /// SHA-256 of the bytes of `args`; the report repeats it.
    pub args_hash: String,
    /// When the outcome is overdue.
    pub deadline_at: String,
    /// The same as time left when this frame was sent, in milliseconds, for clients whose clock is wrong.
    pub expires_in_ms: u64,
    /// Most bytes of output that a report may carry; cut, or report `failed`. Absent when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

/// A call has its terminal record; stop running it, forget its report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallSettled {
    /// The session.
    pub session_id: String,
    /// The call.
    pub call_id: String,
    /// Place of the terminal record in the log.
    pub seq: u64,
    /// How the call ended, where it was not the client's own report that ended it: `timed_out`, `cancelled`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// How far a running call has come. Sent by the executor, passed on to others that follow the session on the same node;
/// not stored, may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallProgress {
    /// The session.
    #[schemars(regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: String,
    /// The call.
    #[schemars(regex(pattern = r"^call_[0-9a-f]{32}$"))]
    pub call_id: String,
    /// The attempt.
    pub attempt: u32,
    /// For people; at most 2,000 characters.
    #[schemars(length(max = 2000))]
    pub note: String,
}

/// An event of a session's log, in order and without gaps per session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StreamEvent {
    /// The session.
    pub session_id: String,
    /// Place in the log; the cursor for the next `Hello`.
    pub seq: u64,
    /// The client's own id of the frame that this event records, or that started the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<String>,
    /// The event, as in every other way to read events.
    pub event: EventView,
}

/// A run is over; follows the `StreamEvent` of its `run_ended`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FinalOutput {
    /// The session.
    pub session_id: String,
    /// Place of `run_ended` in the log.
    pub seq: u64,
    /// The run.
    pub run: u32,
    /// Why it ended: `done`, or a reason.
    pub ending: String,
    /// What the model gave back; absent unless `done`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<RawJson>,
    /// What ended it, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The server is about to close the connection, because it restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Closing {
    /// Connect again after this time in milliseconds.
    pub reconnect_ms: u64,
}

/// A frame was refused, or a subscription failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorFrame {
    /// The stable code, as in `docs/ERRORS.md`.
    pub code: String,
    /// What it is about: the frame's `frame_id`, else the call, approval or session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<String>,
    /// The same as a problem document (RFC 9457).
    pub problem: Problem,
}

impl ErrorFrame {
    /// The frame for a refused request.
    #[must_use]
    pub fn of(error: &ApiError, re: Option<String>) -> Self {
        let problem = error.problem();
        let problem = Problem {
            kind: problem.kind,
            title: problem.title,
            status: problem.status,
            code: problem.code,
            detail: Some(problem.detail).filter(|detail| !detail.is_empty()),
        };
        Self { code: problem.code.clone(), re, problem }
    }
}

/// A problem document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// A URI for the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The status that the same refusal has in REST.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
