//! Reads the outside of a chat completion: status, errors, finish reason, text, calls as sent, usage. What is not here:
//! what the answer amounts to (`response` for native calls, `envelope` for text).

use serde_json::{Map, Value, json};
use toolgate_core::json::{JsonFaultKind, read_strict};
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, ProviderFailure, Usage};

use super::failure::{error_in_body, status_verdict};
use crate::quote::{clip, failed, malformed, reason_of};

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
    pub(crate) args: Option<Value>,
    /// Provider fields of this call that must go back unchanged.
    pub(crate) extra: Option<Value>,
}

/// One completion, taken apart.
#[derive(Debug)]
pub(crate) struct Completion {
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

/// Fields of a message that carry reasoning or signatures; whichever came goes back to the same provider and model.
const ECHOED: [&str; 5] = ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content"];

impl Completion {
    /// The ballot of this answer with a verdict.
    pub(crate) fn ballot(self, verdict: BallotVerdict, opaque: Option<toolgate_core::json::Json>) -> Ballot {
        Ballot {
            verdict,
            text: self.text,
            normalised: self.notes,
            opaque,
            usage: self.usage,
            model: self.model,
            fingerprint: self.fingerprint,
        }
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
}

/// The verdict of an answer that the output limit cut.
pub(super) fn cut() -> BallotVerdict {
    malformed(
        MalformedReason::Truncated,
        "output limit reached: the answer was cut off, its arguments discarded and nothing run; send a smaller call or a \
         shorter answer",
    )
}

/// Takes a reply apart, or gives the verdict on a reply that holds no completion.
pub(crate) fn read(reply: Reply<'_>) -> Result<Completion, BallotVerdict> {
    read_body(reply).and_then(|body| completion(&body))
}

/// Whether asking again may help: the request was not served, or failed inside the provider. Never after an answer.
pub(crate) fn is_transient(reply: Reply<'_>) -> bool {
    if has_no_quota(reply.body) {
        return false;
    }
    match reply.status {
        408 | 429 | 500..=599 => true,
        200..=299 => matches!(
            read(reply),
            Err(BallotVerdict::Failed { reason: ProviderFailure::RateLimited | ProviderFailure::ServerError, .. })
        ),
        _ => false,
    }
}

/// A spent budget comes as 429, and no waiting cures it.
fn has_no_quota(body: &[u8]) -> bool {
    let mark = b"insufficient_quota";
    body.windows(mark.len()).take(4096).any(|window| window == mark)
}

fn read_body(reply: Reply<'_>) -> Result<Value, BallotVerdict> {
    let is_success = (200..=299).contains(&reply.status);
    let text = std::str::from_utf8(reply.body).map_err(|_| {
        if is_success {
            not_a_completion("the body is not UTF-8 text")
        } else {
            status_verdict(reply.status, &Value::Null, "")
        }
    })?;
    if !is_success {
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        return Err(status_verdict(reply.status, &body, text));
    }
    if let Some(kind) = reply.content_type.filter(|kind| !is_json_type(kind)) {
        return Err(not_a_completion(&format!("the server answered `{}`, not JSON", clip(kind, 60))));
    }
    read_strict(text).map_err(|fault| match fault.kind {
        JsonFaultKind::Syntax => not_a_completion(&format!("the body is no JSON: {fault}")),
        // The frame is JSON; what breaks the rules is content that two readers would read differently.
        kind => malformed(reason_of(kind), &format!("the answer cannot be read without doubt: {fault}")),
    })
}

fn is_json_type(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

fn not_a_completion(text: &str) -> BallotVerdict {
    failed(ProviderFailure::NotACompletion, text)
}

fn completion(body: &Value) -> Result<Completion, BallotVerdict> {
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
    let count = |key: &str| body.get("usage").and_then(|usage| usage.get(key)).and_then(Value::as_u64);
    let named =
        |key: &str| body.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(|text| clip(text, 200));
    Ok(Completion {
        finish,
        text,
        calls,
        fields,
        notes,
        usage: Usage { input_tokens: count("prompt_tokens"), output_tokens: count("completion_tokens") },
        model: named("model"),
        fingerprint: named("system_fingerprint"),
    })
}

fn finish_of(reason: Option<&Value>, notes: &mut Vec<String>) -> Finish {
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

fn text_of(message: &Map<String, Value>, notes: &mut Vec<String>) -> String {
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            notes.push("content_parts".to_owned());
            let texts = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
            texts.collect::<Vec<_>>().concat()
        }
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            notes.push("content_ignored".to_owned());
            String::new()
        }
    };
    match message.get("refusal").and_then(Value::as_str) {
        Some(refusal) if text.is_empty() && !refusal.is_empty() => {
            notes.push("refusal".to_owned());
            refusal.to_owned()
        }
        _ => text,
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

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
