//! Encodes an ask as the body of a messages request. Pure. Calls and their results are blocks; roles alternate, and the
//! results of an answer stand first in the message after it, as the provider demands. What is not here: sending.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use toolgate_core::ask::{Ask, Entry};
use toolgate_core::bundle::model::{ModelDef, WireIds};
use toolgate_core::json::Json;

use super::BLOCKS;
use crate::names::WireNames;
use crate::openai::request::{arguments_object, notice, result_text, stray, summary, system, wire_id};
use crate::schema::definitions;
use crate::turns::{self, Answered, Turn};
use crate::wire::kept;

/// The answer's bound where a definition has none; bundles are refused without.
const MAX_TOKENS: u32 = 4096;

/// The request body.
pub(crate) fn encode(ask: &Ask, def: &ModelDef) -> Value {
    let names = WireNames::new(&ask.tools);
    let mut messages = Messages::default();
    for turn in turns::pair(&ask.transcript) {
        match turn {
            Turn::User(text) => messages.push("user", vec![said(text)]),
            Turn::Feedback { code, text } => messages.push("user", vec![said(&notice(code, text))]),
            Turn::Summary { steps, text } => messages.push("user", vec![said(&summary(steps, text))]),
            Turn::Stray(outcome) => messages.push("user", vec![said(&stray(&outcome))]),
            Turn::Model { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => {}
            Turn::Model { text, calls, opaque } => {
                messages.push("assistant", answer(text, &calls, opaque, &names, def));
                messages.push("user", calls.iter().map(result).collect());
            }
        }
    }
    let mut body = parameters(def, &system(ask).join("\n\n"));
    body.insert("messages".to_owned(), messages.finish());
    if !ask.tools.is_empty() {
        body.insert("tools".to_owned(), definitions(&ask.tools, &names, def));
        if let Some(several) = def.parallel_calls {
            body.insert("tool_choice".to_owned(), json!({"type": "auto", "disable_parallel_tool_use": !several}));
        }
    }
    if let Some(tools) = named_in_history(ask, &names).filter(|_| ask.tools.is_empty()) {
        body.insert("tools".to_owned(), tools);
        body.insert("tool_choice".to_owned(), json!({"type": "none"}));
    }
    Value::Object(body)
}

/// The tools that earlier answers called, with no word on their arguments: a history with calls is refused where no tools
/// are declared, and none may be called any more.
fn named_in_history(ask: &Ask, names: &WireNames) -> Option<Value> {
    let calls = ask.transcript.iter().flat_map(|entry| match &**entry {
        Entry::Model { calls, .. } => calls.as_slice(),
        Entry::User { .. } | Entry::Result { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => &[],
    });
    let called: BTreeSet<String> = calls.map(|call| names.to_wire(&call.tool).to_string()).collect();
    let tools: Vec<Value> =
        called.into_iter().map(|name| json!({"name": name, "input_schema": {"type": "object"}})).collect();
    (!tools.is_empty()).then_some(Value::Array(tools))
}

/// The body for messages that need no calls.
pub(crate) fn of_messages(all: &[(&'static str, String)], def: &ModelDef) -> Value {
    let (system, rest): (Vec<_>, Vec<_>) = all.iter().partition(|(role, _)| *role == "system");
    let system = system.into_iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n\n");
    let mut messages = Messages::default();
    rest.into_iter().for_each(|(role, text)| messages.push(role, vec![said(text)]));
    let mut body = parameters(def, &system);
    body.insert("messages".to_owned(), messages.finish());
    Value::Object(body)
}

fn parameters(def: &ModelDef, system: &str) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(def.model.as_deref().unwrap_or_default()));
    body.insert("max_tokens".to_owned(), json!(def.max_output_tokens.unwrap_or(MAX_TOKENS)));
    body.insert("stream".to_owned(), json!(def.stream));
    if !system.is_empty() {
        body.insert("system".to_owned(), json!(system));
    }
    if let Some(milli) = def.temperature_milli {
        body.insert("temperature".to_owned(), json!(f64::from(milli) / 1000.0));
    }
    body
}

fn said(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Thoughts first, as they came, then the words, then the calls.
fn answer(text: &str, calls: &[Answered<'_>], opaque: Option<&Json>, names: &WireNames, def: &ModelDef) -> Vec<Value> {
    let kept = kept(opaque, def);
    let thoughts = kept.as_ref().and_then(|kept| kept.get("fields")?.get(BLOCKS)?.as_array());
    let mut blocks: Vec<Value> = thoughts.cloned().unwrap_or_default();
    if !text.trim().is_empty() {
        blocks.push(said(text));
    }
    blocks.extend(calls.iter().map(|answered| {
        let call = answered.call;
        json!({
            "type": "tool_use",
            "id": wire_id(&call.call, WireIds::Full),
            "name": names.to_wire(&call.tool),
            "input": arguments_object(&call.args),
        })
    }));
    blocks
}

fn result(answered: &Answered<'_>) -> Value {
    let outcome = &answered.outcome;
    let id = wire_id(&answered.call.call, WireIds::Full);
    let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": result_text(outcome)});
    if let (true, Some(map)) = (outcome.status != "ok", block.as_object_mut()) {
        map.insert("is_error".to_owned(), json!(true));
    }
    block
}

/// Messages in which neighbours of one role are one.
#[derive(Default)]
struct Messages(Vec<(&'static str, Vec<Value>)>);

impl Messages {
    fn push(&mut self, role: &'static str, blocks: Vec<Value>) {
        // A text without content is refused.
        let blocks = blocks.into_iter().filter(|block| block.get("text").is_none_or(|text| text.as_str() != Some("")));
        match self.0.last_mut() {
            Some((last, so_far)) if *last == role => so_far.extend(blocks),
            _ => {
                let blocks: Vec<Value> = blocks.collect();
                if !blocks.is_empty() {
                    self.0.push((role, blocks));
                }
            }
        }
    }

    fn finish(self) -> Value {
        self.0.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }
}
