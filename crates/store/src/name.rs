//! Names that only the store gives out: keys and nodes. What is not here: the names of the domain (`toolgate_core::id`).

use std::fmt;

use toolgate_core::id::{CallId, InvalidName};

const RULE: &str = "1 to 128 visible ASCII characters";

fn is_token(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The name of one content key within its session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// The name of the session's own key.
    #[must_use]
    pub fn session() -> Self {
        Self("session".to_owned())
    }

    /// The name of the key for the redacted parts of one call.
    #[must_use]
    pub fn call(call: &CallId) -> Self {
        Self(call.as_str().to_owned())
    }

    /// Reads a stored name.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if is_token(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName { what: "key id", text: text.chars().take(80).collect(), rule: RULE })
        }
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The persistent name of one node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

impl NodeId {
    /// Checks the text: 1 to 128 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if is_token(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName { what: "node id", text: text.chars().take(80).collect(), rule: RULE })
        }
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of a node: its persistent name and the number of this start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdentity {
    /// The persistent name.
    pub node: NodeId,
    /// Counts the starts of the node from 1; an older incarnation never owns anything again.
    pub incarnation: u64,
}
