//! The records beside the log: inbox, outbox, idempotency, approvals, blobs, bundles, API keys, nodes, security log.
//! What is not here: the log's rows (`row`) and the session (`session`).

use toolgate_core::id::{ActorId, ApprovalId, CallId, InputId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::append::Sealed;
use crate::name::{KeyId, NodeIdentity};

/// An input that waits for the owner of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// The input's id, unique in the session over inbox and log.
    pub id: InputId,
    /// When it arrived; the list is in this order.
    pub received_at: Timestamp,
    /// The input.
    pub body: Sealed,
    /// Fingerprint of the input before sealing, to tell a repetition from a conflict.
    pub fingerprint: Sha256Digest,
}

/// The answer to a put into the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxPut {
    /// Stored and durable.
    Ok,
    /// It waits already.
    Waiting {
        /// Whether with the same fingerprint.
        same_body: bool,
    },
    /// The log already records an input of this id.
    Recorded {
        /// The row.
        seq: u64,
    },
}

/// A message to the outside, due until it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Unique in the session.
    pub id: String,
    /// What kind of message, for example `webhook`.
    pub kind: String,
    /// The message; thin ones need no key.
    pub body: Vec<u8>,
    /// The key the body is sealed under, if it is.
    pub key: Option<KeyId>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is due next.
    pub due_at: Timestamp,
}

/// The scope of an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The credential's id.
    pub credential: String,
    /// Method and route template.
    pub route: String,
    /// The caller's key.
    pub key: String,
}

/// A finished answer, to be repeated for the same key and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// The scope.
    pub key: IdempotencyKey,
    /// The fingerprint of the request's body.
    pub fingerprint: Sha256Digest,
    /// The HTTP status answered.
    pub status: u16,
    /// The answer, perhaps sealed.
    pub body: Vec<u8>,
    /// The session and key the body is sealed under, if it is.
    pub sealed_under: Option<(SessionId, KeyId)>,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// A claim of an idempotency key for a request that begins now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyClaim {
    /// The scope.
    pub key: IdempotencyKey,
    /// The fingerprint of the request's body.
    pub fingerprint: Sha256Digest,
    /// The present time, against which older claims are judged.
    pub now: Timestamp,
    /// Until when this claim holds if the request never finishes.
    pub claimed_until: Timestamp,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The key is the caller's: do the work.
    New,
    /// The same request is under way.
    InProgress,
    /// The same request was answered.
    Done(Box<IdempotencyRow>),
    /// The key was used with another body.
    OtherBody,
}

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalStatus {
    /// It waits for a human.
    Pending,
    /// Granted.
    Approved,
    /// Denied.
    Denied,
    /// Replaced by a call with edited arguments.
    Edited,
    /// Its time ran out.
    Expired,
    /// The run ended or the call was cancelled before an answer.
    Cancelled,
    /// It was approved, and taken back before anything was sent.
    Revoked,
}

impl ApprovalStatus {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Edited => "edited",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Revoked => "revoked",
        }
    }

    /// Reads a stored word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all =
            [Self::Pending, Self::Approved, Self::Denied, Self::Edited, Self::Expired, Self::Cancelled, Self::Revoked];
        all.into_iter().find(|status| status.as_str() == word)
    }
}

/// One approval, as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRow {
    /// The session.
    pub session: SessionId,
    /// Its id.
    pub id: ApprovalId,
    /// The call that waits for it.
    pub call: CallId,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// Who settled it.
    pub settled_by: Option<ActorId>,
    /// The tool, arguments and reasons shown to the approver.
    pub body: Sealed,
}

/// A place in a newest-first list of approvals: the last one seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalCursor {
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// Its session.
    pub session: SessionId,
    /// Its id.
    pub id: ApprovalId,
}

/// A content too large for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its name in the session: the digest that the row's payload gives.
    pub digest: Sha256Digest,
    /// The sealed content.
    pub content: Sealed,
}

/// A version of a tenant's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleRow {
    /// Digest of the canonical body, its name.
    pub digest: Sha256Digest,
    /// The exact bytes.
    pub body: Vec<u8>,
    /// Who brought it in.
    pub created_by: ActorId,
    /// When.
    pub created_at: Timestamp,
}

/// A credential of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRow {
    /// The tenant.
    pub tenant: TenantId,
    /// The public part of the key, unique over all tenants.
    pub key_id: String,
    /// Digest of the secret part.
    pub secret_digest: Sha256Digest,
    /// The principal it stands for.
    pub actor: ActorId,
    /// What it may do, as words without blanks.
    pub scopes: Vec<String>,
    /// A name for humans.
    pub label: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// One entry of a tenant's security log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityRow {
    /// Unique in the tenant; appending the same id again changes nothing.
    pub id: String,
    /// When it happened.
    pub at: Timestamp,
    /// The closed code, for example `cross_tenant_denied`.
    pub code: String,
    /// Who did it, as far as the credential says.
    pub actor: Option<ActorId>,
    /// The session it happened in.
    pub session: Option<SessionId>,
    /// Details that are safe to show.
    pub detail: Vec<u8>,
}

/// A place in a newest-first list of the security log: the last one seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityCursor {
    /// When it happened.
    pub at: Timestamp,
    /// Its id.
    pub id: String,
}

/// A node as the cluster sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The node and its present incarnation.
    pub identity: NodeIdentity,
    /// Microseconds until others may take its sessions, by the clock of the database; not positive once it has lapsed.
    pub lease_left_us: i64,
    /// Whether it is giving its sessions away.
    pub draining: bool,
    /// The newest form of events and messages that it reads and writes.
    pub protocol: u32,
    /// Its build, for people.
    pub version: String,
    /// When it started, by the clock of the database.
    pub started_at: Timestamp,
}

impl NodeRow {
    /// Whether its lease runs.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.lease_left_us > 0
    }
}
