//! Puts the deltas of a streamed chat completion together. Calls are told apart by id first, then by index, then by order,
//! because servers leave out, repeat and invent each of them. What is not here: bytes and events (`stream`, `sse`).

use serde_json::{Map, Value, json};
use toolgate_core::proposal::{BallotVerdict, MalformedReason, ProviderFailure, Usage};

use super::completion::{ECHOED, content_text, finish_of, is_empty, usage};
use super::pieces::Pieces;
use crate::answer::{Answer, Finish, RawCall, add_note};
use crate::delta::Delta;
use crate::failure::error_in_body;
use crate::judge::MAX_CALLS;
use crate::quote::{clip, failed, malformed};
use crate::stream::Flow;
use crate::wire::name_in;

/// The answer so far.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    text: String,
    refusal: String,
    fields: Map<String, Value>,
    calls: Pieces,
    finish: Option<Value>,
    has_choice: bool,
    usage: Usage,
    model: Option<String>,
    fingerprint: Option<String>,
    notes: Vec<String>,
}

impl Parts {
    /// Takes the next event.
    pub(crate) fn event(&mut self, name: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<Flow, BallotVerdict> {
        if let Some(verdict) = error_in_body(event) {
            return Err(verdict);
        }
        if name == "error" || event.get("object").and_then(Value::as_str) == Some("error") {
            let said = name_in(event, "message").unwrap_or_else(|| clip(&event.to_string(), 200));
            return Err(failed(ProviderFailure::ServerError, &format!("an error in the stream: {said}")));
        }
        let spent = usage(event);
        self.usage.input_tokens = spent.input_tokens.or(self.usage.input_tokens);
        self.usage.output_tokens = spent.output_tokens.or(self.usage.output_tokens);
        self.model = name_in(event, "model").or_else(|| self.model.take());
        self.fingerprint = name_in(event, "system_fingerprint").or_else(|| self.fingerprint.take());
        let choices = event.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            if let Some(verdict) = error_in_body(choice) {
                return Err(verdict);
            }
            if choice.get("index").is_some_and(|index| !index.is_null() && index != &json!(0)) {
                add_note(&mut self.notes, "extra_choice");
                continue;
            }
            self.has_choice = true;
            if let Some(reason) =
                choice.get("finish_reason").filter(|reason| reason.as_str().is_some_and(|r| !r.is_empty()))
            {
                self.finish = Some(reason.clone());
            }
            // Some servers send the whole message in place of its pieces.
            if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")).and_then(Value::as_object) {
                self.delta(delta, deltas)?;
            }
        }
        Ok(Flow::More)
    }

    fn delta(&mut self, delta: &Map<String, Value>, deltas: &mut Vec<Delta>) -> Result<(), BallotVerdict> {
        let text = content_text(delta.get("content"), &mut self.notes);
        if !text.is_empty() {
            self.text.push_str(&text);
            deltas.push(Delta::Text(text));
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str) {
            self.refusal.push_str(refusal);
        }
        for key in ECHOED {
            if let Some(value) = delta.get(key).filter(|value| !is_empty(value)) {
                if let (Some(text), "reasoning_content" | "reasoning") = (value.as_str(), key) {
                    deltas.push(Delta::Reasoning(text.to_owned()));
                }
                grow(&mut self.fields, key, value);
            }
        }
        if let Some(call) = delta.get("function_call").and_then(Value::as_object) {
            add_note(&mut self.notes, "legacy_function_call");
            self.calls.take(call, deltas, &mut self.notes);
        }
        let calls = match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.as_slice(),
            Some(call @ Value::Object(_)) => std::slice::from_ref(call),
            _ => &[],
        };
        for call in calls {
            match call.as_object() {
                Some(call) => self.calls.take(call, deltas, &mut self.notes),
                None => self.calls.stray(),
            }
            if self.calls.len() > 2 * MAX_CALLS {
                let said = format!("more than {MAX_CALLS} calls in one answer; send fewer");
                return Err(malformed(MalformedReason::TooLarge, &said));
            }
        }
        Ok(())
    }

    /// The answer, and whether it has its end: a finish reason, or the mark of the stream's end after some choice.
    pub(crate) fn finish(mut self, ended: bool) -> (Answer, bool) {
        let is_complete = self.finish.is_some() || (ended && self.has_choice);
        let finish = if is_complete { finish_of(self.finish.as_ref(), &mut self.notes) } else { Finish::Aborted };
        if self.text.is_empty() && !self.refusal.is_empty() {
            self.notes.push("refusal".to_owned());
            self.text = self.refusal;
        }
        let calls: Vec<Option<RawCall>> = self.calls.finish(&mut self.notes);
        let answer = Answer {
            finish,
            text: self.text,
            calls,
            fields: self.fields,
            notes: self.notes,
            usage: self.usage,
            model: self.model,
            fingerprint: self.fingerprint,
        };
        (answer, is_complete)
    }
}

/// Joins what comes in pieces: texts grow, lists get longer, and entries of a list that carry one index are one entry.
fn grow(fields: &mut Map<String, Value>, key: &str, piece: &Value) {
    match (fields.get_mut(key), piece) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(items)), Value::Array(more)) => more.iter().for_each(|item| join(items, item)),
        _ => _ = fields.insert(key.to_owned(), piece.clone()),
    }
}

fn join(items: &mut Vec<Value>, piece: &Value) {
    let same = |item: &Value| {
        item.get("index").is_some_and(|index| Some(index) == piece.get("index"))
            && item.get("type") == piece.get("type")
    };
    let found = items.iter_mut().rev().find(|item| same(item)).and_then(Value::as_object_mut);
    let (Some(item), Some(piece)) = (found, piece.as_object()) else { return items.push(piece.clone()) };
    for (key, more) in piece {
        match (item.get_mut(key), more) {
            (Some(Value::String(text)), Value::String(more)) if ["text", "summary", "data"].contains(&key.as_str()) => {
                text.push_str(more);
            }
            (Some(_), Value::Null) => {}
            _ => _ = item.insert(key.clone(), more.clone()),
        }
    }
}
