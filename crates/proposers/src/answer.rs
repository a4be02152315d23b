//! One decoded answer, the same for every provider and for whole and streamed replies. What is not here: how a provider
//! writes it (`openai`, `anthropic`, `responses`), what it amounts to (`judge`).

use secrecy::SecretString;
use serde_json::{Map, Value};
use toolgate_core::json::Json;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, ProviderFailure, Usage};

use crate::quote::{failed, malformed};
use crate::secret::scrub_text;

/// What came back from the endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type`, if the server sent one.
    pub content_type: Option<&'a str>,
    /// The body, complete.
    pub body: &'a [u8],
}

/// Whether the answer is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Complete.
    Whole,
    /// Complete, and the provider says that there are calls.
    CallsAnnounced,
    /// Cut by the output limit.
    Cut,
    /// Stopped by a content filter.
    Filtered,
    /// The provider says that the model's output was invalid.
    Rejected,
    /// The provider gave up in the middle.
    Aborted,
}

/// A call as the provider sent it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawCall {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    /// A string holds the exact text of the arguments.
    pub(crate) args: Option<Value>,
    /// Provider fields of this call that must go back unchanged.
    pub(crate) extra: Option<Value>,
}

/// One answer, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) finish: Finish,
    pub(crate) text: String,
    /// `None` where an entry is no call at all.
    pub(crate) calls: Vec<Option<RawCall>>,
    /// Fields of the message that must go back unchanged.
    pub(crate) fields: Map<String, Value>,
    pub(crate) notes: Vec<String>,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
    pub(crate) fingerprint: Option<String>,
}

/// A reply that holds no answer, with what the provider says it cost all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) verdict: BallotVerdict,
    pub(crate) usage: Usage,
}

impl From<BallotVerdict> for Unread {
    fn from(verdict: BallotVerdict) -> Self {
        Self { verdict, usage: Usage::default() }
    }
}

impl Unread {
    /// Whether asking again may help: the request was not served, or failed inside the provider.
    pub(crate) fn is_transient(&self) -> bool {
        use ProviderFailure::{RateLimited, ServerError, TimedOut, Transport};
        match &self.verdict {
            // A spent budget comes as 429, and no waiting cures it.
            BallotVerdict::Failed { reason: Transport | RateLimited | ServerError | TimedOut, detail } => {
                !detail.contains("insufficient_quota")
            }
            _ => false,
        }
    }
}

impl Answer {
    /// The ballot of this answer with a verdict.
    pub(crate) fn ballot(self, verdict: BallotVerdict, opaque: Option<Json>) -> Ballot {
        Ballot {
            verdict,
            text: self.text,
            normalised: self.notes,
            opaque,
            usage: self.usage,
            model: self.model,
            fingerprint: self.fingerprint,
            cut: None,
        }
    }

    /// Adds a note once.
    pub(crate) fn note(&mut self, note: &str) {
        add_note(&mut self.notes, note);
    }

    /// The verdict of an answer that is not whole, whatever is in it: nothing of it may run.
    pub(crate) fn not_whole(&self) -> Option<BallotVerdict> {
        match self.finish {
            Finish::Whole | Finish::CallsAnnounced => None,
            Finish::Cut => Some(cut()),
            Finish::Filtered => Some(malformed(
                MalformedReason::ContentFiltered,
                "the provider's content filter stopped the answer; nothing of it was used",
            )),
            Finish::Rejected => Some(malformed(
                MalformedReason::ProviderRejected,
                "the provider reported that the output was no valid call; send one valid call or an answer",
            )),
            Finish::Aborted => {
                Some(failed(ProviderFailure::ServerError, "the provider gave up in the middle of the answer"))
            }
        }
    }

    /// Cuts an API key out of everything that is shown or stored.
    pub(crate) fn scrub(&mut self, key: &SecretString) {
        let scrub = |value: &mut Value| {
            let text = value.to_string();
            let clean = scrub_text(&text, Some(key));
            if clean != text {
                *value = serde_json::from_str(&clean).unwrap_or(Value::Null);
            }
        };
        self.text = scrub_text(&self.text, Some(key));
        self.fields.values_mut().for_each(scrub);
        for call in self.calls.iter_mut().flatten() {
            [call.args.as_mut(), call.extra.as_mut()].into_iter().flatten().for_each(scrub);
        }
    }
}

/// Adds a note once.
pub(crate) fn add_note(notes: &mut Vec<String>, note: &str) {
    if !notes.iter().any(|known| known == note) {
        notes.push(note.to_owned());
    }
}

/// The verdict of an answer that the output limit cut.
pub(crate) fn cut() -> BallotVerdict {
    malformed(
        MalformedReason::Truncated,
        "output limit reached: the answer was cut off, its arguments discarded and nothing run; send a smaller call or a \
         shorter answer",
    )
}
