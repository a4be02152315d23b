//! The comparison that keeps a session's log in one hand, for backends that hold the session row while they compare.
//! PostgreSQL makes the same comparison inside its function.

use crate::append::Append;
use crate::row::AFTER_CLOSE;

/// What the session row says before an append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) epoch: u64,
    pub(crate) head_seq: u64,
    pub(crate) head_hash: [u8; 32],
    pub(crate) closed: bool,
}

/// What that means for the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// It may be applied.
    Open,
    /// Another owner has taken over.
    Fenced,
    /// The head is another one: the append was applied before if its very bytes stand there, and is stale otherwise.
    Moved,
    /// The session is closed for rows of these kinds.
    Closed,
}

/// Compares an append with the session row.
pub(crate) fn judge(standing: &Standing, append: &Append) -> Fence {
    if standing.epoch != append.epoch {
        return Fence::Fenced;
    }
    let follows = append.rows.first().is_none_or(|row| row.prev_hash == standing.head_hash);
    if standing.head_seq != append.expected_head || !follows {
        return Fence::Moved;
    }
    if standing.closed && append.rows.iter().any(|row| !AFTER_CLOSE.contains(&row.kind.as_str())) {
        return Fence::Closed;
    }
    Fence::Open
}
