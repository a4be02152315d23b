//! Text of bounded length for details: quoting what was wrong without copying all of it. What is not here: which
//! sentence is said (`envelope::repair`, `openai`).

use toolgate_core::json::{JsonFault, JsonFaultKind};
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, ProviderFailure, Usage};

/// Characters of a detail, at most.
const MAX_DETAIL: usize = 400;

/// Cuts a text to the length of a detail.
pub(crate) fn detail(text: &str) -> String {
    clip(text, MAX_DETAIL)
}

/// One line of at most `max` characters; control characters become spaces.
pub(crate) fn clip(text: &str, max: usize) -> String {
    let mut out: String = text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(max).is_some() {
        out.pop();
        out.push('\u{2026}');
    }
    out
}

/// The reason of a ballot for a fault of its JSON.
pub(crate) const fn reason_of(kind: JsonFaultKind) -> MalformedReason {
    match kind {
        JsonFaultKind::Syntax => MalformedReason::Syntax,
        JsonFaultKind::DuplicateKey => MalformedReason::DuplicateKey,
        JsonFaultKind::TooDeep => MalformedReason::TooDeep,
        JsonFaultKind::NumberOutOfRange => MalformedReason::NumberOutOfRange,
        JsonFaultKind::LoneSurrogate => MalformedReason::LoneSurrogate,
    }
}

/// The sentence for a fault of some JSON that a model wrote.
pub(crate) fn fault_sentence(what: &str, fault: &JsonFault, text: &str) -> String {
    detail(&format!("{what}: {fault}. It was `{}`. Send one JSON object.", clip(text.trim(), 100)))
}

/// A ballot without text: no answer could be read at all.
pub(crate) fn bare(verdict: BallotVerdict) -> Ballot {
    Ballot {
        verdict,
        text: String::new(),
        normalised: Vec::new(),
        opaque: None,
        usage: Usage::default(),
        model: None,
        fingerprint: None,
        cut: None,
    }
}

/// The verdict for an answer that did not come.
pub(crate) fn failed(reason: ProviderFailure, text: &str) -> BallotVerdict {
    BallotVerdict::Failed { reason, detail: detail(text) }
}

/// The verdict for an answer that cannot be read.
pub(crate) fn malformed(reason: MalformedReason, text: &str) -> BallotVerdict {
    BallotVerdict::Malformed { reason, detail: detail(text) }
}
