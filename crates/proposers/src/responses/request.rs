//! Encodes an ask as the body of a Responses request. Pure. What is not here: sending.

use serde_json::{Map, Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{ModelDef, Reasoning};

use super::ITEMS;
use crate::names::WireNames;
use crate::openai::request::{arguments_object, notice, result_text, stray, summary, system, wire_id};
use crate::schema::definitions;
use crate::turns::{self, Turn};
use crate::wire::kept;

/// The request body.
pub(crate) fn encode(ask: &Ask, def: &ModelDef) -> Value {
    let names = WireNames::new(&ask.tools);
    let mut input = Vec::new();
    for turn in turns::pair(&ask.transcript) {
        match turn {
            Turn::User(text) => input.push(said("user", text)),
            Turn::Feedback { code, text } => input.push(said("user", &notice(code, text))),
            Turn::Summary { steps, text } => input.push(said("user", &summary(steps, text))),
            Turn::Stray(outcome) => input.push(said("user", &stray(&outcome))),
            Turn::Model { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => {}
            Turn::Model { text, calls, opaque } => {
                let kept = kept(opaque, def);
                let thoughts = kept.as_ref().and_then(|kept| kept.get("fields")?.get(ITEMS)?.as_array());
                input.extend(thoughts.into_iter().flatten().cloned());
                if !text.trim().is_empty() {
                    input.push(said("assistant", text));
                }
                let id = |at: &turns::Answered<'_>| wire_id(&at.call.call, def.wire_ids);
                input.extend(calls.iter().map(|answered| {
                    let arguments = arguments_object(&answered.call.args).to_string();
                    let name = names.to_wire(&answered.call.tool);
                    json!({"type": "function_call", "call_id": id(answered), "name": name, "arguments": arguments})
                }));
                input.extend(calls.iter().map(|answered| {
                    let output = result_text(&answered.outcome);
                    json!({"type": "function_call_output", "call_id": id(answered), "output": output})
                }));
            }
        }
    }
    let mut body = parameters(def, &system(ask).join("\n\n"));
    body.insert("input".to_owned(), Value::Array(input));
    if !ask.tools.is_empty() {
        body.insert("tools".to_owned(), definitions(&ask.tools, &names, def));
        if let Some(several) = def.parallel_calls {
            body.insert("parallel_tool_calls".to_owned(), json!(several));
        }
    }
    Value::Object(body)
}

/// The body for messages that need no calls.
pub(crate) fn of_messages(all: &[(&'static str, String)], def: &ModelDef) -> Value {
    let (system, rest): (Vec<_>, Vec<_>) = all.iter().partition(|(role, _)| *role == "system");
    let system = system.into_iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n\n");
    let mut body = parameters(def, &system);
    body.insert("input".to_owned(), rest.into_iter().map(|(role, text)| said(role, text)).collect());
    Value::Object(body)
}

fn parameters(def: &ModelDef, system: &str) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(def.model.as_deref().unwrap_or_default()));
    body.insert("stream".to_owned(), json!(def.stream));
    body.insert("store".to_owned(), json!(false));
    if !system.is_empty() {
        body.insert("instructions".to_owned(), json!(system));
    }
    if let Some(milli) = def.temperature_milli {
        body.insert("temperature".to_owned(), json!(f64::from(milli) / 1000.0));
    }
    if let Some(tokens) = def.max_output_tokens {
        body.insert("max_output_tokens".to_owned(), json!(tokens));
    }
    if def.reasoning == Reasoning::Encrypted {
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    body
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}
