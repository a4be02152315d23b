//! The stored form of an input that waits for the owner of its session, and of the owner's answer to one that leaves no
//! record; both sealed under the session's key. What is not here: who writes and reads them (`elsewhere`, `inbox`).

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toolgate_core::id::{Sha256Digest, TenantId};
use toolgate_core::input::{ApprovalAnswer, CallAck, Input, Message, OutcomeReport, Stop};
use toolgate_core::reason::{Refusal, RefusalCode};
use toolgate_store::{Codec, CodecError, IdempotencyKey, Sealed};

use super::Idempotency;
use crate::failure::Failure;

const LETTER: &str = "inbox";
const ANSWER: &str = "inbox answer";

/// An input on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Letter {
    content: Content,
    idempotency: Option<Promise>,
}

/// What people and clients say; the server's own inputs never travel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Message(Message),
    Outcome(OutcomeReport),
    CallAck(CallAck),
    Approval(ApprovalAnswer),
    Cancel(Stop),
    Close(Stop),
}

/// The answer to store with the effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Promise {
    tenant: TenantId,
    credential: String,
    route: String,
    key: String,
    fingerprint: Sha256Digest,
    status: u16,
}

/// What the owner says of an input that leaves no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It changes nothing.
    Unchanged,
    /// It was taken before.
    Already { seq: u64 },
    /// It does not fit.
    Refused { code: RefusalCode, detail: String },
    /// Its idempotency key belongs to another body.
    IdempotencyReused,
    /// The owner cannot read it.
    Unreadable,
}

impl Letter {
    pub(super) fn new(input: Input, idempotency: Option<Idempotency>) -> Result<Self, Failure> {
        let content = match input {
            Input::Message(message) => Content::Message(message),
            Input::Outcome(report) => Content::Outcome(report),
            Input::CallAck(ack) => Content::CallAck(ack),
            Input::Approval(answer) => Content::Approval(answer),
            Input::Cancel(stop) => Content::Cancel(stop),
            Input::Close(stop) => Content::Close(stop),
            Input::Open(_)
            | Input::Classified(_)
            | Input::Ballot(_)
            | Input::Summary(_)
            | Input::ClientAttached(_)
            | Input::Admission(_)
            | Input::Reservation(_)
            | Input::Settled(_)
            | Input::Tick
            | Input::Recovered => return Err(Failure::Internal("this input does not travel".to_owned())),
        };
        let idempotency = idempotency.map(|wanted| Promise {
            tenant: wanted.key.tenant,
            credential: wanted.key.credential,
            route: wanted.key.route,
            key: wanted.key.key,
            fingerprint: wanted.fingerprint,
            status: wanted.status,
        });
        Ok(Self { content, idempotency })
    }

    /// The input and the answer to store with it.
    pub(super) fn into_parts(self) -> (Input, Option<Idempotency>) {
        let input = match self.content {
            Content::Message(message) => Input::Message(message),
            Content::Outcome(report) => Input::Outcome(report),
            Content::CallAck(ack) => Input::CallAck(ack),
            Content::Approval(answer) => Input::Approval(answer),
            Content::Cancel(stop) => Input::Cancel(stop),
            Content::Close(stop) => Input::Close(stop),
        };
        let idempotency = self.idempotency.map(|promise| Idempotency {
            key: IdempotencyKey {
                tenant: promise.tenant,
                credential: promise.credential,
                route: promise.route,
                key: promise.key,
            },
            fingerprint: promise.fingerprint,
            status: promise.status,
        });
        (input, idempotency)
    }

    /// Sealed, with the fingerprint by which a repetition is known.
    pub(super) fn seal(&self, codec: &Codec) -> Result<(Sealed, Sha256Digest), Failure> {
        let bytes = serde_json::to_vec(self).map_err(|error| Failure::Internal(error.to_string()))?;
        let sealed = codec.seal(LETTER, &bytes).map_err(|error| super::load::unreadable(&error))?;
        Ok((sealed, Sha256Digest::of(&bytes)))
    }

    pub(super) fn open(codec: &Codec, sealed: &Sealed) -> Result<Self, CodecError> {
        open(codec, LETTER, sealed)
    }
}

impl Answer {
    pub(super) fn seal(&self, codec: &Codec) -> Result<Sealed, CodecError> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| CodecError::Corrupt { seq: 0, detail: format!("answer: {error}") })?;
        codec.seal(ANSWER, &bytes)
    }

    pub(super) fn open(codec: &Codec, sealed: &Sealed) -> Result<Self, CodecError> {
        open(codec, ANSWER, sealed)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { code: refusal.code, detail: refusal.detail }
    }
}

fn open<T: DeserializeOwned>(codec: &Codec, what: &str, sealed: &Sealed) -> Result<T, CodecError> {
    let bytes = codec.unseal(what, sealed)?;
    serde_json::from_slice(&bytes).map_err(|error| CodecError::Corrupt { seq: 0, detail: format!("{what}: {error}") })
}
