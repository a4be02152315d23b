//! The bundle most tests start from: one model, one tool host, a few tools of different classes. What is not here: what
//! one area alone needs (its file under `e2e`).

use serde_json::{Map, Value, json};

use crate::fake_model::FakeModel;
use crate::fake_tool::FakeTool;

/// A bundle whose profile `default` may use these tools; the one caller of most tests may approve its own calls.
#[must_use]
pub fn bundle(model: &Value, tools: &Value) -> Value {
    let names: Vec<&String> = tools.as_object().map(Map::keys).into_iter().flatten().collect();
    json!({
        "version": 1,
        "models": {"m": model},
        "default_model": "m",
        "default_harness": {"max_steps": 8, "max_tool_calls": 8, "deadline_ms": 60_000},
        "tools": tools,
        "profiles": {"default": {"tools": names, "approval": {"self_approval": true}}}
    })
}

/// `look` (read) and `act` (once), both at the stub tool; each takes any `text`.
#[must_use]
pub fn two_tools(tool: &FakeTool) -> Value {
    json!({"look": server_tool(tool, "look", "read"), "act": server_tool(tool, "act", "once")})
}

/// A tool at the stub tool with an optional string `text`.
#[must_use]
pub fn server_tool(tool: &FakeTool, name: &str, class: &str) -> Value {
    json!({
        "description": format!("The tool {name}."), "venue": "server", "class": class,
        "executor": tool.executor(name),
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}
    })
}

/// The usual bundle.
#[must_use]
pub fn usual(model: &FakeModel, tool: &FakeTool) -> Value {
    bundle(&model.entry(), &two_tools(tool))
}

/// A change of one place in a bundle.
#[must_use]
pub fn with(mut bundle: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a JSON pointer");
    bundle.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"))[key] = value;
    bundle
}

/// A field case: failures that people reported in public, as `tests/field-cases` has them.
#[must_use]
pub fn field_case(id: &str) -> Value {
    let path = format!("{}/field-cases/{id}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the case is there");
    let case: Value = serde_json::from_str(&text).expect("a case is JSON");
    assert_eq!(case["case"], id);
    case
}
