//! What one append carries and what it answers. What is not here: how a backend applies it.

use std::sync::Arc;

use toolgate_core::id::{InputId, ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::keys::WrappedKey;
use crate::name::{KeyId, NodeIdentity};
use crate::record::{ApprovalRow, Blob, IdempotencyRow, OutboxRow, SecurityRow};
use crate::row::Row;

/// Everything that becomes durable together: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// The tenant that owns the session.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The ownership period of the caller; the append is fenced when the session has moved on to another.
    pub epoch: u64,
    /// The head the rows were made for; the first row has the next seq.
    pub expected_head: u64,
    /// The rows in order. May be empty, for example when only the inbox is to be emptied.
    pub rows: Vec<Row>,
    /// Inbox rows that these rows answer; they are removed.
    pub consumed_inbox: Vec<InputId>,
    /// The answer to the request behind this append, for its repetition.
    pub idempotency: Option<IdempotencyRow>,
    /// Messages to the outside that follow from the rows.
    pub outbox: Vec<OutboxRow>,
    /// What the session looks like after the rows.
    pub projection: Projection,
    /// Approvals that were opened or changed; a row replaces the one of the same id.
    pub approvals: Vec<ApprovalRow>,
    /// Contents too large for a row.
    pub blobs: Vec<Blob>,
    /// Keys first used by these rows.
    pub new_keys: Vec<WrappedKey>,
    /// Keys to destroy with these rows.
    pub destroyed_keys: Vec<KeyId>,
    /// Entries for the tenant's security log.
    pub security: Vec<SecurityRow>,
}

impl Append {
    /// Both as one: this one's rows, then the next one's, which were made to follow them. The next one alone may carry an
    /// answer to a request.
    #[must_use]
    pub fn followed_by(mut self, next: Self) -> Self {
        self.rows.extend(next.rows);
        self.consumed_inbox.extend(next.consumed_inbox);
        self.idempotency = next.idempotency.or(self.idempotency);
        self.outbox.extend(next.outbox);
        self.projection = next.projection;
        self.approvals.retain(|known| next.approvals.iter().all(|newer| newer.id != known.id));
        self.approvals.extend(next.approvals);
        self.blobs.extend(next.blobs);
        // A key that lives and dies in one append is never stored.
        let (unstored, stored): (Vec<_>, Vec<_>) =
            next.destroyed_keys.into_iter().partition(|gone| self.new_keys.iter().any(|key| key.id == *gone));
        self.new_keys.retain(|key| !unstored.contains(&key.id));
        self.new_keys.extend(next.new_keys);
        self.destroyed_keys.extend(stored);
        self.security.extend(next.security);
        self
    }
}

/// The session as lists show it, kept beside the log in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The status word, as the API shows it.
    pub status: String,
    /// Whether work is under way that must be resumed when the owner is gone. Idle and waiting sessions say no.
    pub active: bool,
    /// The profile, once it is known.
    pub profile: Option<ProfileName>,
    /// How the last run ended.
    pub ending: Option<String>,
    /// How many approvals wait.
    pub pending_approvals: u32,
    /// When the session last changed.
    pub updated_at: Timestamp,
    /// When an unloaded session must be loaded again because of a timer.
    pub next_wake_at: Option<Timestamp>,
    /// The title.
    pub title: Option<Sealed>,
}

/// Content that is sealed under one of the session's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The key it is sealed under.
    pub key: KeyId,
    /// Nonce and ciphertext.
    pub bytes: Vec<u8>,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// Applied and durable.
    Ok {
        /// The new head.
        head: u64,
    },
    /// The very same bytes were applied before; the reply was lost.
    Already {
        /// The head of the session.
        head: u64,
    },
    /// The head is another one, or other bytes stand in this place. Forget all state of the session and load it again.
    Stale {
        /// The head of the session.
        head: u64,
    },
    /// Another owner has taken over. Forget all state of the session.
    Fenced {
        /// The epoch of the session now.
        epoch: u64,
    },
    /// An input of these rows has been recorded before; nothing was applied.
    DuplicateInput {
        /// The input.
        input: InputId,
        /// The row that records it.
        seq: u64,
    },
    /// The idempotency key already has an answer, or belongs to another body; nothing was applied.
    IdempotencyConflict,
}

/// A session to create, with its first rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The caller's own id, unique in the tenant; 1 to 128 visible ASCII characters.
    pub alias: Option<String>,
    /// The fingerprint of the creating body, to tell a repetition from a conflict.
    pub body_fingerprint: Sha256Digest,
    /// The pinned bundle.
    pub bundle: Sha256Digest,
    /// When the session was created.
    pub created_at: Timestamp,
    /// The first owner.
    pub owner: NodeIdentity,
    /// The first rows: `expected_head` 0 and `epoch` 1. Names the tenant and the session.
    pub append: Append,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// To a session that is there.
    Append(Arc<Append>),
    /// Of a session that is not there yet.
    Create(Arc<NewSession>),
}

impl Write {
    /// What it appends.
    #[must_use]
    pub fn append(&self) -> &Append {
        match self {
            Self::Append(append) => append,
            Self::Create(new) => &new.append,
        }
    }
}

/// The answer to one write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrote {
    /// To an append.
    Append(Appended),
    /// To a creation.
    Create(Created),
}

/// The answer to creating a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// Created and durable.
    Ok {
        /// The head after the first rows.
        head: u64,
    },
    /// The very same session was created before; the reply was lost.
    Already {
        /// The head of the session.
        head: u64,
    },
    /// The alias is taken.
    AliasExists {
        /// The session that has it.
        session: SessionId,
        /// Whether it was created with the same body.
        same_body: bool,
    },
    /// The session id is taken by other rows. Draw another id.
    SessionExists,
    /// The idempotency key already has an answer, or belongs to another body; nothing was applied.
    IdempotencyConflict,
}

/// A change of owner. The caller reads the session, builds the `owner_changed` row for the next epoch and the next seq, and asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// The tenant that owns the session.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The new owner.
    pub owner: NodeIdentity,
    /// The `owner_changed` row: seq is the head read plus 1, epoch the epoch read plus 1.
    pub row: Row,
}

/// The answer to a take-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenOver {
    /// The session belongs to the caller.
    Ok {
        /// The new head.
        head: u64,
        /// The new epoch.
        epoch: u64,
    },
    /// The very same take-over was applied before; the reply was lost. The session belongs to the caller.
    Already {
        /// The head of the session.
        head: u64,
        /// The epoch of the session.
        epoch: u64,
    },
    /// The session changed since it was read. Read it again before trying once more.
    Stale {
        /// The head of the session.
        head: u64,
        /// The epoch of the session.
        epoch: u64,
    },
    /// The session belongs to another node whose lease runs.
    Owned {
        /// The head of the session.
        head: u64,
        /// The epoch of the session.
        epoch: u64,
    },
}

#[cfg(test)]
impl Append {
    /// An append of nothing to an idle session, for tests to fill.
    #[expect(clippy::unwrap_used, reason = "tests fail loudly")]
    pub(crate) fn empty(session: SessionId, head: u64) -> Self {
        Self {
            tenant: TenantId::new("acme").unwrap(),
            session,
            epoch: 1,
            expected_head: head,
            rows: Vec::new(),
            consumed_inbox: Vec::new(),
            idempotency: None,
            outbox: Vec::new(),
            projection: Projection {
                status: "idle".to_owned(),
                active: false,
                profile: None,
                ending: None,
                pending_approvals: 0,
                updated_at: Timestamp(0),
                next_wake_at: None,
                title: None,
            },
            approvals: Vec::new(),
            blobs: Vec::new(),
            new_keys: Vec::new(),
            destroyed_keys: Vec::new(),
            security: Vec::new(),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::keys::{ContentKey, MasterKey};

    const EMPTY: [u8; 32] = [0; 32];

    fn session() -> SessionId {
        SessionId::from_uuid(uuid::Uuid::from_u128(7))
    }

    fn append(rows: u64, status: &str) -> Append {
        let row = |seq| Row {
            seq,
            epoch: 1,
            kind: "ticked".to_owned(),
            run: None,
            step: None,
            call: None,
            marks: crate::row::Marks::NONE,
            input_id: None,
            recorded_at: Timestamp(0),
            header: Vec::new(),
            payload: Vec::new(),
            prev_hash: EMPTY,
            hash: EMPTY,
        };
        let idle = Append::empty(session(), 4);
        let projection = Projection { status: status.to_owned(), active: true, ..idle.projection.clone() };
        Append { rows: (0..rows).map(row).collect(), projection, ..idle }
    }

    fn key(name: &str) -> WrappedKey {
        let master = MasterKey::from_bytes([1; 32]);
        let id = KeyId::parse(name).unwrap();
        master.wrap(&TenantId::new("acme").unwrap(), session(), id, &ContentKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn two_appends_are_one_at_the_place_of_the_first_with_the_state_of_the_second() {
        let both = append(1, "running").followed_by(append(2, "idle"));
        assert_eq!(both.expected_head, 4);
        assert_eq!(both.rows.len(), 3);
        assert_eq!(both.projection.status, "idle");
    }

    #[test]
    fn a_key_that_ends_before_it_was_stored_is_neither_stored_nor_destroyed() {
        let (lives, dies, old) = (key("call_lives"), key("call_dies"), KeyId::parse("call_old").unwrap());
        let first = Append { new_keys: vec![lives.clone(), dies.clone()], ..append(1, "running") };
        let second = Append { destroyed_keys: vec![dies.id.clone(), old.clone()], ..append(1, "running") };
        let both = first.followed_by(second);
        assert_eq!(both.new_keys, [lives]);
        assert_eq!(both.destroyed_keys, [old]);
    }
}
