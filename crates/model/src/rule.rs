//! The comparison that keeps a session's log in one hand: `judge` below is `crates/store/src/fence.rs::judge`, line by line,
//! for numbers instead of rows, with the parts that a mutant leaves out. `tests/it/store.rs` compares the two.

use crate::rules::Rules;

/// What the session row says before an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The ownership in force.
    pub epoch: u8,
    /// The seq of the last row.
    pub head_seq: u8,
    /// Its hash.
    pub head_hash: u32,
}

/// What an append says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The ownership of its writer.
    pub epoch: u8,
    /// The head that its rows were made for.
    pub expected_head: u8,
    /// The `prev_hash` of its first row; none where it has no rows.
    pub prev_hash: Option<u32>,
}

/// What that means for the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fence {
    /// It may be applied.
    Open,
    /// Another owner has taken over.
    Fenced,
    /// The head is another one: applied before if its very bytes stand there, stale otherwise.
    Moved,
}

/// Compares an append with the session row.
#[must_use]
pub fn judge(rules: &Rules, standing: &Standing, append: &Claim) -> Fence {
    if rules.compare_epoch && standing.epoch != append.epoch {
        return Fence::Fenced;
    }
    let follows = append.prev_hash.is_none_or(|prev_hash| prev_hash == standing.head_hash);
    if rules.compare_head && (standing.head_seq != append.expected_head || !follows) {
        return Fence::Moved;
    }
    Fence::Open
}
