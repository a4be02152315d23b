//! How much an operator has said: the four ways of governing the same suite. What is not here: the rules (`rules`).

use std::fmt;

/// A way of governing a suite; each is stricter than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// One profile with every tool of the suite; it knows nothing of the task.
    Generic,
    /// A profile per task, with the tools that the task needs.
    Scoped,
    /// Scoped, and rules on where arguments come from, on totals and on outgoing text.
    Strict,
    /// Strict, and a human is asked about whatever is created under a name that the user did not say.
    Strictest,
}

impl Tier {
    /// From the widest to the narrowest.
    pub const ALL: [Self; 4] = [Self::Generic, Self::Scoped, Self::Strict, Self::Strictest];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Scoped => "scoped",
            Self::Strict => "strict",
            Self::Strictest => "strictest",
        }
    }

    /// Whether rules stand beside the lists of tools.
    #[must_use]
    pub const fn has_rules(self) -> bool {
        matches!(self, Self::Strict | Self::Strictest)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
