//! The frames that clients send. What is not here: reading them (`frame`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use toolgate_core::id::{ApprovalId, CallId, Capability, ClientInstance, Label, ProfileName, SessionId, Sha256Digest};
use toolgate_core::json::Json;

use crate::wire::session::ControlAsked;

/// Who the client is and what it follows.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the frames: 1.
    pub protocol: u32,
    /// This running instance of the client: kept over reconnects, new after a restart. A newer connection of the same id
    /// replaces this one.
    #[schemars(with = "String", length(min = 1, max = 128))]
    pub client_id: ClientInstance,
    /// What the client can execute, for example `terminal`.
    #[serde(default)]
    #[schemars(with = "BTreeSet<String>")]
    pub capabilities: BTreeSet<Capability>,
    /// The API key, when the request carried no `Authorization` header.
    #[serde(default)]
    pub token: Option<Token>,
    /// Only watch: approved calls are not offered to this client.
    #[serde(default)]
    pub observe: bool,
    /// Also show pieces of models' answers while they come, of all sessions that this connection follows.
    #[serde(default)]
    pub deltas: bool,
    /// Sessions to follow, at most 256.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub sessions: Vec<SessionCursor>,
}

/// An API key in a frame; never printed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// The key itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A session and how far its events are known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionCursor {
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub id: SessionId,
    /// The last event that the client has; 0 means from the beginning.
    #[serde(default)]
    pub last_seq: u64,
}

/// Starts a session; the same fields as `POST /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The client's own id of this frame; the first event of the session repeats it in `re`.
    #[serde(default, deserialize_with = "frame_id")]
    #[schemars(with = "Option<String>", length(min = 1, max = 64))]
    pub frame_id: Option<String>,
    /// The caller's own id of the session, unique in the tenant. The same request again leads to the same session.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub id: Option<String>,
    /// The profile.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub profile: Option<ProfileName>,
    /// The label, where the bundle classifies by labels.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub label: Option<Label>,
    /// The first message.
    pub prompt: String,
    /// What the client can execute; absent means those of `Hello`.
    #[serde(default)]
    #[schemars(with = "Option<BTreeSet<String>>")]
    pub capabilities: Option<BTreeSet<Capability>>,
    /// Narrower bounds than the profile's.
    #[serde(default)]
    pub limits: RequestLimits,
    /// Which calls a human is asked about besides those whose tool or rule asks; never fewer than the profile asks.
    #[serde(default)]
    pub control: Option<ControlAsked>,
    /// Decide and record, and execute nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// JSON Schema that the final output must match.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Free metadata for people.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Fingerprint of the request without `type` and `frame_id`; not a field of the frame.
    #[serde(skip, default = "no_fingerprint")]
    #[schemars(skip)]
    pub fingerprint: Sha256Digest,
}

fn no_fingerprint() -> Sha256Digest {
    Sha256Digest::of(b"")
}

/// The same for a frame and for the body of a `POST`, so that one alias means one request on both ways.
pub(super) fn fingerprint(body: &Value) -> Sha256Digest {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("frame_id");
    }
    Json::from_value(&body).hash()
}

/// Narrower bounds; each at least 1 and no wider than the profile's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestLimits {
    /// Steps.
    #[serde(default)]
    pub max_steps: Option<u32>,
    /// Tool calls.
    #[serde(default)]
    pub max_tool_calls: Option<u32>,
    /// Model calls.
    #[serde(default)]
    pub max_model_calls: Option<u32>,
    /// Milliseconds from start to deadline.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
}

/// What became of an approved call. The same report again is answered like the first; another one is refused.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolOutcome {
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: SessionId,
    /// The call.
    #[schemars(with = "String", regex(pattern = r"^call_[0-9a-f]{32}$"))]
    pub call_id: CallId,
    /// The attempt that was run, as offered.
    pub attempt: u32,
    /// The fence of the offer, repeated.
    pub fence: u64,
    /// Hash of the arguments that were run, as offered.
    #[schemars(with = "String", regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub args_hash: Sha256Digest,
    /// How it came out.
    pub status: ReportedStatus,
    /// What came back, as any JSON value; at most one of `result` and `output`.
    #[serde(default, deserialize_with = "some_value")]
    pub result: Option<Value>,
    /// What came back, as text or bytes of a media type.
    #[serde(default)]
    pub output: Option<OutcomeBody>,
    /// What went wrong, in a sentence; at most 2,000 characters.
    #[serde(default)]
    #[schemars(length(max = 2000))]
    pub detail: Option<String>,
}

/// A `null` is a result, too; only a missing field is none.
fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// How a client says that a call came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedStatus {
    /// It did what was asked.
    Ok,
    /// It failed.
    Failed,
    /// It did not end in time; it may have happened.
    TimedOut,
    /// The person or program at the client refused to run it.
    DeniedByClient,
    /// The client does not know whether it happened.
    Indeterminate,
}

/// Bytes with a media type: exactly one of `text` and `base64`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeBody {
    /// Media type, for example `text/plain`.
    #[schemars(length(min = 1, max = 128))]
    pub media_type: String,
    /// The bytes as text.
    #[serde(default)]
    pub text: Option<String>,
    /// Other bytes, as standard base64 with padding.
    #[serde(default)]
    pub base64: Option<String>,
    /// Size in bytes before the client cut it; absent when nothing was cut.
    #[serde(default)]
    pub truncated_from: Option<u64>,
}

/// The client took a call over and starts it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallAck {
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: SessionId,
    /// The call.
    #[schemars(with = "String", regex(pattern = r"^call_[0-9a-f]{32}$"))]
    pub call_id: CallId,
    /// The attempt, as offered.
    pub attempt: u32,
}

/// Something more in a session; opens the next run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The client's own id of this frame: the same id again is not applied again. The event that records it repeats it in
    /// `re`.
    #[serde(default, deserialize_with = "frame_id")]
    #[schemars(with = "Option<String>", length(min = 1, max = 64))]
    pub frame_id: Option<String>,
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: SessionId,
    /// The words.
    #[schemars(length(min = 1))]
    pub text: String,
}

/// Decides an approval: exactly what was shown, and nothing else.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// The client's own id of this frame, as in `Message`.
    #[serde(default, deserialize_with = "frame_id")]
    #[schemars(with = "Option<String>", length(min = 1, max = 64))]
    pub frame_id: Option<String>,
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: SessionId,
    /// The approval.
    #[schemars(with = "String", regex(pattern = r"^apr_[0-9a-f]{32}$"))]
    pub approval_id: ApprovalId,
    /// The answer.
    pub decision: ApprovalVerdict,
    /// Digest of what the approver was shown.
    #[schemars(with = "String", regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: Sha256Digest,
    /// The bundle under which it was looked at; another one than the session's is refused.
    #[serde(default)]
    #[schemars(with = "Option<String>", regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub bundle: Option<Sha256Digest>,
    /// With `approve`: leave for further calls of the session as well.
    #[serde(default)]
    pub grant: Option<ApprovalGrant>,
    /// With `deny`: words for the model and the record.
    #[serde(default)]
    #[schemars(length(max = 2000))]
    pub message: Option<String>,
    /// With `edit`: the arguments to run instead; they are judged again.
    #[serde(default)]
    pub arguments: Option<Value>,
}

/// The answers to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// Run exactly this.
    Approve,
    /// Do not run it.
    Deny,
    /// Run it with other arguments.
    Edit,
    /// Take an approval back, with what it granted, as far as nothing was sent on it.
    Revoke,
}

/// Leave for further calls of the session: the same tool with the same arguments, but for those left open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalGrant {
    /// Top-level arguments that may have any value.
    #[serde(default)]
    pub open: BTreeSet<String>,
    /// How long it holds in milliseconds, 1,000 to 2,592,000,000; absent means a day.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
}

/// Stops a session's run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The client's own id of this frame, as in `Message`.
    #[serde(default, deserialize_with = "frame_id")]
    #[schemars(with = "Option<String>", length(min = 1, max = 64))]
    pub frame_id: Option<String>,
    /// The session.
    #[schemars(with = "String", regex(pattern = r"^ses_[0-9a-f]{32}$"))]
    pub session_id: SessionId,
    /// Why, for the record.
    #[serde(default)]
    #[schemars(length(max = 2000))]
    pub reason: Option<String>,
}

/// Frame ids go into input ids, so they must be visible ASCII.
fn frame_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let id = Option::<String>::deserialize(deserializer)?;
    match &id {
        Some(id) if !(1..=64).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(serde::de::Error::custom("a frame id has 1 to 64 visible ASCII characters"))
        }
        Some(_) | None => Ok(id),
    }
}
