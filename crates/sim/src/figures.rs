//! What worlds went through, counted by name. What is not here: whether it was right (`oracle`).

use std::collections::BTreeMap;
use std::fmt;

/// Counts by group and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures(BTreeMap<(&'static str, &'static str), u64>);

impl Figures {
    pub(crate) fn count(&mut self, group: &'static str, name: &'static str) {
        self.add(group, name, 1);
    }

    pub(crate) fn add(&mut self, group: &'static str, name: &'static str, by: u64) {
        *self.0.entry((group, name)).or_insert(0) += by;
    }

    /// How often it happened.
    #[must_use]
    pub fn of(&self, group: &'static str, name: &'static str) -> u64 {
        self.0.get(&(group, name)).copied().unwrap_or(0)
    }

    /// Adds the counts of other worlds.
    pub fn take_in(&mut self, other: &Self) {
        for ((group, name), times) in &other.0 {
            self.add(group, name, *times);
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for ((group, name), times) in &self.0 {
            if *group != last {
                writeln!(f, "{group}")?;
                last = group;
            }
            writeln!(f, "  {name:<40} {times:>12}")?;
        }
        Ok(())
    }
}
