//! The transcript as providers need it: each call of a model message with exactly one result right behind it. What is
//! not here: any wire format.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use toolgate_core::ask::{CallView, Entry};
use toolgate_core::id::CallId;
use toolgate_core::json::Json;

/// One piece of the conversation.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// The caller's words.
    User(&'a str),
    /// A model message and what became of its calls.
    Model { text: &'a str, calls: Vec<Answered<'a>>, opaque: Option<&'a Json> },
    /// A result whose call is not in the transcript (any more); it must not be sent as the answer to a call.
    Stray(Outcome<'a>),
    /// Toolgate's words.
    Feedback { code: &'a str, text: &'a str },
    /// What a model made of earlier steps.
    Summary { steps: u32, text: &'a str },
}

/// A call with its one result.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) call: &'a CallView,
    pub(crate) outcome: Outcome<'a>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    pub(crate) call: &'a CallId,
    pub(crate) tool: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: Option<&'a str>,
    pub(crate) body: &'a str,
}

/// Pairs calls with their results, wherever in the transcript they stand. A call without result gets one that says so:
/// providers refuse a history with a call left open, and then every later request of the session fails.
pub(crate) fn pair(transcript: &[Arc<Entry>]) -> Vec<Turn<'_>> {
    let mut results: HashMap<&CallId, Outcome<'_>> = HashMap::new();
    for outcome in transcript.iter().filter_map(|entry| outcome_of(entry)) {
        results.entry(outcome.call).or_insert(outcome);
    }
    let called: HashSet<&CallId> = transcript
        .iter()
        .filter_map(|entry| match &**entry {
            Entry::Model { calls, .. } => Some(calls),
            Entry::User { .. } | Entry::Result { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => None,
        })
        .flatten()
        .map(|view| &view.call)
        .collect();
    let mut stray = HashSet::new();
    transcript
        .iter()
        .filter_map(|entry| match &**entry {
            Entry::User { text } => Some(Turn::User(text)),
            Entry::Feedback { code, text } => Some(Turn::Feedback { code, text }),
            Entry::Summary { steps, text } => Some(Turn::Summary { steps: *steps, text }),
            Entry::Model { text, calls, opaque } => Some(Turn::Model {
                text,
                calls: calls.iter().map(|call| answered(call, &results)).collect(),
                opaque: opaque.as_ref(),
            }),
            Entry::Result { call, .. } if called.contains(call) || !stray.insert(call) => None,
            Entry::Result { .. } => outcome_of(entry).map(Turn::Stray),
        })
        .collect()
}

fn answered<'a>(call: &'a CallView, results: &HashMap<&CallId, Outcome<'a>>) -> Answered<'a> {
    let outcome = results.get(&call.call).copied().unwrap_or(Outcome {
        call: &call.call,
        tool: &call.tool,
        status: "indeterminate",
        reason: Some("no result of this call was recorded"),
        body: "",
    });
    Answered { call, outcome }
}

fn outcome_of(entry: &Entry) -> Option<Outcome<'_>> {
    match entry {
        Entry::Result { call, tool, status, reason, body } => {
            Some(Outcome { call, tool, status, reason: reason.as_deref(), body })
        }
        Entry::User { .. } | Entry::Model { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => None,
    }
}
