//! What a node tells whoever sent an input.

use toolgate_core::reason::RefusalCode;

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Taken, and durable from this sequence number on.
    Taken { seq: u64 },
    /// Taken; there was nothing to record.
    Unchanged,
    /// It was taken before, there.
    Already { seq: u64 },
    /// It does not fit.
    Refused(RefusalCode),
    /// It waits durably for the owner of the session, who will take it.
    Waits,
    /// Try again.
    Busy,
    /// Whether it was taken is unknown; send it again.
    Unknown,
}

impl Said {
    /// Whether the sender has its answer.
    pub(crate) const fn is_final(self) -> bool {
        !matches!(self, Self::Busy | Self::Unknown)
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Taken { .. } => "taken",
            Self::Unchanged => "unchanged",
            Self::Already { .. } => "already",
            Self::Refused(_) => "refused",
            Self::Waits => "waits in the inbox",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}
