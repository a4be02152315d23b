//! The sessions of a server: open, submit inputs, read, watch, verify, attach clients. Handlers and the channel know
//! only this. What is not here: HTTP and frames; the actor that owns one session (`sessions::actor`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::id::{Capability, ClientInstance, InputId, Label, ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::input::{Input, Narrowed};
use toolgate_core::json::Json;
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Divergence, Order};
use toolgate_store::IdempotencyKey;

use crate::caller::Caller;
use crate::failure::Failure;

/// A session at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its state.
    pub state: Arc<Session>,
    /// The bundle it pinned.
    pub bundle: Arc<Bundle>,
    /// The caller's own id.
    pub alias: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its last event was written.
    pub updated_at: Timestamp,
}

/// A request to start a session.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The caller's own id, unique in the tenant.
    pub alias: Option<String>,
    /// The profile asked for.
    pub profile: Option<ProfileName>,
    /// The label asked for.
    pub label: Option<Label>,
    /// What the caller's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// Narrower bounds.
    pub limits: Narrowed,
    /// The session's own output schema.
    pub output_schema: Option<Json>,
    /// The first message.
    pub prompt: String,
    /// Free metadata.
    pub metadata: BTreeMap<String, String>,
    /// W3C trace context.
    pub trace: Option<String>,
    /// Fingerprint of the body, to tell a repetition of the alias from a conflict.
    pub fingerprint: Sha256Digest,
    /// The answer to store with the effect, when the request carried an idempotency key.
    pub idempotency: Option<Idempotency>,
}

/// What makes the answer to a request durable together with its effect.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// The scope.
    pub key: IdempotencyKey,
    /// Fingerprint of the body.
    pub fingerprint: Sha256Digest,
    /// Makes status and body of the answer from the session as it is after the effect.
    pub answer: fn(&Snapshot) -> (u16, Vec<u8>),
}

/// The answer to a request to start a session.
#[derive(Debug, Clone)]
pub enum Opened {
    /// It was created.
    Created(Snapshot),
    /// The alias names a session that was created with the same body.
    Existing(Snapshot),
}

/// An input and what comes with it.
#[derive(Debug)]
pub struct Submission {
    /// Unique in the session; a repeated one is answered, not applied.
    pub id: Option<InputId>,
    /// The input.
    pub input: Input,
    /// The answer to store with the effect.
    pub idempotency: Option<Idempotency>,
}

/// The answer to a submission.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The session after it.
    pub snapshot: Snapshot,
    /// The events that follow from it, the record of the input first; empty when nothing changed.
    pub events: Vec<Recorded>,
    /// Set when the same input was taken before: where its record stands.
    pub already: Option<u64>,
}

/// A client's place as the executor of a session; dropping it gives the place up (the calls stay open).
#[derive(Debug)]
pub struct Attachment {
    /// Calls to offer, each until its outcome is recorded; all open ones come first. Closed when a newer connection of the
    /// same instance has taken the place.
    pub offers: mpsc::Receiver<Order>,
    /// Gives the place up when dropped.
    pub guard: AttachGuard,
}

/// Gives an executor's place up when dropped.
#[derive(Debug)]
pub struct AttachGuard {
    pub(crate) _lease: Option<mpsc::OwnedPermit<()>>,
}

/// Why a client did not become the executor.
#[derive(Debug)]
pub enum AttachRefused {
    /// Another instance is connected and executes; this one may only observe.
    ExecutorTaken,
    /// The request failed.
    Failed(Failure),
}

/// What strict verification found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Rows checked.
    pub events: u64,
    /// Inputs that were decided again.
    pub redecided: u64,
    /// Sequence numbers of inputs whose content was redacted and is destroyed.
    pub redacted: Vec<u64>,
    /// What does not fit first, if anything.
    pub fault: Option<VerifyFault>,
}

/// The first thing in a log that does not fit.
#[derive(Debug, Clone)]
pub enum VerifyFault {
    /// The hash chain is broken.
    Chain {
        /// The first bad sequence number.
        seq: u64,
        /// What is wrong.
        detail: String,
    },
    /// The log is whole, but the rules decide otherwise.
    Decision(Divergence),
    /// The content was erased, so that it cannot be decided again.
    Erased {
        /// The first sequence number that cannot be read.
        seq: u64,
    },
}

/// The sessions of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {}

impl Sessions {
    /// Starts a session under the tenant's current bundle.
    pub async fn open(&self, caller: &Caller, request: OpenRequest) -> Result<Opened, Failure> {
        let _ = (&self.inner, caller, request);
        Err(Failure::Busy)
    }

    /// Hands an input to the session's owner and waits until its consequences are durable.
    pub async fn submit(&self, tenant: &TenantId, session: SessionId, submission: Submission) -> Result<Taken, Failure> {
        let _ = (tenant, session, submission);
        Err(Failure::Busy)
    }

    /// The session as it is now.
    pub async fn snapshot(&self, tenant: &TenantId, session: SessionId) -> Result<Snapshot, Failure> {
        let _ = (tenant, session);
        Err(Failure::Busy)
    }

    /// The session that a caller's own id names.
    pub async fn find_alias(&self, tenant: &TenantId, alias: &str) -> Result<Snapshot, Failure> {
        let _ = (tenant, alias);
        Err(Failure::Busy)
    }

    /// Events after `after_seq`, oldest first, at most `limit`.
    pub async fn events(
        &self,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, Failure> {
        let _ = (tenant, session, after_seq, limit);
        Err(Failure::Busy)
    }

    /// Follows the head of a session: the value is the last durable sequence number. A hint; the log is the truth.
    pub async fn watch(&self, tenant: &TenantId, session: SessionId) -> Result<watch::Receiver<u64>, Failure> {
        let _ = (tenant, session);
        Err(Failure::Busy)
    }

    /// Makes a client the executor of a session: recorded, then every open call of its is offered.
    pub async fn attach(
        &self,
        caller: &Caller,
        session: SessionId,
        instance: ClientInstance,
        capabilities: BTreeSet<Capability>,
    ) -> Result<Attachment, AttachRefused> {
        let _ = (caller, session, instance, capabilities);
        Err(AttachRefused::Failed(Failure::Busy))
    }

    /// Checks the chain and decides every recorded input again.
    pub async fn verify(&self, tenant: &TenantId, session: SessionId) -> Result<VerifyReport, Failure> {
        let _ = (tenant, session);
        Err(Failure::Busy)
    }

    /// The bytes of a blob, opened.
    pub async fn blob(&self, tenant: &TenantId, session: SessionId, digest: &Sha256Digest) -> Result<Vec<u8>, Failure> {
        let _ = (tenant, session, digest);
        Err(Failure::Busy)
    }
}
