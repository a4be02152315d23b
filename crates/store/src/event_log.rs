//! The traits every backend keeps. What is not here: the backends, and the values they exchange.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use toolgate_core::id::{ApprovalId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::cluster::Cluster;
use crate::error::StoreError;
use crate::keys::{MasterKey, WrappedKey};
use crate::ledger::Ledger;
use crate::record::{
    ApiKeyRow, ApprovalCursor, ApprovalRow, ApprovalStatus, Blob, BundleRow, Claimed, IdempotencyClaim, IdempotencyKey,
    IdempotencyRow, InboxPut, InboxRow, OutboxRow, SecurityCursor, SecurityRow,
};
use crate::row::Row;
use crate::session::{Page, SessionCursor, SessionFilter, SessionKey, SessionRow, Wanted};
use crate::snapshot::Snapshots;

/// The most items that one page of any list holds; larger limits are cut to it.
pub const MAX_PAGE: u32 = 1_000;

/// The most bytes of header and payload that one page of rows holds, except that the first row always fits.
pub const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;

/// The logs of sessions, with everything that is durable together with them.
///
/// Every method may be dropped half-way by its caller: a write then still runs to its end. A tenant sees only its own:
/// what belongs to another tenant is answered exactly like what does not exist.
#[async_trait]
pub trait EventLog: Send + Sync + Debug {
    /// Creates a session with its first rows.
    async fn create_session(&self, new: Arc<NewSession>) -> Result<Created, StoreError>;

    /// Appends rows and what belongs to them; durable when it answers `Ok` or `Already`.
    ///
    /// After [`StoreError::Unavailable`] the outcome is unknown: send the very same value again, never other bytes for the same seq.
    async fn append(&self, append: Arc<Append>) -> Result<Appended, StoreError>;

    /// Creates sessions and appends to others, with one flush where the backend can. Each answer stands for itself, in the
    /// order given.
    async fn write_many(&self, writes: Vec<Write>) -> Vec<Result<Wrote, StoreError>> {
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            answers.push(match write {
                Write::Append(append) => self.append(append).await.map(Wrote::Append),
                Write::Create(new) => self.create_session(new).await.map(Wrote::Create),
            });
        }
        answers
    }

    /// Makes a node the owner and appends the `owner_changed` row. Of racing nodes exactly one wins; the others get `Stale`.
    async fn take_over(&self, take_over: Arc<TakeOver>) -> Result<TakenOver, StoreError>;

    /// Gives a session away: it has no owner afterwards, the epoch stays. Answers `false` when the epoch is another one.
    async fn release(&self, tenant: &TenantId, session: SessionId, epoch: u64) -> Result<bool, StoreError>;

    /// One session.
    async fn session(&self, tenant: &TenantId, session: SessionId) -> Result<Option<SessionRow>, StoreError>;

    /// The session that a caller's own id names.
    async fn session_by_alias(&self, tenant: &TenantId, alias: &str) -> Result<Option<SessionRow>, StoreError>;

    /// A tenant's sessions, newest first.
    async fn list_sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        after: Option<SessionCursor>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionCursor>, StoreError>;

    /// Sessions of all tenants that somebody must load, in the order of their keys.
    async fn open_sessions(
        &self,
        wanted: &Wanted,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionKey>, StoreError>;

    /// The rows after `after_seq` in order; fewer than `limit` only at the head or at [`MAX_PAGE_BYTES`]. Empty means the end.
    async fn read(
        &self,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Row>, StoreError>;

    /// One blob.
    async fn blob(
        &self,
        tenant: &TenantId,
        session: SessionId,
        digest: &Sha256Digest,
    ) -> Result<Option<Blob>, StoreError>;

    /// All keys of a session that still exist.
    async fn session_keys(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<WrappedKey>, StoreError>;

    /// A tenant's approvals, newest first.
    async fn list_approvals(
        &self,
        tenant: &TenantId,
        status: Option<ApprovalStatus>,
        after: Option<&ApprovalCursor>,
        limit: u32,
    ) -> Result<Page<ApprovalRow, ApprovalCursor>, StoreError>;

    /// One approval.
    async fn approval(&self, tenant: &TenantId, id: &ApprovalId) -> Result<Option<ApprovalRow>, StoreError>;

    /// Puts an input where the owner of the session finds it.
    async fn inbox_put(&self, tenant: &TenantId, session: SessionId, row: InboxRow) -> Result<InboxPut, StoreError>;

    /// The inputs that wait, oldest first.
    async fn inbox_list(&self, tenant: &TenantId, session: SessionId, limit: u32) -> Result<Vec<InboxRow>, StoreError>;

    /// Messages to the outside that are due at or before `now`, longest due first.
    async fn outbox_due(&self, now: Timestamp, limit: u32) -> Result<Vec<(SessionKey, OutboxRow)>, StoreError>;

    /// Removes a message that was delivered or given up.
    async fn outbox_done(&self, key: &SessionKey, id: &str) -> Result<(), StoreError>;

    /// Counts an attempt and makes the message due again at `due_at`.
    async fn outbox_postpone(&self, key: &SessionKey, id: &str, due_at: Timestamp) -> Result<(), StoreError>;
}

/// What belongs to a tenant or to the cluster and not to one session.
#[async_trait]
pub trait Registry: Send + Sync + Debug {
    /// Claims an idempotency key before the work begins. Of racing claims exactly one is `New`.
    async fn idempotency_claim(&self, claim: &IdempotencyClaim) -> Result<Claimed, StoreError>;

    /// Looks at a key without claiming it; `None` when it is unknown or only claimed.
    async fn idempotency_get(&self, key: &IdempotencyKey) -> Result<Option<IdempotencyRow>, StoreError>;

    /// Stores an answer outside an append. `false` when the key already has one, or belongs to another body.
    async fn idempotency_put(&self, row: &IdempotencyRow) -> Result<bool, StoreError>;

    /// Gives a claimed key back, because the request failed in a way that may be tried again. A stored answer stays.
    async fn idempotency_release(&self, key: &IdempotencyKey) -> Result<(), StoreError>;

    /// Forgets answers that expired before `now`, at most `limit`; how many went.
    async fn idempotency_sweep(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Stores a bundle; `false` when this very version is there already.
    async fn bundle_put(&self, tenant: &TenantId, bundle: &BundleRow) -> Result<bool, StoreError>;

    /// One version.
    async fn bundle(&self, tenant: &TenantId, digest: &Sha256Digest) -> Result<Option<BundleRow>, StoreError>;

    /// The version new sessions pin.
    async fn bundle_current(&self, tenant: &TenantId) -> Result<Option<BundleRow>, StoreError>;

    /// Makes a stored version current, if the current one is still `expected`; `false` otherwise.
    async fn bundle_set_current(
        &self,
        tenant: &TenantId,
        expected: Option<&Sha256Digest>,
        digest: &Sha256Digest,
    ) -> Result<bool, StoreError>;

    /// Stores a credential; `false` when the key id is taken.
    async fn api_key_put(&self, key: &ApiKeyRow) -> Result<bool, StoreError>;

    /// Finds a credential by its public part, whatever its tenant: this is how the tenant becomes known.
    async fn api_key_find(&self, key_id: &str) -> Result<Option<ApiKeyRow>, StoreError>;

    /// A tenant's credentials by key id.
    async fn api_key_list(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ApiKeyRow, String>, StoreError>;

    /// Revokes a credential; `false` when there is none of this tenant. An earlier revocation keeps its time.
    async fn api_key_revoke(&self, tenant: &TenantId, key_id: &str, at: Timestamp) -> Result<bool, StoreError>;

    /// Appends to a tenant's security log.
    async fn security_append(&self, tenant: &TenantId, row: &SecurityRow) -> Result<(), StoreError>;

    /// A tenant's security log, newest first.
    async fn security_list(
        &self,
        tenant: &TenantId,
        after: Option<&SecurityCursor>,
        limit: u32,
    ) -> Result<Page<SecurityRow, SecurityCursor>, StoreError>;

    /// Whether this is the master key that the database was written with; to be asked once at start, before anything is
    /// written. An empty database keeps a proof of the key, by which it is known from then on. Where data of an earlier
    /// release stand without a proof, the key must open one of the content keys.
    ///
    /// # Errors
    /// [`StoreError::OtherMasterKey`]; [`StoreError::UnprovenMasterKey`] when there are data and nothing to try the key on.
    async fn check_master(&self, master: &MasterKey) -> Result<(), StoreError>;

    /// Whether the database answers; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// A whole store.
pub trait Store: EventLog + Registry + Ledger + Cluster + Snapshots {}

impl<T: EventLog + Registry + Ledger + Cluster + Snapshots> Store for T {}
