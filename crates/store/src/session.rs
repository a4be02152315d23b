//! The session as the store keeps it, and how lists of sessions are asked for. What is not here: its log (`row`).

use toolgate_core::id::{ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::append::Projection;
use crate::name::NodeIdentity;

/// One session: who owns it, where its log ends, and what lists show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The tenant.
    pub tenant: TenantId,
    /// The session's key.
    pub session: SessionId,
    /// The caller's own id.
    pub alias: Option<String>,
    /// The fingerprint of the creating body.
    pub body_fingerprint: Sha256Digest,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// When it was created.
    pub created_at: Timestamp,
    /// The ownership period, from 1.
    pub epoch: u64,
    /// Who owns it; nobody when it was released.
    pub owner: Option<NodeIdentity>,
    /// The seq of the last row.
    pub head_seq: u64,
    /// The hash of the last row.
    pub head_hash: [u8; 32],
    /// Whether it is closed for good.
    pub closed: bool,
    /// What lists show.
    pub projection: Projection,
}

/// Which sessions a list shows. Empty fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Only this status word.
    pub status: Option<String>,
    /// Only this profile.
    pub profile: Option<ProfileName>,
    /// Only sessions created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Only sessions created before this time.
    pub created_before: Option<Timestamp>,
}

/// A place in a newest-first list of sessions: the last one seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCursor {
    /// When it was created.
    pub created_at: Timestamp,
    /// Its key.
    pub session: SessionId,
}

/// A session's full key, and a place in lists across tenants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
}

/// Which sessions need somebody to load them, across tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Sessions with work under way.
    Active,
    /// Sessions whose `next_wake_at` is at or before this time.
    Due(Timestamp),
    /// Sessions with rows in their inbox.
    Inbox,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// Where the next page starts; none at the end of the list.
    pub next: Option<C>,
}
