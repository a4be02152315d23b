//! Faults of a policy as written: where, which rule of the format, and how to mend it. What is not here: what a valid
//! policy says about a call (`finding`).

/// One fault of a policy, with its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{pointer}: {detail} ({rule})")]
pub struct Fault {
    /// JSON pointer into the policy section, for example `/arguments/no-etc/path/root`.
    pub pointer: String,
    /// The short name of the rule of the format that is broken, for example `tool_exists`.
    pub rule: &'static str,
    /// What is wrong and how to mend it.
    pub detail: String,
}

/// Collects faults while a policy is compiled; every part goes on after a fault, so that all are found at once.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Fault>,
}

/// More faults than this are not listed: the text is then wrong as a whole.
const MAX_FAULTS: usize = 200;

impl Faults {
    pub(crate) fn add(&mut self, pointer: impl Into<String>, rule: &'static str, detail: impl Into<String>) {
        if self.found.len() < MAX_FAULTS {
            self.found.push(Fault { pointer: pointer.into(), rule, detail: detail.into() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// All faults in the order of their places.
    pub(crate) fn into_sorted(mut self) -> Vec<Fault> {
        self.found.sort();
        self.found.dedup();
        self.found
    }
}

/// A name as one token of a JSON pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
