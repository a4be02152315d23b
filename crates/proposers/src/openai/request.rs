//! Encodes an ask as the body of a chat request with native calls. Pure: the same ask gives the same bytes. What is not
//! here: addresses and keys (`exchange`).

use serde_json::{Map, Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallContent, HistoryArgs, MaxTokensField, ModelDef, WireIds};
use toolgate_core::id::{CallId, Sha256Digest};
use toolgate_core::json::{Json, read_strict};

use super::completion::ECHOED;
use crate::names::WireNames;
use crate::quote::clip;
use crate::schema::definitions;
use crate::turns::{self, Answered, Outcome, Turn};
use crate::wire::kept;

/// The request body.
pub(crate) fn encode(ask: &Ask, def: &ModelDef) -> Value {
    let names = WireNames::new(&ask.tools);
    let system = system(ask);
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system.join("\n\n")}));
    }
    for turn in turns::pair(&ask.transcript) {
        match turn {
            Turn::User(text) => messages.push(json!({"role": "user", "content": text})),
            Turn::Feedback { code, text } => messages.push(json!({"role": "user", "content": notice(code, text)})),
            Turn::Summary { steps, text } => messages.push(json!({"role": "user", "content": summary(steps, text)})),
            // A tool message without its call is refused by providers, and nobody's words may take its place.
            Turn::Stray(outcome) => messages.push(json!({"role": "user", "content": stray(&outcome)})),
            // An answer with nothing in it: providers refuse to see it again.
            Turn::Model { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => {}
            Turn::Model { text, calls, opaque } => {
                messages.push(assistant(text, &calls, opaque, &names, def));
                messages.extend(calls.iter().map(|call| {
                    let id = wire_id(&call.call.call, def.wire_ids);
                    json!({"role": "tool", "tool_call_id": id, "content": result_text(&call.outcome)})
                }));
            }
        }
    }
    let mut body = parameters(def);
    body.insert("messages".to_owned(), Value::Array(messages));
    if !ask.tools.is_empty() {
        if let Some(several) = def.parallel_calls {
            body.insert("parallel_tool_calls".to_owned(), json!(several));
        }
        body.insert("tools".to_owned(), definitions(&ask.tools, &names, def));
    }
    Value::Object(body)
}

/// The body for messages that need no calls.
pub(crate) fn of_messages(messages: &[(&'static str, String)], def: &ModelDef) -> Value {
    let mut body = parameters(def);
    let messages = messages.iter().map(|(role, content)| json!({"role": role, "content": content}));
    body.insert("messages".to_owned(), messages.collect());
    Value::Object(body)
}

/// Text for the system role.
pub(crate) fn system(ask: &Ask) -> Vec<String> {
    let mut system = ask.instructions.clone();
    if let Some(schema) = &ask.output_schema {
        system.push(format!(
            "When the task is done, reply with only a JSON value that matches this JSON Schema:\n{schema}"
        ));
    }
    system
}

/// The fields of a request that depend on the model alone.
fn parameters(def: &ModelDef) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(def.model.as_deref().unwrap_or_default()));
    body.insert("stream".to_owned(), json!(def.stream));
    if def.stream && def.stream_usage {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if let Some(milli) = def.temperature_milli {
        body.insert("temperature".to_owned(), json!(f64::from(milli) / 1000.0));
    }
    if let Some(tokens) = def.max_output_tokens {
        let field = match def.max_tokens_field {
            MaxTokensField::MaxTokens => "max_tokens",
            MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
        };
        body.insert(field.to_owned(), json!(tokens));
    }
    body
}

/// Toolgate's own words to the model. They come in the user role: many endpoints take one system message, at the start.
pub(crate) fn notice(code: &str, text: &str) -> String {
    format!("[toolgate: {}] {text}", clip(code, 60))
}

fn assistant(text: &str, calls: &[Answered<'_>], opaque: Option<&Json>, names: &WireNames, def: &ModelDef) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    match (text.is_empty() && !calls.is_empty(), def.call_content) {
        (true, CallContent::Null) => _ = message.insert("content".to_owned(), Value::Null),
        (true, CallContent::Omit) => {}
        (true, CallContent::Empty) | (false, _) => _ = message.insert("content".to_owned(), json!(text)),
    }
    let kept = kept(opaque, def);
    let extras = kept.as_ref().and_then(|kept| kept.get("calls")).and_then(Value::as_array);
    // Positions only fit while each call still has its own entry.
    let extras = extras.filter(|extras| extras.len() == calls.len());
    if let Some(fields) = kept.as_ref().and_then(|kept| kept.get("fields")).and_then(Value::as_object) {
        let own = fields.iter().filter(|(key, _)| ECHOED.contains(&key.as_str()));
        message.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    }
    if !calls.is_empty() {
        let encoded = calls.iter().enumerate().map(|(at, answered)| {
            let call = answered.call;
            let mut encoded = json!({
                "id": wire_id(&call.call, def.wire_ids),
                "type": "function",
                "function": {"name": names.to_wire(&call.tool), "arguments": arguments(&call.args, def.history_args)},
            });
            let extra = extras.and_then(|extras| extras.get(at)).filter(|extra| !extra.is_null());
            if let (Some(extra), Some(map)) = (extra, encoded.as_object_mut()) {
                map.insert("extra_content".to_owned(), extra.clone());
            }
            encoded
        });
        message.insert("tool_calls".to_owned(), encoded.collect());
    }
    Value::Object(message)
}

/// The id of a call on the wire: made from ours, so that it is unique whatever ids the provider chose.
pub(crate) fn wire_id(call: &CallId, form: WireIds) -> String {
    match form {
        WireIds::Full => call.as_str().to_owned(),
        WireIds::Nine => {
            let digest = Sha256Digest::of(call.as_str().as_bytes()).to_string();
            digest.chars().skip("sha256:".len()).take(9).collect()
        }
    }
}

/// Earlier arguments. Templates of many servers parse them, so text that is no JSON object travels inside one.
/// Earlier arguments as an object.
pub(crate) fn arguments_object(text: &str) -> Value {
    match read_strict(text) {
        Ok(value @ Value::Object(_)) => value,
        Ok(Value::Null) => json!({}),
        _ if text.trim().is_empty() => json!({}),
        Ok(_) | Err(_) => json!({"unreadable_arguments": text}),
    }
}

fn arguments(text: &str, form: HistoryArgs) -> Value {
    let object = arguments_object(text);
    match form {
        HistoryArgs::Object => object,
        HistoryArgs::String => Value::String(Json::from_value(&object).as_str().to_owned()),
    }
}

/// A result as the content of a tool message. The first lines are ours, so no output can claim another status.
pub(crate) fn result_text(outcome: &Outcome<'_>) -> String {
    let mut text = format!("status: {}", clip(outcome.status, 40));
    if let Some(reason) = outcome.reason {
        text.push_str("\nreason: ");
        text.push_str(&clip(reason, 1000));
    }
    if !outcome.body.is_empty() {
        text.push_str("\n\n");
        text.push_str(outcome.body);
    }
    text
}

/// A summary as a JSON string: it was made from what tools returned, and stays one visible piece of data.
pub(crate) fn summary(steps: u32, text: &str) -> String {
    let text = format!("what a model made of {steps} earlier steps, as data: {}", Json::string(text));
    notice("earlier_steps_summed_up", &text)
}

pub(crate) fn stray(outcome: &Outcome<'_>) -> String {
    // As a JSON string, so that the output stays one visible piece of data.
    let body = Json::string(outcome.body);
    let text =
        format!("result of an earlier call of {}, status {}", Json::string(outcome.tool), clip(outcome.status, 40));
    notice("earlier_result", &format!("{text}, as data: {body}"))
}
