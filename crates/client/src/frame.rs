//! Frames of the channel as an outside client sees them; a test compares them with the published schema. What is not here:
//! when they are sent (`executor`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ApiFailure;
use crate::model::{Event, SessionRequest};

/// The subprotocol.
pub(crate) const SUBPROTOCOL: &str = "toolgate.v1";

/// A frame that this client sends.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub(crate) enum Outgoing<'a> {
    Hello {
        protocol: u32,
        client_id: &'a str,
        capabilities: Vec<&'a str>,
        observe: bool,
        sessions: Vec<Cursor<'a>>,
    },
    Request {
        frame_id: &'a str,
        #[serde(flatten)]
        request: &'a SessionRequest,
    },
    CallAck {
        session_id: &'a str,
        call_id: &'a str,
        attempt: u32,
    },
    CallProgress {
        session_id: &'a str,
        call_id: &'a str,
        attempt: u32,
        note: &'a str,
    },
    ToolOutcome {
        session_id: &'a str,
        call_id: &'a str,
        attempt: u32,
        fence: u64,
        args_hash: &'a str,
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
}

impl Outgoing<'_> {
    /// The text of the frame.
    pub(crate) fn text(&self) -> String {
        // Nothing in these frames can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How far a session is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cursor<'a> {
    pub(crate) id: &'a str,
    pub(crate) last_seq: u64,
}

/// An output that is text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Text<'a> {
    pub(crate) media_type: &'a str,
    pub(crate) text: &'a str,
}

/// A frame of the server.
#[derive(Debug)]
pub(crate) enum Incoming {
    Welcome(Welcome),
    Offer(ApprovedToolCall),
    Settled(CallSettled),
    Event(StreamEvent),
    Final(FinalOutput),
    Closing {
        reconnect_ms: u64,
    },
    Error(ErrorFrame),
    /// Something this client does not know or need.
    Other,
}

#[derive(Debug, Deserialize)]
struct Tag {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct ClosingFields {
    reconnect_ms: u64,
}

impl Incoming {
    /// Reads a frame of the server. Frames of unknown types are `Other`.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // In two steps, since arguments are kept as the very text they came as.
        let tag: Tag = serde_json::from_str(text)?;
        Ok(match tag.kind.as_str() {
            "Welcome" => Self::Welcome(serde_json::from_str(text)?),
            "ApprovedToolCall" => Self::Offer(serde_json::from_str(text)?),
            "CallSettled" => Self::Settled(serde_json::from_str(text)?),
            "StreamEvent" => Self::Event(serde_json::from_str(text)?),
            "FinalOutput" => Self::Final(serde_json::from_str(text)?),
            "Closing" => {
                let fields: ClosingFields = serde_json::from_str(text)?;
                Self::Closing { reconnect_ms: fields.reconnect_ms }
            }
            "Error" => Self::Error(serde_json::from_str(text)?),
            _ => Self::Other,
        })
    }
}

/// The answer to `Hello`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) heartbeat_ms: u64,
    pub(crate) gone: Vec<String>,
}

/// A call to run, exactly as approved.
#[derive(Debug, Clone, Deserialize)]
pub struct ApprovedToolCall {
    /// The session.
    pub session_id: String,
    /// The call.
    pub call_id: String,
    /// The attempt.
    pub attempt: u32,
    /// The fence; the report repeats it.
    pub fence: u64,
    /// The tool.
    pub tool: String,
    /// The very text of the arguments.
    pub args: Box<RawValue>,
    /// Hash of that text; the report repeats it.
    pub args_hash: String,
    /// Time left when the server sent this, in milliseconds.
    pub expires_in_ms: u64,
    /// Most bytes of output that a report may carry.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
}

/// A call has its terminal record.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct CallSettled {
    pub(crate) call_id: String,
}

/// An event of a followed session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StreamEvent {
    /// The session.
    pub session_id: String,
    /// Place in the log.
    pub seq: u64,
    /// The frame that it answers.
    #[serde(default)]
    pub re: Option<String>,
    /// The event.
    pub event: Event,
}

/// A run is over.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FinalOutput {
    /// The session.
    pub session_id: String,
    /// Place of the ending in the log.
    pub seq: u64,
    /// The run.
    pub run: u32,
    /// Why it ended.
    pub ending: String,
    /// What it gave back, when done.
    #[serde(default)]
    pub output: Option<Value>,
    /// What ended it, in a sentence.
    #[serde(default)]
    pub detail: Option<String>,
}

/// A refused frame or subscription.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ErrorFrame {
    /// The stable code.
    pub code: String,
    /// What it is about.
    #[serde(default)]
    pub re: Option<String>,
    /// The problem document.
    pub problem: ApiFailure,
}

#[cfg(test)]
mod tests;
