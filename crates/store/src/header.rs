//! The header of a row: the part that is safe to show and that the chain hashes. The row's columns are copies of it.
//! What is not here: which fields of an event go into it (`codec`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::id::{CallId, InputId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::chain::{Position, row_hash};
use crate::error::StoreError;
use crate::row::{Marks, Row};

/// The version of the stored form that this release writes.
pub const FORMAT: u32 = 1;

/// The fields of an event that a header shows.
pub trait Shown: Serialize {
    /// Whether there are none.
    fn is_none(&self) -> bool;
}

impl Shown for Map<String, Value> {
    fn is_none(&self) -> bool {
        self.is_empty()
    }
}

/// The header as stored: compact JSON, hashed as the exact bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "E: Shown", deserialize = "E: Deserialize<'de> + Default"))]
pub struct Header<E = Map<String, Value>> {
    /// Version of the stored form.
    pub v: u32,
    /// The kind of the event.
    pub kind: String,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The input that the row records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_id: Option<InputId>,
    /// What the row does to its call.
    #[serde(default, skip_serializing_if = "Marks::is_none")]
    pub marks: Marks,
    /// The payload that belongs to it; none when the row has no payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadMeta>,
    /// Keyed commitment of the call's arguments, 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_commitment: Option<String>,
    /// The event's own fields that are safe to show.
    #[serde(default, skip_serializing_if = "Shown::is_none")]
    pub event: E,
}

/// What the header says about the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadMeta {
    /// Digest of the stored (sealed) bytes.
    pub digest: Sha256Digest,
    /// Their length.
    pub size: u64,
    /// The keys that open it, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl PayloadMeta {
    /// What a header says about these stored bytes.
    #[must_use]
    pub fn of(payload: &[u8], keys: Vec<String>) -> Self {
        Self { digest: Sha256Digest::of(payload), size: payload.len() as u64, keys }
    }
}

impl Header {
    /// A header that names only its kind.
    #[must_use]
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            v: FORMAT,
            kind: kind.into(),
            run: None,
            step: None,
            call: None,
            input_id: None,
            marks: Marks::NONE,
            payload: None,
            args_commitment: None,
            event: Map::new(),
        }
    }

    /// Reads stored header bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

impl<E: Shown> Header<E> {
    /// Makes the row at a position. `payload` must be what [`Header::payload`] describes; empty when that is none.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when header and payload disagree or the header cannot be written as JSON.
    pub fn into_row(
        self,
        tenant: &TenantId,
        session: SessionId,
        at: &Position,
        recorded_at: Timestamp,
        payload: Vec<u8>,
    ) -> Result<Row, StoreError> {
        let agrees = match &self.payload {
            Some(meta) => meta.size == payload.len() as u64,
            None => payload.is_empty(),
        };
        if !agrees {
            return Err(StoreError::Invalid("header and payload disagree"));
        }
        let header = serde_json::to_vec(&self).map_err(|_| StoreError::Invalid("header is no JSON"))?;
        let mut row = Row {
            seq: at.seq,
            epoch: at.epoch,
            kind: self.kind,
            run: self.run,
            step: self.step,
            call: self.call,
            marks: self.marks,
            input_id: self.input_id,
            recorded_at,
            header,
            payload,
            prev_hash: at.prev_hash,
            hash: [0; 32],
        };
        row.hash = row_hash(tenant, session, &row);
        Ok(row)
    }
}
