//! What providers refuse in a chat request, as one list. What is not here: the server that uses it (`FakeProvider`).

use std::collections::BTreeSet;

use serde_json::Value;

/// Everything a strict OpenAI-style provider would refuse in the messages and tools of a request; empty when it is sound.
#[must_use]
pub fn faults(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Some(messages) = body.get("messages").and_then(Value::as_array) else {
        return vec!["no `messages`".to_owned()];
    };
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        match role {
            "system" if at > 0 => found.push(format!("message {at}: a second system message")),
            "system" | "user" | "assistant" | "tool" => {}
            other => found.push(format!("message {at}: the role `{other}`")),
        }
        if role == "tool" {
            let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            match open.iter().position(|waiting| waiting == id) {
                Some(place) => _ = open.remove(place),
                None => found.push(format!("message {at}: a result of `{id}`, which is not waited for")),
            }
            if !message.get("content").is_some_and(|content| content.is_string() || content.is_array()) {
                found.push(format!("message {at}: a result without content"));
            }
            continue;
        }
        for id in open.drain(..) {
            found.push(format!("message {at}: the call `{id}` has no result before it"));
        }
        let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let has_content = message.get("content").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if calls.is_empty() && !has_content {
            found.push(format!("message {at}: neither content nor calls"));
        }
        for call in calls {
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
            if id.is_empty() || !seen.insert(id.clone()) {
                found.push(format!("message {at}: the id `{id}` is empty or used before"));
            }
            let function = call.get("function").unwrap_or(&Value::Null);
            name(function, &format!("message {at}"), &mut found);
            let arguments = function.get("arguments").and_then(Value::as_str);
            let is_object = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
            if !arguments.is_some_and(is_object) {
                found.push(format!("message {at}: the arguments of `{id}` are no object written as a string"));
            }
            open.push(id);
        }
    }
    for id in open {
        found.push(format!("the call `{id}` has no result"));
    }
    tools(body, &mut found);
    found
}

fn tools(body: &Value, found: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    let tools = body.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (at, tool) in tools.iter().enumerate() {
        let function = tool.get("function").unwrap_or(&Value::Null);
        name(function, &format!("tool {at}"), found);
        if !names.insert(function.get("name").and_then(Value::as_str).unwrap_or_default()) {
            found.push(format!("tool {at}: its name is used before"));
        }
        let schema = function.get("parameters").unwrap_or(&Value::Null);
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            found.push(format!("tool {at}: the schema is not of type object"));
        }
        for keyword in ["anyOf", "oneOf", "allOf", "enum", "not", "$ref"] {
            if schema.get(keyword).is_some() {
                found.push(format!("tool {at}: `{keyword}` at the top of the schema"));
            }
        }
    }
}

fn name(function: &Value, place: &str, found: &mut Vec<String>) {
    let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !(1..=64).contains(&name.len()) || !name.chars().all(allowed) {
        found.push(format!("{place}: the name `{name}`"));
    }
}
