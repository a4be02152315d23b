//! Rows of the log, as few facts as the protocol needs.

/// The two calls of the session. Both are allowed; what differs is what may happen after an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// At most one dispatch, whatever happens.
    Once,
    /// May be sent again.
    Read,
}

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The session was opened by the first node.
    Opened,
    /// A node took the session over.
    Owner(u8),
    /// The call is allowed (attempt 1) and may be sent.
    Dispatch(Call, u8),
    /// The call ended with what the tool answered.
    Outcome(Call),
    /// The call ended, and nobody knows how.
    Unknown(Call),
    /// An input from the inbox was applied.
    Input(u8),
}

/// A row of the log, as its writer made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Its place, from 1, as the writer counted.
    pub seq: u8,
    /// The ownership under which it was written.
    pub epoch: u8,
    /// Stands for the hash of the row before.
    pub prev: u32,
    /// What it says.
    pub fact: Fact,
}

/// The hash of a row; 0 stands before the first.
#[must_use]
pub fn chained(row: Option<&Row>) -> u32 {
    let Some(row) = row else { return 0 };
    let fact: u32 = match row.fact {
        Fact::Opened => 1,
        Fact::Owner(node) => 16 + u32::from(node),
        Fact::Dispatch(call, attempt) => 32 + 4 * u32::from(attempt) + call as u32,
        Fact::Outcome(call) => 64 + call as u32,
        Fact::Unknown(call) => 80 + call as u32,
        Fact::Input(input) => 96 + u32::from(input),
    };
    [u32::from(row.seq), u32::from(row.epoch), row.prev, fact]
        .into_iter()
        .fold(0x811c_9dc5, |hash, part| (hash ^ part).wrapping_mul(0x0100_0193).rotate_left(7))
}
