//! What tools were asked to do, in their own words: every request that reached an HTTP tool, every call that a client ran.
//! Only ever appended to. What is not here: the tools (`stubs`, `callers`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often an attempt may reach a tool, and a call its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// May run again.
    Read,
    /// May run again under the same key.
    Idempotent,
    /// At most once.
    Once,
}

impl Class {
    /// The word of bundle and log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Once => "once",
        }
    }
}

/// A tool of the run's bundle.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Whether a client runs it.
    pub at_client: bool,
    /// Whether a human approves each call.
    pub approved: bool,
}

/// All tools: each class at both venues, and one whose calls wait for a human.
pub const TOOLS: [Tool; 7] = [
    Tool { name: "look", class: Class::Read, at_client: false, approved: false },
    Tool { name: "put", class: Class::Idempotent, at_client: false, approved: false },
    Tool { name: "pay", class: Class::Once, at_client: false, approved: false },
    Tool { name: "sign", class: Class::Once, at_client: false, approved: true },
    Tool { name: "peek", class: Class::Read, at_client: true, approved: false },
    Tool { name: "write", class: Class::Idempotent, at_client: true, approved: false },
    Tool { name: "order", class: Class::Once, at_client: true, approved: false },
];

/// One time that a tool was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The call.
    pub call: String,
    /// Its attempt, from 1.
    pub attempt: u64,
    /// The sequence number of its dispatch, as the request says.
    pub fence: u64,
    /// The tool's name.
    pub tool: String,
    /// The arguments, as their text came.
    pub args: String,
    /// What the tool answers with. An `idempotent` one repeats what it answered before to the same key.
    pub receipt: u64,
}

/// The journal of all tools.
#[derive(Debug, Default)]
pub struct Journal {
    asked: Mutex<Vec<Asked>>,
    receipts: Mutex<BTreeMap<String, u64>>,
}

/// A lock whose holder has panicked holds what was pushed before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// Notes that a tool was asked; what it answers with.
    pub fn note(&self, class: Class, asked: Asked) -> u64 {
        let mut all = lock(&self.asked);
        let fresh = all.len() as u64 + 1;
        let receipt = match class {
            Class::Idempotent => *lock(&self.receipts).entry(asked.call.clone()).or_insert(fresh),
            Class::Read | Class::Once => fresh,
        };
        all.push(Asked { receipt, ..asked });
        receipt
    }

    /// Entries so far.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.asked).len()
    }

    /// Whether nobody was asked anything yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of all of it.
    #[must_use]
    pub fn all(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }
}
