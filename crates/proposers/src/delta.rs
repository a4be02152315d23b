//! Pieces of an answer while it comes, for people who watch. They are ephemeral: nothing is decided on them, and nobody
//! may rely on having seen all of them. What is not here: how they reach a client (`toolgate-server`).

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

use crate::secret::{HIDDEN, MIN_IN_BODY, scrub_text, spellings};

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

/// Takes the API key out of pieces, in case a server echoes it, also where the key is spread over several of them: what may
/// be its beginning is held back until the next piece shows what it is.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// The key as it is, and as JSON may write it.
    patterns: Vec<SecretString>,
    held: BTreeMap<Strand, String>,
}

/// Pieces that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strand {
    Text,
    Reasoning,
    Arguments(usize),
}

impl Strand {
    const fn piece(self, text: String) -> Delta {
        match self {
            Self::Text => Delta::Text(text),
            Self::Reasoning => Delta::Reasoning(text),
            Self::Arguments(at) => Delta::Arguments { at, text },
        }
    }
}

impl Cleaner {
    pub(crate) fn new(key: Option<&SecretString>) -> Self {
        Self { patterns: key.map(spellings).unwrap_or_default(), held: BTreeMap::new() }
    }

    /// The piece as it may be shown; none while all of it is held back.
    pub(crate) fn push(&mut self, delta: Delta) -> Option<Delta> {
        if self.patterns.is_empty() {
            return Some(delta);
        }
        let (strand, text) = match delta {
            Delta::Text(text) => (Strand::Text, text),
            Delta::Reasoning(text) => (Strand::Reasoning, text),
            Delta::Arguments { at, text } => (Strand::Arguments(at), text),
            // Names come whole.
            Delta::Call { at, name } => return Some(Delta::Call { at, name: self.clean(name) }),
            Delta::Discarded => {
                self.held.clear();
                return Some(Delta::Discarded);
            }
        };
        let whole = self.held.remove(&strand).unwrap_or_default() + &text;
        let mut text = self.clean(whole);
        let begun = self.patterns.iter().map(|pattern| begun(&text, pattern.expose_secret())).max().unwrap_or_default();
        let held = text.split_off(text.len() - begun);
        if !held.is_empty() {
            self.held.insert(strand, held);
        }
        (!text.is_empty()).then(|| strand.piece(text))
    }

    /// What is still held back once the answer is over. Enough of a key to be worth something stays hidden.
    pub(crate) fn finish(&mut self) -> impl Iterator<Item = Delta> {
        std::mem::take(&mut self.held).into_iter().map(|(strand, held)| {
            let shown = if held.len() < MIN_IN_BODY { held } else { HIDDEN.to_owned() };
            strand.piece(shown)
        })
    }

    fn clean(&self, text: String) -> String {
        self.patterns.iter().fold(text, |text, pattern| scrub_text(&text, Some(pattern)))
    }
}

/// The longest end of a text that may be the beginning of a key.
fn begun(text: &str, key: &str) -> usize {
    let ends = key.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && *at <= text.len());
    ends.rev().find(|at| key.get(..*at).is_some_and(|start| text.ends_with(start))).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn shown(key: &str, text: &str, size: usize) -> String {
        let mut cleaner = Cleaner::new(Some(&SecretString::from(key)));
        let chars: Vec<char> = text.chars().collect();
        let mut all = String::new();
        let mut keep = |delta: Delta| match delta {
            Delta::Text(text) => all.push_str(&text),
            other => panic!("{other:?}"),
        };
        chars.chunks(size).filter_map(|piece| cleaner.push(Delta::Text(piece.iter().collect()))).for_each(&mut keep);
        cleaner.finish().for_each(&mut keep);
        all
    }

    #[test]
    fn a_key_in_pieces_is_cut_out_however_it_is_split() {
        let key = "sk-s\u{e4}k/0123-sk-sa";
        let text = format!("sk-{key} and {} s{key}sk", key.replace('/', "\\/"));
        let whole = text.replace(key, "[secret]").replace(&key.replace('/', "\\/"), "[secret]");
        for size in 1..=text.chars().count() {
            assert_eq!(shown(key, &text, size), whole, "{size}");
        }
        assert_eq!(shown("sk-0123456789", "it is sk-01234567", 3), "it is [secret]");
        assert_eq!(shown("sk-0123456789", "a risk-", 2), "a risk-");
    }

    #[test]
    fn strands_do_not_mix_and_a_void_attempt_leaves_nothing() {
        let mut cleaner = Cleaner::new(Some(&SecretString::from("secret-key")));
        let arguments = |at, text: &str| Delta::Arguments { at, text: text.to_owned() };
        assert_eq!(cleaner.push(arguments(0, "xsec")), Some(arguments(0, "x")));
        assert_eq!(cleaner.push(arguments(1, "ret-key")), Some(arguments(1, "ret-key")));
        assert_eq!(cleaner.push(Delta::Text("sec".to_owned())), None);
        assert_eq!(cleaner.push(arguments(0, "ret-key")), Some(arguments(0, "[secret]")));
        assert_eq!(cleaner.push(Delta::Discarded), Some(Delta::Discarded));
        assert_eq!(cleaner.finish().next(), None);
        let mut open = Cleaner::new(None);
        assert_eq!(open.push(Delta::Text("s".to_owned())).unwrap(), Delta::Text("s".to_owned()));
    }
}
