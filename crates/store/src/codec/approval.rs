//! The stored form of an approval's content, sealed under the session's key. What is not here: the row around it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toolgate_core::event::ApprovalVerb;
use toolgate_core::id::{ActorId, Sha256Digest, ToolId};
use toolgate_core::json::Json;
use toolgate_core::tool::Venue;

use super::{Codec, CodecError};
use crate::append::Sealed;

const WHAT: &str = "approval";

/// What an approver is shown, and what they answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalBody {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The tool.
    pub tool: ToolId,
    /// Who would execute.
    pub venue: Venue,
    /// Why a human must decide: a reason code.
    pub reason: String,
    /// The arguments, redacted where the tool says so.
    pub args: Json,
    /// Hash of the full arguments.
    pub args_hash: Sha256Digest,
    /// What exactly is approved.
    pub digest: Sha256Digest,
    /// The answer, once there is one.
    pub answer: Option<ApprovalVerb>,
    /// The approver's words.
    pub message: Option<String>,
    /// Different people that must approve.
    #[serde(default = "one")]
    pub approvers: u32,
    /// Who has approved so far.
    #[serde(default)]
    pub approved_by: BTreeSet<ActorId>,
}

const fn one() -> u32 {
    1
}

impl Codec {
    /// Seals an approval's content.
    pub fn seal_approval(&self, body: &ApprovalBody) -> Result<Sealed, CodecError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| CodecError::Corrupt { seq: 0, detail: format!("approval: {error}") })?;
        self.seal(WHAT, &bytes)
    }

    /// Opens an approval's content.
    pub fn open_approval(&self, sealed: &Sealed) -> Result<ApprovalBody, CodecError> {
        let bytes = self.unseal(WHAT, sealed)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| CodecError::Corrupt { seq: 0, detail: format!("approval: {error}") })
    }
}
