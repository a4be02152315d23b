//! What callers send to start a session, say more, and stop. What is not here: what they are shown (`session`).

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use toolgate_core::id::{Capability, Label, ProfileName, Sha256Digest};
use toolgate_core::input::Narrowed;
use toolgate_core::json::Json;
use toolgate_core::profile::ControlMode;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorCode};
use crate::http::headers::trace_parent;
use crate::sessions::OpenRequest;

/// Bytes of a message, at most.
pub const MAX_TEXT: usize = 256 * 1024;
/// Entries of the metadata, at most.
const MAX_METADATA: usize = 32;
/// Bytes of one metadata key, at most.
const MAX_METADATA_KEY: usize = 64;
/// Bytes of one metadata value, at most.
const MAX_METADATA_VALUE: usize = 1_024;

/// Starts a session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartSession {
    /// The caller's own id, unique in the tenant: the same body again leads to the same session. 1 to 128 visible ASCII
    /// characters.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128)]
    pub id: Option<String>,
    /// The profile; absent means that label or classification choose it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub profile: Option<ProfileName>,
    /// The label, where the bundle classifies by labels.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub label: Option<Label>,
    /// The first message; at most 256 KiB.
    #[schema(min_length = 1)]
    pub prompt: String,
    /// What the caller's client can execute.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub capabilities: BTreeSet<Capability>,
    /// Narrower bounds than the profile's.
    #[serde(default)]
    pub limits: LimitsAsked,
    /// Which calls a human is asked about besides those whose tool or rule asks; never fewer than the profile asks.
    #[serde(default)]
    pub control: Option<ControlAsked>,
    /// Decide and record, and execute nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// JSON Schema that the final output must match.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Value>,
    /// Free metadata for people: at most 32 entries, keys of 64 bytes, values of 1,024 bytes.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Which calls a human is asked about besides those whose tool or rule asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlAsked {
    /// None.
    None,
    /// Those of tools whose risk is high.
    Risky,
    /// All.
    All,
}

impl From<ControlAsked> for ControlMode {
    fn from(asked: ControlAsked) -> Self {
        match asked {
            ControlAsked::None => Self::None,
            ControlAsked::Risky => Self::Risky,
            ControlAsked::All => Self::All,
        }
    }
}

/// Narrower bounds; each at least 1 and no wider than the profile's.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsAsked {
    /// Steps.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_steps: Option<u32>,
    /// Tool calls.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_tool_calls: Option<u32>,
    /// Model calls.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_model_calls: Option<u32>,
    /// Milliseconds from start to deadline.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub deadline_ms: Option<u64>,
}

impl StartSession {
    /// Checks what types cannot say, and makes the request.
    pub fn into_request(self, headers: &HeaderMap, fingerprint: Sha256Digest) -> Result<OpenRequest, ApiError> {
        if self.id.as_deref().is_some_and(|alias| !is_alias(alias)) {
            return Err(ApiError::invalid("/id", "must have 1 to 128 visible ASCII characters"));
        }
        checked_text("/prompt", &self.prompt)?;
        checked_metadata(&self.metadata)?;
        Ok(OpenRequest {
            alias: self.id,
            profile: self.profile,
            label: self.label,
            capabilities: self.capabilities,
            limits: Narrowed {
                max_steps: self.limits.max_steps,
                max_tool_calls: self.limits.max_tool_calls,
                max_model_calls: self.limits.max_model_calls,
                deadline_ms: self.limits.deadline_ms,
            },
            control: self.control.map(ControlMode::from),
            dry_run: self.dry_run,
            output_schema: self.output_schema.as_ref().map(Json::from_value),
            prompt: self.prompt,
            metadata: self.metadata,
            trace: trace_parent(headers),
            fingerprint,
            idempotency: None,
        })
    }
}

/// Whether a text can be a caller's own id: 1 to 128 visible ASCII characters.
#[must_use]
pub fn is_alias(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// A message must say something, and no more than fits.
pub fn checked_text(pointer: &str, text: &str) -> Result<(), ApiError> {
    if text.trim().is_empty() {
        return Err(ApiError::invalid(pointer, "must not be empty"));
    }
    if text.len() > MAX_TEXT {
        let detail = format!("`{pointer}` has {} bytes, over the limit of {MAX_TEXT}", text.len());
        return Err(ApiError::new(ErrorCode::PayloadTooLarge, detail.clone()).at(pointer, "size", detail));
    }
    Ok(())
}

fn checked_metadata(metadata: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if metadata.len() > MAX_METADATA {
        return Err(ApiError::invalid("/metadata", format!("must have at most {MAX_METADATA} entries")));
    }
    for (key, value) in metadata {
        let pointer = || format!("/metadata/{}", key.replace('~', "~0").replace('/', "~1"));
        if !(1..=MAX_METADATA_KEY).contains(&key.len()) {
            return Err(ApiError::invalid(&pointer(), format!("a key has 1 to {MAX_METADATA_KEY} bytes")));
        }
        if value.len() > MAX_METADATA_VALUE {
            return Err(ApiError::invalid(&pointer(), format!("a value has at most {MAX_METADATA_VALUE} bytes")));
        }
    }
    Ok(())
}

/// A further message.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMessage {
    /// The words; at most 256 KiB.
    #[schema(min_length = 1)]
    pub text: String,
}

/// Why something is stopped.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopReason {
    /// For the record; at most 2,000 characters.
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}
