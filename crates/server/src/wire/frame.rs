//! Frames of the channel: names, fields, how a client's frame is read and a server's written. What is not here: what a
//! frame does (`channel`). The protocol in words stands in `docs/CHANNEL.md`, the schema in `schemas/channel.schema.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_core::json::{Misfit, read_strict, read_typed};

mod client;
mod server;

pub use client::{
    Approval, ApprovalVerdict, CallAck, Cancel, Hello, Message, OutcomeBody, ReportedStatus, Request, RequestLimits,
    SessionCursor, ToolOutcome,
};
pub use server::{
    ApprovedToolCall, CallProgress, CallSettled, Closing, ErrorFrame, FinalOutput, Problem, Resumed, StreamEvent,
    Welcome,
};

pub use super::delta::ModelDelta;

/// The subprotocol a client must offer.
pub const SUBPROTOCOL: &str = "toolgate.v1";
/// The version of the frames; repeated in `Hello` and `Welcome`.
pub const PROTOCOL: u32 = 1;
/// Longest frame a client may send, in bytes.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// A frame that a client sends.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(tag = "type")]
pub enum ClientFrame {
    /// The first frame: who the client is and what it follows. Sent again, it adds sessions.
    Hello(Hello),
    /// Starts a session, follows it and executes for it.
    Request(Request),
    /// Reports what became of an approved call.
    ToolOutcome(ToolOutcome),
    /// Says that the client took a call over and starts it.
    CallAck(CallAck),
    /// Says how far a running call has come; not stored.
    CallProgress(CallProgress),
    /// Says something more in a session.
    Message(Message),
    /// Decides an approval.
    Approval(Approval),
    /// Stops a session's run.
    Cancel(Cancel),
}

/// A frame that the server sends.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum ServerFrame {
    /// The answer to `Hello`.
    Welcome(Welcome),
    /// A call to run, exactly as approved.
    ApprovedToolCall(ApprovedToolCall),
    /// A call has its terminal record.
    CallSettled(CallSettled),
    /// How far another client has come with a call; not stored.
    CallProgress(CallProgress),
    /// An event of a session's log.
    StreamEvent(Box<StreamEvent>),
    /// A piece of an answer while a model gives it; not stored. Sent where `Hello` asked for it.
    ModelDelta(ModelDelta),
    /// A run is over.
    FinalOutput(FinalOutput),
    /// The server is about to close the connection.
    Closing(Closing),
    /// A frame was refused, or a subscription failed; the connection lives on.
    Error(ErrorFrame),
}

/// Any frame, as the schema has it.
#[derive(JsonSchema)]
#[schemars(untagged, title = "toolgate.v1")]
#[expect(dead_code, reason = "only its schema is used")]
enum AnyFrame {
    /// Sent by clients. Unknown fields are refused.
    Client(ClientFrame),
    /// Sent by the server. Unknown fields must be ignored.
    Server(ServerFrame),
}

/// Why a client's frame cannot be read; the connection is closed with 4400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// Not JSON, or JSON that is refused (duplicate keys, lone surrogates, too deep, too large numbers).
    #[error("not readable as JSON: {0}")]
    Json(String),
    /// No object with a text `type`.
    #[error("a frame is a JSON object with a text `type`")]
    NoType,
    /// No client frame of this name.
    #[error("no client frame has the type `{0}`")]
    UnknownType(String),
    /// A field is missing, unknown or of the wrong form.
    #[error("{frame}{path}: {detail}")]
    Field {
        /// The frame.
        frame: &'static str,
        /// JSON pointer to the field.
        path: String,
        /// What is wrong.
        detail: String,
    },
}

impl ClientFrame {
    /// Reads a frame strictly: unknown and repeated fields are refused.
    pub fn parse(text: &str) -> Result<Self, FrameFault> {
        let value = read_strict(text).map_err(|fault| FrameFault::Json(fault.to_string()))?;
        let Value::Object(mut fields) = value else { return Err(FrameFault::NoType) };
        let Some(Value::String(kind)) = fields.remove("type") else { return Err(FrameFault::NoType) };
        let body = Value::Object(fields);
        match kind.as_str() {
            "Hello" => read("Hello", &body).map(Self::Hello),
            "Request" => {
                let fingerprint = client::fingerprint(&body);
                read::<Request>("Request", &body).map(|request| Self::Request(Request { fingerprint, ..request }))
            }
            "ToolOutcome" => read("ToolOutcome", &body).map(Self::ToolOutcome),
            "CallAck" => read("CallAck", &body).map(Self::CallAck),
            "CallProgress" => read("CallProgress", &body).map(Self::CallProgress),
            "Message" => read("Message", &body).map(Self::Message),
            "Approval" => read("Approval", &body).map(Self::Approval),
            "Cancel" => read("Cancel", &body).map(Self::Cancel),
            other => Err(FrameFault::UnknownType(other.chars().take(64).collect())),
        }
    }

    /// What an `Error` frame about this frame names in `re`: its own `frame_id`, else the call or approval it is about.
    #[must_use]
    pub fn re(&self) -> Option<String> {
        match self {
            Self::Hello(_) => None,
            Self::Request(frame) => frame.frame_id.clone().or_else(|| frame.id.clone()),
            Self::ToolOutcome(frame) => Some(frame.call_id.to_string()),
            Self::CallAck(frame) => Some(frame.call_id.to_string()),
            Self::CallProgress(frame) => Some(frame.call_id.clone()),
            Self::Message(frame) => frame.frame_id.clone().or_else(|| Some(frame.session_id.to_string())),
            Self::Approval(frame) => frame.frame_id.clone().or_else(|| Some(frame.approval_id.to_string())),
            Self::Cancel(frame) => frame.frame_id.clone().or_else(|| Some(frame.session_id.to_string())),
        }
    }
}

impl ServerFrame {
    /// The text of the frame. Arguments and outputs keep every digit.
    #[must_use]
    pub fn text(&self) -> String {
        // Nothing in a frame can fail to be written; an empty object would be ignored by every client.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

fn read<T: DeserializeOwned>(frame: &'static str, body: &Value) -> Result<T, FrameFault> {
    read_typed(body).map_err(|Misfit { pointer, detail }| FrameFault::Field { frame, path: pointer, detail })
}

/// The JSON Schema of all frames, as it is checked in: keys in order, whatever other crates make of JSON maps.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<AnyFrame>();
    let mut text = serde_json::to_string_pretty(&sorted(schema.to_value())).unwrap_or_default();
    text.push('\n');
    text
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests;
