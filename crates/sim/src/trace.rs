//! The course of a world as a hash, and as text where somebody reads it. What is sealed with random nonces has no part in
//! it: two runs of one seed differ in those bytes, and in nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};

use toolgate_core::time::Timestamp;

/// What was noted so far.
#[derive(Debug)]
pub(crate) struct Trace {
    hasher: DefaultHasher,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Self {
        Self { hasher: DefaultHasher::new(), lines: verbose.then(Vec::new) }
    }

    pub(crate) fn note(&mut self, at: Timestamp, what: &'static str, a: u64, b: u64) {
        (at.as_micros(), what, a, b).hash(&mut self.hasher);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14} {what} {a} {b}", at.as_micros() % 1_000_000_000_000));
        }
    }

    /// Adds words; they count as well.
    pub(crate) fn say(&mut self, at: Timestamp, text: &str) {
        text.hash(&mut self.hasher);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14} {text}", at.as_micros() % 1_000_000_000_000));
        }
    }

    /// Adds words that only a reader needs.
    pub(crate) fn detail(&mut self, at: Timestamp, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14}   {}", at.as_micros() % 1_000_000_000_000, text()));
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
