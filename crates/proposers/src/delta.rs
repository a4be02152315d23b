//! Pieces of an answer while it comes, for people who watch. They are ephemeral: nothing is decided on them, and nobody
//! may rely on having seen all of them. What is not here: how they reach a client (`toolgate-server`).

use std::fmt;

use secrecy::SecretString;

use crate::secret::scrub_text;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More of the text.
    Text(String),
    /// More of what the model thinks, where the provider shows it.
    Reasoning(String),
    /// A call begins; it is neither complete nor decided.
    Call {
        /// Which call of the answer, from 0, in the order they began.
        at: usize,
        /// The name as it is on the wire.
        name: String,
    },
    /// More of the text of a call's arguments.
    Arguments {
        /// Which call of the answer, from 0.
        at: usize,
        /// The piece.
        text: String,
    },
    /// Everything so far is void: the attempt failed, and the question is asked again.
    Discarded,
}

/// Takes pieces. It must not block; what it cannot take at once it drops.
pub trait DeltaSink: Send + Sync + fmt::Debug {
    /// One piece.
    fn delta(&self, delta: Delta);
}

impl Delta {
    /// The same piece without the API key, in case a server echoes it.
    pub(crate) fn scrubbed(self, key: Option<&SecretString>) -> Self {
        match self {
            Self::Text(text) => Self::Text(scrub_text(&text, key)),
            Self::Reasoning(text) => Self::Reasoning(scrub_text(&text, key)),
            Self::Call { at, name } => Self::Call { at, name: scrub_text(&name, key) },
            Self::Arguments { at, text } => Self::Arguments { at, text: scrub_text(&text, key) },
            Self::Discarded => Self::Discarded,
        }
    }
}
