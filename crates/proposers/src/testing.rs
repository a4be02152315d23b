//! For tests of whoever embeds Toolgate (feature `testing`): scripted models, texts that models write, and a fake provider
//! that checks what it is sent. What is not here: anything a server runs.

use serde_json::{Value, json};

pub mod history;
mod provider;
pub mod replay;
mod script;

pub use provider::{FakeAnswer, FakeProvider, FakeProviderBuilder};
pub use script::Script;

/// The envelope that asks for calls, as a model writes it.
#[must_use]
pub fn envelope_of_calls(calls: &[(&str, Value)]) -> String {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, args))| json!({"id": (at + 1).to_string(), "name": name, "args": args}))
        .collect();
    json!({"type": "tool_call", "calls": calls}).to_string()
}

/// The envelope of a final answer.
#[must_use]
pub fn envelope_of_answer(output: &Value) -> String {
    json!({"type": "final_answer", "output": output}).to_string()
}

/// The body of a chat completion that answers in words.
#[must_use]
pub fn completion_of_text(text: &str) -> Value {
    completion(&json!({"role": "assistant", "content": text}), "stop")
}

/// The body of a chat completion that asks for calls.
#[must_use]
pub fn completion_of_calls(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, args))| {
            let function = json!({"name": name, "arguments": args.to_string()});
            json!({"index": at, "id": format!("call_{at}"), "type": "function", "function": function})
        })
        .collect();
    completion(&json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
}

fn completion(message: &Value, finish: &str) -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "fake",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    })
}

/// A whole chat completion as the events of a stream, its end included.
#[must_use]
pub fn stream_of(completion: &Value) -> String {
    let choice = completion.pointer("/choices/0").unwrap_or(&Value::Null);
    let delta = choice.get("message").unwrap_or(&Value::Null);
    let begun = json!({"object": "chat.completion.chunk", "model": "fake", "choices": [{"index": 0, "delta": delta}]});
    let ended = json!({"object": "chat.completion.chunk", "model": "fake",
        "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]});
    let spent = json!({"object": "chat.completion.chunk", "choices": [], "usage": completion.get("usage")});
    format!("data: {begun}\n\ndata: {ended}\n\ndata: {spent}\n\ndata: [DONE]\n\n")
}
