//! Reads a whole response: its items in order. What is not here: streams (`stream`), what the answer amounts to (`judge`).

use serde_json::{Map, Value, json};
use toolgate_core::proposal::{BallotVerdict, Usage};

use super::ITEMS;
use crate::answer::{Answer, Finish, RawCall, add_note};
use crate::failure::error_in_body;
use crate::quote::clip;
use crate::wire::{name_in, not_a_completion};

/// Takes a body apart, or gives the verdict on one that holds no response.
pub(crate) fn read(body: &Value) -> Result<Answer, BallotVerdict> {
    if let Some(verdict) = error_in_body(body) {
        return Err(verdict);
    }
    let items =
        body.get("output").and_then(Value::as_array).ok_or_else(|| not_a_completion("no `output` list in the body"))?;
    Ok(answer(body, items))
}

/// The answer of a response with these items.
pub(super) fn answer(body: &Value, items: &[Value]) -> Answer {
    let mut notes = Vec::new();
    let finish = finish_of(body, &mut notes);
    let mut answer = Answer {
        finish,
        text: String::new(),
        calls: Vec::new(),
        fields: Map::new(),
        notes,
        usage: usage(body),
        model: name_in(body, "model"),
        fingerprint: None,
    };
    let mut thoughts = Vec::new();
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => message(item, &mut answer),
            Some("function_call") => {
                if item.get("status").and_then(Value::as_str) == Some("incomplete") {
                    answer.finish = Finish::Cut;
                }
                answer.calls.push(Some(RawCall {
                    id: name_in(item, "call_id").or_else(|| name_in(item, "id")),
                    name: name_in(item, "name"),
                    args: item.get("arguments").cloned(),
                    extra: None,
                }));
            }
            // Only what holds its content can go back, since nothing is stored at the provider.
            Some("reasoning") if item.get("encrypted_content").is_some_and(Value::is_string) => {
                thoughts.push(item.clone());
            }
            _ => {}
        }
    }
    if !thoughts.is_empty() {
        answer.fields.insert(ITEMS.to_owned(), Value::Array(thoughts));
    }
    answer
}

fn message(item: &Value, answer: &mut Answer) {
    for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
        if !text("refusal").is_empty() {
            answer.note("refusal");
            answer.text.push_str(text("refusal"));
        }
        answer.text.push_str(text("text"));
    }
}

fn finish_of(body: &Value, notes: &mut Vec<String>) -> Finish {
    let reason = body.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
    match body.get("status").and_then(Value::as_str) {
        None => {
            add_note(notes, "finish_reason_missing");
            Finish::Whole
        }
        Some("completed") => Finish::Whole,
        Some("incomplete") if reason == Some("content_filter") => Finish::Filtered,
        Some("incomplete") => Finish::Cut,
        Some("failed" | "cancelled" | "in_progress" | "queued") => Finish::Aborted,
        Some(other) => {
            notes.push(format!("finish_reason_unknown:{}", clip(other, 40)));
            Finish::Aborted
        }
    }
}

/// What the provider says it spent.
pub(super) fn usage(body: &Value) -> Usage {
    let count = |key: &str| body.get("usage").and_then(|usage| usage.get(key)).and_then(Value::as_u64);
    Usage { input_tokens: count("input_tokens"), output_tokens: count("output_tokens") }
}

/// The error inside a response that failed.
pub(super) fn failure(response: &Value) -> Option<BallotVerdict> {
    response.get("error").filter(|error| error.is_object()).and_then(|error| error_in_body(&json!({"error": error})))
}
