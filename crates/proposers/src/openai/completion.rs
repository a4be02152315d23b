//! Reads a whole chat completion: errors, finish reason, text, calls as sent, usage. What is not here: status and type of
//! the reply (`wire`), streams (`stream`), what the answer amounts to (`judge`).

use serde_json::{Map, Value, json};
use toolgate_core::proposal::{BallotVerdict, Usage};

use crate::answer::{Answer, Finish, RawCall, add_note};
use crate::failure::error_in_body;
use crate::quote::clip;
use crate::wire::{name_in, not_a_completion};

/// Fields of a message that carry reasoning or signatures; whichever came goes back to the same provider and model.
pub(super) const ECHOED: [&str; 5] =
    ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content"];

/// Takes a body apart, or gives the verdict on one that holds no completion.
pub(crate) fn read(body: &Value) -> Result<Answer, BallotVerdict> {
    if let Some(verdict) = error_in_body(body) {
        return Err(verdict);
    }
    let choices =
        body.get("choices").and_then(Value::as_array).ok_or_else(|| not_a_completion("no `choices` in the body"))?;
    let first = |choice: &&Value| choice.get("index").is_none_or(|index| index == &json!(0));
    let choice =
        choices.iter().find(first).or_else(|| choices.first()).ok_or_else(|| not_a_completion("`choices` is empty"))?;
    if let Some(verdict) = error_in_body(choice) {
        return Err(verdict);
    }
    let message =
        choice.get("message").and_then(Value::as_object).ok_or_else(|| not_a_completion("a choice without message"))?;
    let mut notes = Vec::new();
    let finish = finish_of(choice.get("finish_reason"), &mut notes);
    let text = text_of(message, &mut notes);
    let calls = calls_of(message, &mut notes);
    let fields = ECHOED
        .iter()
        .filter_map(|key| {
            message.get(*key).filter(|value| !is_empty(value)).map(|value| ((*key).to_owned(), value.clone()))
        })
        .collect();
    Ok(Answer {
        finish,
        text,
        calls,
        fields,
        notes,
        usage: usage(body),
        model: name_in(body, "model"),
        fingerprint: name_in(body, "system_fingerprint"),
    })
}

/// What the provider says it spent.
pub(super) fn usage(body: &Value) -> Usage {
    let count = |key: &str| body.get("usage").and_then(|usage| usage.get(key)).and_then(Value::as_u64);
    Usage { input_tokens: count("prompt_tokens"), output_tokens: count("completion_tokens") }
}

pub(super) fn finish_of(reason: Option<&Value>, notes: &mut Vec<String>) -> Finish {
    let Some(reason) = reason.and_then(Value::as_str) else {
        notes.push("finish_reason_missing".to_owned());
        return Finish::Whole;
    };
    match reason.to_ascii_lowercase().as_str() {
        "stop" => Finish::Whole,
        "tool_calls" | "function_call" | "tool_use" => Finish::CallsAnnounced,
        "length" | "max_tokens" | "model_length" => Finish::Cut,
        "content_filter" | "safety" | "recitation" | "blocklist" | "prohibited_content" => Finish::Filtered,
        "malformed_function_call" => Finish::Rejected,
        "error" | "network_error" | "insufficient_system_resource" | "abort" => Finish::Aborted,
        other => {
            notes.push(format!("finish_reason_unknown:{}", clip(other, 40)));
            Finish::Whole
        }
    }
}

/// The text of a message, and its refusal where it has no text.
fn text_of(message: &Map<String, Value>, notes: &mut Vec<String>) -> String {
    let text = content_text(message.get("content"), notes);
    match message.get("refusal").and_then(Value::as_str) {
        Some(refusal) if text.is_empty() && !refusal.is_empty() => {
            notes.push("refusal".to_owned());
            refusal.to_owned()
        }
        _ => text,
    }
}

/// The text of a `content`, in any of the forms it comes in.
pub(super) fn content_text(content: Option<&Value>, notes: &mut Vec<String>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            add_note(notes, "content_parts");
            let texts = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
            texts.collect::<Vec<_>>().concat()
        }
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            add_note(notes, "content_ignored");
            String::new()
        }
    }
}

fn calls_of(message: &Map<String, Value>, notes: &mut Vec<String>) -> Vec<Option<RawCall>> {
    if let Some(Value::Array(calls)) = message.get("tool_calls")
        && !calls.is_empty()
    {
        return calls.iter().map(|call| call_of(call, notes)).collect();
    }
    match message.get("function_call") {
        Some(call @ Value::Object(_)) => {
            notes.push("legacy_function_call".to_owned());
            vec![call_of(call, notes)]
        }
        _ => Vec::new(),
    }
}

fn call_of(call: &Value, notes: &mut Vec<String>) -> Option<RawCall> {
    let outer = call.as_object()?;
    let function = outer.get("function").and_then(Value::as_object);
    if function.is_none() && outer.contains_key("type") {
        notes.push("flat_call".to_owned());
    }
    let function = function.unwrap_or(outer);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let id = text(outer.get("id"));
    if id.is_none() {
        notes.push("id_missing".to_owned());
    }
    Some(RawCall {
        id,
        name: text(function.get("name")),
        args: function.get("arguments").cloned(),
        extra: outer.get("extra_content").cloned(),
    })
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
