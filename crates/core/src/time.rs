//! Points in time and spans as plain numbers. What is not here: any clock; time enters as `Stamped::at`.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The point `ms` milliseconds later, saturating at the end of the range.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        let us = ms.saturating_mul(1_000);
        let us = if us > i64::MAX as u64 { i64::MAX } else { us.cast_signed() };
        Self(self.0.saturating_add(us))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}
