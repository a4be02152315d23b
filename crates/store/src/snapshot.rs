//! States of sessions, kept so that a long log is not folded from its beginning each time. A cache: whoever lacks one, or
//! cannot read it, folds the log; and one that does not fit the log is not used. What is not here: what is in one
//! (`codec::snapshot`), when one is made (the server).

use std::fmt::Debug;

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};

use crate::append::Sealed;
use crate::error::StoreError;

/// The state of a session after a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The row.
    pub seq: u64,
    /// The row's hash: the state belongs to the log that has this row there.
    pub hash: [u8; 32],
    /// The form of the state. A state of another form is not read.
    pub form: String,
    /// The state, sealed under the session's key.
    pub state: Sealed,
}

/// Keeps at most one snapshot of each session.
#[async_trait]
pub trait Snapshots: Send + Sync + Debug {
    /// The snapshot of a session, if there is one.
    async fn snapshot(&self, tenant: &TenantId, session: SessionId) -> Result<Option<Snapshot>, StoreError>;

    /// Keeps a snapshot in the place of an older one. One that is older than what is kept, or of no session, is dropped, unless
    /// what is kept has another form.
    async fn snapshot_put(&self, tenant: &TenantId, session: SessionId, snapshot: &Snapshot) -> Result<(), StoreError>;
}
