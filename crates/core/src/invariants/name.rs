//! The names of the invariants that the core checks; the chain, the tenant and the head row (I2, I15, I18) are the store's.

use std::fmt;

/// An invariant of the log. Its code is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Numbers without gaps from 1, beginning with `session_opened`.
    I1,
    /// Epochs never fall, and begin with `owner_changed`.
    I3,
    /// Dispatched means allowed before, with the same arguments.
    I4,
    /// One decision per call, attempts in order.
    I5,
    /// One terminal record per call, after its dispatch.
    I6,
    /// Nothing after the end but late records.
    I7,
    /// The tool stands in the profile.
    I8,
    /// Sent to the venue of its tool.
    I9,
    /// `done` has its evidence.
    I10,
    /// Bounds hold.
    I11,
    /// Approved before it is sent.
    I12,
    /// Denied is not sent.
    I13,
    /// `once` and unknown is not sent again.
    I14,
    /// An input is recorded once.
    I16,
    /// Written by known rules.
    I17,
    /// What acts has won its vote.
    I19,
}

impl Invariant {
    /// All that are checked here.
    pub const ALL: [Self; 16] = [
        Self::I1,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
        Self::I11,
        Self::I12,
        Self::I13,
        Self::I14,
        Self::I16,
        Self::I17,
        Self::I19,
    ];

    /// Its code, `I1` to `I19`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::I1 => "I1",
            Self::I3 => "I3",
            Self::I4 => "I4",
            Self::I5 => "I5",
            Self::I6 => "I6",
            Self::I7 => "I7",
            Self::I8 => "I8",
            Self::I9 => "I9",
            Self::I10 => "I10",
            Self::I11 => "I11",
            Self::I12 => "I12",
            Self::I13 => "I13",
            Self::I14 => "I14",
            Self::I16 => "I16",
            Self::I17 => "I17",
            Self::I19 => "I19",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
