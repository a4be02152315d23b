//! How much an operator has said: the five ways of governing the same suite. What is not here: the rules (`rules`).

use std::fmt;

/// A way of governing a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// One profile with every tool of the suite; it knows nothing of the task.
    Generic,
    /// Generic, and the rules of the strict tier: what they are worth where nobody knows the task.
    Ruled,
    /// A profile per task, with the tools that the task needs.
    Scoped,
    /// Scoped, and rules on where arguments come from, on totals and on outgoing text.
    Strict,
    /// Strict, and a human is asked about whatever is created under a name that the user did not say.
    Strictest,
}

impl Tier {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Generic, Self::Ruled, Self::Scoped, Self::Strict, Self::Strictest];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Ruled => "ruled",
            Self::Scoped => "scoped",
            Self::Strict => "strict",
            Self::Strictest => "strictest",
        }
    }

    /// Whether rules stand beside the lists of tools.
    #[must_use]
    pub const fn has_rules(self) -> bool {
        matches!(self, Self::Ruled | Self::Strict | Self::Strictest)
    }

    /// Whether each task has a profile of its own.
    #[must_use]
    pub const fn knows_the_task(self) -> bool {
        matches!(self, Self::Scoped | Self::Strict | Self::Strictest)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
