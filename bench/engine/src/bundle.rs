//! The bundles under load: one tool that says its arguments, and bounds that are looked at and never met. What is not
//! here: who puts them (`server`).

use serde_json::{Value, json};

use crate::model::Model;

/// Ten steps with a model over HTTP.
pub(crate) fn ten_steps(model: &Model) -> Value {
    of(&http(&model.base_url, 64), 20, 100)
}

/// The same, all of whose sessions may ask at the same time.
pub(crate) fn ten_steps_at_once(model: &Model) -> Value {
    of(&http(&model.base_url, 10_000), 20, 100)
}

/// Long runs with a model over HTTP, of which so many may be asked at once.
pub(crate) fn long_runs(base_url: &str, at_once: u32) -> Value {
    of(&http(base_url, at_once), 200, 10_000)
}

/// The same with a model that takes so many tokens of input.
pub(crate) fn long_runs_in(base_url: &str, at_once: u32, window: u32) -> Value {
    let mut model = http(base_url, at_once);
    if let Some(fields) = model.as_object_mut() {
        fields.insert("max_input_tokens".to_owned(), window.into());
    }
    of(&model, 200, 10_000)
}

/// Sessions that are over at once: the answer comes from a script.
pub(crate) fn over_at_once() -> Value {
    of(&json!({"provider": "scripted", "script": [{"done": "that is all"}], "repeat_last": true}), 20, 100)
}

fn http(base_url: &str, at_once: u32) -> Value {
    json!({"provider": "openai", "base_url": base_url, "model": "stub", "max_concurrency": at_once, "timeout_ms": 600_000})
}

fn of(model: &Value, steps: u32, largest: u32) -> Value {
    let permit =
        format!("permit(principal, action == Action::\"echo\", resource) when {{context.input.n < {largest}}};");
    json!({
        "version": 1,
        "models": {"m": model},
        "default_model": "m",
        "default_harness": {"max_steps": steps, "max_tool_calls": steps, "deadline_ms": 3_600_000},
        "tools": {"echo": {"description": "Says its arguments.", "venue": "server", "class": "read",
            "executor": {"builtin": "echo"},
            "parameters": {"type": "object", "required": ["n", "text"], "additionalProperties": false,
                "properties": {"n": {"type": "integer", "minimum": 0}, "text": {"type": "string", "maxLength": 1_000}}}}},
        "policies": {
            "arguments": {"small": {"on": {"tools": ["echo"]}, "argument": "/n", "max": largest}},
            "totals": {"few": {"on": {"tools": ["echo"]}, "max_count": largest, "scope": "run"}},
            "cedar": {"main": {"text": permit}}
        },
        "profiles": {"default": {"tools": ["echo"]}}
    })
}
