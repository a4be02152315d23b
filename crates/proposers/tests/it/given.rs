//! What the tests start from: tools, asks, models, and a driver that plays the loop around a decoder. What is not here:
//! assertions of single cases.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::ask::{Ask, CallView, Entry, ToolView};
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::id::{CallId, SessionId, ToolId};
use toolgate_core::json::Json;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall};
use toolgate_proposers::{Reply, decode, encode};

/// The tools that the field cases share.
pub(crate) fn catalogue() -> Vec<ToolView> {
    let string = json!({"type": "string"});
    [
        ("get_time", json!({}), json!([])),
        (
            "search",
            json!({"query": string, "limit": {"type": "integer", "minimum": 1, "maximum": 50}}),
            json!(["query"]),
        ),
        ("set_tags", json!({"tags": {"type": "array", "items": string}}), json!(["tags"])),
        ("transfer", json!({"to": string, "amount_cents": {"type": "integer"}}), json!(["to", "amount_cents"])),
        ("write_file", json!({"path": string, "content": string}), json!(["path", "content"])),
        ("read_file", json!({"path": string}), json!(["path"])),
        ("run_command", json!({"command": string, "cwd": string}), json!(["command"])),
    ]
    .into_iter()
    .map(|(name, properties, required)| {
        let schema =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        tool(name, &schema)
    })
    .collect()
}

pub(crate) fn tool(name: &str, schema: &Value) -> ToolView {
    ToolView {
        id: ToolId::new(name).unwrap(),
        description: format!("The tool {name}."),
        parameters: Json::from_value(schema),
    }
}

pub(crate) fn ask(tools: Vec<ToolView>) -> Ask {
    Ask {
        instructions: vec!["You work for the tests.".to_owned()],
        transcript: vec![Arc::new(Entry::User { text: "Do it.".to_owned() })],
        tools,
        output_schema: None,
        answers_so_far: 0,
    }
}

/// A model definition with these fields set.
pub(crate) fn def(fields: Value) -> ModelDef {
    let mut all = json!({"provider": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m-1"});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

pub(crate) fn call_id(step: u32, index: u32) -> CallId {
    let session: SessionId = "ses_018f3c7a000070008000000000000001".parse().unwrap();
    CallId::at(session, 1, step, index)
}

/// The request for an ask.
pub(crate) fn request(ask: &Ask, def: &ModelDef) -> Value {
    encode(ask, def, &[3; 32])
}

/// Decodes a chat completion of an endpoint with native calls.
pub(crate) fn native(body: &Value, ask: &Ask, def: &ModelDef) -> Ballot {
    let body = body.to_string();
    decode(Reply { status: 200, content_type: Some("application/json"), body: body.as_bytes() }, ask, def)
}

/// A completion whose message is this, finished with `stop`.
pub(crate) fn completion(message: Value) -> Value {
    json!({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
}

pub(crate) fn calls(ballot: &Ballot) -> &[ProposedCall] {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => calls,
        other => panic!("not calls: {other:?}"),
    }
}

pub(crate) fn done(ballot: &Ballot) -> Value {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Done { output }) => output.value(),
        other => panic!("not done: {other:?}"),
    }
}

pub(crate) fn malformed(ballot: &Ballot) -> (MalformedReason, &str) {
    match &ballot.verdict {
        BallotVerdict::Malformed { reason, detail } => {
            assert!(detail.chars().count() <= 400, "{detail}");
            (*reason, detail)
        }
        other => panic!("not malformed: {other:?}"),
    }
}

/// The readable calls of a ballot as (tool, arguments) pairs, none where it is no proposal of calls.
pub(crate) fn runnable(ballot: &Ballot) -> Vec<(String, Value)> {
    let BallotVerdict::Proposal(Proposal::Calls(calls)) = &ballot.verdict else { return Vec::new() };
    let readable = calls.iter().filter_map(|call| match &call.args {
        ProposedArgs::Readable(args) => Some((call.tool.clone(), args.value())),
        ProposedArgs::Malformed { .. } => None,
    });
    readable.collect()
}

/// Adds a ballot to the transcript as the loop does: the model's message, then one result per call or a notice.
pub(crate) fn follow_up(ask: &mut Ask, ballot: &Ballot, body_of: impl Fn(&str) -> String) {
    ask.answers_so_far += 1;
    let step = ask.answers_so_far;
    let text = ballot.text.clone();
    let opaque = ballot.opaque.clone();
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let id = |index: usize| call_id(step, u32::try_from(index).unwrap());
            let views = calls.iter().enumerate().map(|(at, call)| CallView {
                call: id(at),
                tool: call.tool.clone(),
                args: call.raw_args.clone(),
            });
            ask.transcript.push(Arc::new(Entry::Model { text, calls: views.collect(), opaque }));
            for (at, call) in calls.iter().enumerate() {
                let (status, reason, body) = match &call.args {
                    ProposedArgs::Readable(_) => ("ok", None, body_of(&call.tool)),
                    ProposedArgs::Malformed { detail, .. } => ("rejected", Some(detail.clone()), String::new()),
                };
                let tool = call.tool.clone();
                ask.transcript.push(Arc::new(Entry::Result {
                    call: id(at),
                    tool,
                    status: status.to_owned(),
                    reason,
                    body,
                }));
            }
        }
        BallotVerdict::Malformed { reason, detail } => {
            ask.transcript.push(Arc::new(Entry::Model { text, calls: Vec::new(), opaque }));
            ask.transcript.push(Arc::new(Entry::Feedback { code: format!("{reason:?}"), text: detail.clone() }));
        }
        BallotVerdict::Proposal(Proposal::Done { .. }) => {
            ask.transcript.push(Arc::new(Entry::Model { text, calls: Vec::new(), opaque }));
        }
        BallotVerdict::Failed { .. } => {}
    }
}

/// Checks what providers check: each call has exactly one result right behind it, ids are unique, nothing is left over,
/// earlier arguments are JSON objects, one system message.
pub(crate) fn assert_history(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let mut seen = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        assert!(role != "system" || at == 0, "a second system message");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            assert_eq!(open.first().map(String::as_str), Some(id), "a result out of place");
            open.remove(0);
            continue;
        }
        assert!(open.is_empty(), "a call without result: {open:?}");
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(!seen.contains(&id), "the id {id} twice");
            match &call["function"]["arguments"] {
                Value::String(text) => assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}"),
                other => assert!(other.is_object(), "{other}"),
            }
            let name = call["function"]["name"].as_str().unwrap();
            assert!(
                (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            );
            seen.push(id.clone());
            open.push(id);
        }
    }
    assert!(open.is_empty(), "a call without result: {open:?}");
}
