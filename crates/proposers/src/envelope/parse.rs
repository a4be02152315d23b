//! Reads a model's text as one envelope. What is not here: how the text came (`wire`), the sentences of
//! refusals (`repair`).

use serde_json::{Map, Value};
use toolgate_core::json::{Json, JsonFaultKind, read_strict};
use toolgate_core::proposal::{MalformedReason, Proposal, ProposedArgs, ProposedCall};

use super::blocks::{fences, objects};
use super::repair::{refuse, refuse_json};
use crate::reasoning;

/// Most calls one envelope may hold.
const MAX_CALLS: usize = 128;
/// Longest text that is read, in bytes.
const MAX_TEXT: usize = 2 << 20;

/// An envelope that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// What it asks for.
    pub proposal: Proposal,
    /// Every deviation that was put right, by name.
    pub normalised: Vec<String>,
}

/// Why a text is no envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The closed reason.
    pub reason: MalformedReason,
    /// A sentence the model can act on; quotes the offending text, at most 400 characters.
    pub detail: String,
}

/// Reads a text as one envelope; `lenient` accepts what toolloop accepts.
pub fn parse(text: &str, lenient: bool) -> Result<Parsed, Refused> {
    if text.len() > MAX_TEXT {
        let what = format!("the reply is {} bytes long, and at most {MAX_TEXT} are read", text.len());
        return Err(refuse(MalformedReason::TooLarge, &what, ""));
    }
    let (visible, had_thoughts) = reasoning::visible(text);
    let reply = visible.trim();
    let mut parsed = if reply.is_empty() {
        Err(refuse(MalformedReason::Empty, "no answer and no call received", text))
    } else if lenient {
        loosely(reply)
    } else {
        strictly(reply)
    }?;
    if had_thoughts {
        parsed.normalised.push("think_removed".to_owned());
    }
    Ok(parsed)
}

/// The whole reply is one envelope, bare or in one fence; everything else is refused with the most telling reason.
fn strictly(reply: &str) -> Result<Parsed, Refused> {
    let whole = envelope(reply, false);
    if let Ok(parsed) = whole {
        return Ok(parsed);
    }
    let found = fences(reply);
    if let [only] = found.closed.as_slice()
        && found.outside.is_empty()
        && !found.has_open
    {
        return envelope(only, false).map(|parsed| fenced(parsed, only));
    }
    let is_bare = reply.starts_with(['{', '[']);
    if let (true, Err(refused)) = (is_bare, &whole)
        && refused.reason != MalformedReason::Syntax
    {
        return whole;
    }
    let envelopes: Vec<&str> = objects(reply).into_iter().filter(|object| is_envelope_like(object)).collect();
    match envelopes.len() {
        0 if is_bare => whole,
        // One envelope with nothing around it, so what is wrong is inside.
        1 if envelopes.first() == Some(&reply) => whole,
        0 if reply.starts_with("```") => fence_fault(reply, found.has_open, &found.closed),
        0 => Err(refuse(MalformedReason::NoEnvelope, "the reply holds no envelope", reply)),
        1 if found.has_open => fence_fault(reply, true, &found.closed),
        1 => Err(refuse(
            MalformedReason::AmbiguousEnvelope,
            "there is text around the envelope, so nothing was run",
            reply,
        )),
        n => {
            let what = format!("the reply holds more than one envelope ({n}), so nothing was run");
            Err(refuse(MalformedReason::AmbiguousEnvelope, &what, reply))
        }
    }
}

fn fence_fault(reply: &str, has_open: bool, closed: &[&str]) -> Result<Parsed, Refused> {
    if has_open {
        return Err(refuse(MalformedReason::Syntax, "a code fence is opened but not closed", reply));
    }
    match closed {
        [only] => envelope(only, false),
        _ => Err(refuse(MalformedReason::NoEnvelope, "the reply holds no envelope", reply)),
    }
}

/// What toolloop reads: the last fenced block that is an envelope, else the whole text. Ours tries the whole text first,
/// so that a fence inside an argument never wins over the envelope around it.
fn loosely(reply: &str) -> Result<Parsed, Refused> {
    let whole = envelope(reply, true);
    if whole.is_ok() {
        return whole;
    }
    let found = fences(reply);
    let mut first_fault = None;
    let mut blocks = found.closed.iter().rev();
    while let Some(block) = blocks.next() {
        match envelope(block, true) {
            Err(refused) => _ = first_fault.get_or_insert(refused),
            Ok(parsed) => {
                let has_others = blocks.any(|other| envelope(other, true).is_ok());
                let has_prose = first_fault.is_some() || !found.outside.is_empty();
                return Ok(noted(fenced(parsed, block), has_others, has_prose));
            }
        }
    }
    first_fault.map_or(whole, Err)
}

fn fenced(mut parsed: Parsed, block: &str) -> Parsed {
    parsed.normalised.insert(0, "fenced".to_owned());
    if block.contains("```") {
        // More than toolloop reads: it cuts at a fence inside an argument.
        parsed.normalised.push("fence_inside_argument".to_owned());
    }
    parsed
}

fn noted(mut parsed: Parsed, has_others: bool, has_prose: bool) -> Parsed {
    if has_prose {
        parsed.normalised.push("text_around_envelope".to_owned());
    }
    if has_others {
        parsed.normalised.push("last_of_several_envelopes".to_owned());
    }
    parsed
}

fn is_envelope_like(object: &str) -> bool {
    // Only the outermost `type` counts; the reader of this crate says no to broken JSON, so a rough look comes second.
    match serde_json::from_str::<Value>(object) {
        Ok(value) => matches!(value.get("type").and_then(Value::as_str), Some("tool_call" | "final_answer")),
        Err(_) => object.contains("\"tool_call\"") || object.contains("\"final_answer\""),
    }
}

/// Reads one JSON text as an envelope.
fn envelope(text: &str, lenient: bool) -> Result<Parsed, Refused> {
    let value = match read_strict(text) {
        Ok(value) => value,
        Err(fault) if fault.kind == JsonFaultKind::Syntax && !text.starts_with(['{', '[', '"']) => {
            return Err(refuse(MalformedReason::NoEnvelope, "the reply is no JSON object", text));
        }
        Err(fault) => return Err(refuse_json(&fault, text)),
    };
    let invalid = |what: &str| refuse(MalformedReason::InvalidEnvelope, what, text);
    let Value::Object(map) = value else { return Err(invalid("the envelope must be a JSON object")) };
    let mut notes = Vec::new();
    match map.get("type") {
        Some(Value::String(kind)) if kind == "final_answer" => {
            if map.contains_key("calls") && !lenient {
                return Err(refuse(
                    MalformedReason::AmbiguousEnvelope,
                    "an envelope with both `calls` and a final answer",
                    text,
                ));
            }
            note_extra(&map, &["type", "output"], &mut notes);
            let output = match map.get("output") {
                Some(output) => Json::from_value(output),
                None if lenient => {
                    notes.push("output_missing".to_owned());
                    Json::string("")
                }
                None => return Err(invalid("a final answer without `output`")),
            };
            Ok(Parsed { proposal: Proposal::Done { output }, normalised: notes })
        }
        Some(Value::String(kind)) if kind == "tool_call" => {
            if map.contains_key("output") && !lenient {
                return Err(refuse(
                    MalformedReason::AmbiguousEnvelope,
                    "an envelope with both `calls` and `output`",
                    text,
                ));
            }
            note_extra(&map, &["type", "calls"], &mut notes);
            let Some(Value::Array(items)) = map.get("calls") else { return Err(invalid("`calls` must be a list")) };
            if items.is_empty() {
                return Err(invalid("`calls` is empty; ask for a call or finish"));
            }
            if items.len() > MAX_CALLS {
                let what = format!("{} calls in one envelope; at most {MAX_CALLS}", items.len());
                return Err(refuse(MalformedReason::TooLarge, &what, ""));
            }
            let calls = read_calls(items, lenient, &mut notes)?;
            Ok(Parsed { proposal: Proposal::Calls(calls), normalised: notes })
        }
        Some(kind) => Err(invalid(&format!("`type` must be \"tool_call\" or \"final_answer\", not {kind}"))),
        None => Err(invalid("the envelope has no `type`")),
    }
}

fn note_extra(map: &Map<String, Value>, known: &[&str], notes: &mut Vec<String>) {
    if map.keys().any(|key| !known.contains(&key.as_str())) && !notes.iter().any(|note| note == "extra_keys") {
        notes.push("extra_keys".to_owned());
    }
}

fn read_calls(items: &[Value], lenient: bool, notes: &mut Vec<String>) -> Result<Vec<ProposedCall>, Refused> {
    let mut calls: Vec<ProposedCall> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let call = read_call(at + 1, item, lenient, notes)?;
        let twin = calls.iter().find(|other| other.provider_id.is_some() && other.provider_id == call.provider_id);
        match twin {
            None => calls.push(call),
            Some(_) if lenient => {
                notes.push("duplicate_id".to_owned());
                calls.push(call);
            }
            Some(twin) if twin.tool == call.tool && twin.args == call.args => {
                notes.push("duplicate_call_dropped".to_owned());
            }
            Some(_) => {
                let what = format!("duplicate call id in call {}; each call needs an id of its own", at + 1);
                return Err(refuse(MalformedReason::DuplicateCallId, &what, &item.to_string()));
            }
        }
    }
    Ok(calls)
}

fn read_call(number: usize, item: &Value, lenient: bool, notes: &mut Vec<String>) -> Result<ProposedCall, Refused> {
    let refused = |reason, what: &str| refuse(reason, &format!("call {number}: {what}"), &item.to_string());
    let Value::Object(call) = item else {
        return Err(refused(MalformedReason::InvalidEnvelope, "must be a JSON object"));
    };
    let tool = match call.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        _ => return Err(refused(MalformedReason::InvalidEnvelope, "needs a `name`, a non-empty string")),
    };
    let args = read_args(call, lenient, notes).map_err(|(reason, what)| refused(reason, &what))?;
    note_extra(call, &["id", "name", "args", "arguments"], notes);
    let raw_args = args.as_str().to_owned();
    Ok(ProposedCall { tool, provider_id: read_id(call.get("id"), notes), args: ProposedArgs::Readable(args), raw_args })
}

fn read_args(
    call: &Map<String, Value>,
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Json, (MalformedReason, String)> {
    match (call.get("args"), call.get("arguments")) {
        (Some(_), Some(_)) if !lenient => {
            Err((MalformedReason::AmbiguousEnvelope, "has both `args` and `arguments`; use `args`".to_owned()))
        }
        (Some(args @ Value::Object(_)), _) => Ok(Json::from_value(args)),
        (Some(_), _) => Err((MalformedReason::NotAnObject, "`args` must be a JSON object".to_owned())),
        (None, Some(args @ Value::Object(_))) => {
            notes.push("arguments_key".to_owned());
            Ok(Json::from_value(args))
        }
        // OpenAI's habit: the object as a string.
        (None, Some(Value::String(text))) => match read_strict(text) {
            Ok(args @ Value::Object(_)) => {
                notes.push("arguments_key".to_owned());
                notes.push("args_string".to_owned());
                Ok(Json::from_value(&args))
            }
            Ok(_) => Err((MalformedReason::NotAnObject, "`arguments` must be a JSON object; use `args`".to_owned())),
            Err(fault) => Err((crate::quote::reason_of(fault.kind), format!("`arguments` cannot be read: {fault}"))),
        },
        (None, Some(_)) => {
            Err((MalformedReason::NotAnObject, "`arguments` must be a JSON object; use `args`".to_owned()))
        }
        (None, None) => {
            let other = ["parameters", "input", "params"].iter().find(|key| call.contains_key(**key));
            if let (Some(key), false) = (other, lenient) {
                let what = format!("has `{key}` where `args` belongs");
                return Err((MalformedReason::InvalidEnvelope, what));
            }
            notes.push("args_missing".to_owned());
            Ok(Json::empty_object())
        }
    }
}

/// The model's own id of a call; it is only ever shown, so any form is taken.
fn read_id(id: Option<&Value>, notes: &mut Vec<String>) -> Option<String> {
    match id {
        Some(Value::String(id)) if !id.is_empty() => Some(id.clone()),
        Some(Value::Number(id)) if id.as_f64() != Some(0.0) => {
            notes.push("id_number".to_owned());
            Some(id.to_string())
        }
        _ => {
            notes.push("id_missing".to_owned());
            None
        }
    }
}
