//! Figures, named exceptions and failures. What is not here: what is counted.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Failures that are shown.
const MAX_SHOWN: usize = 20;

/// What a run found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: BTreeMap<String, u64>,
    exceptions: BTreeMap<String, Vec<String>>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn count(&mut self, what: &str, by: u64) {
        *self.counts.entry(what.to_owned()).or_default() += by;
    }

    pub(crate) fn counted(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// A difference that is meant, with its reason.
    pub(crate) fn except(&mut self, reason: &str, which: String) {
        self.exceptions.entry(reason.to_owned()).or_default().push(which);
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    pub(crate) const fn holds(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (reason, which) in &self.exceptions {
            writeln!(out, "exception: {reason} ({}): {}", which.len(), which.join(" "))?;
        }
        for failure in self.failures.iter().take(MAX_SHOWN) {
            writeln!(out, "FAILED: {failure}")?;
        }
        for (what, count) in &self.counts {
            writeln!(out, "{count:>9}  {what}")?;
        }
        let verdict = if self.holds() { "all hold" } else { "does not hold" };
        writeln!(out, "{} failures: {verdict}", self.failures.len())
    }
}
