//! Whether a schema satisfies OpenAI's strict mode at every level. In doubt, no: a tool that claims it wrongly makes every
//! request fail. What is not here: any change of a schema to make it so; optional properties would become required.

use serde_json::{Map, Value};

/// Keywords that strict mode knows.
const KNOWN: [&str; 20] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "$ref",
    "$defs",
    "enum",
    "const",
    "description",
    "title",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];

/// Whether a tool with this schema may be marked strict.
#[must_use]
pub fn is_strict(schema: &Value) -> bool {
    let Value::Object(root) = schema else { return false };
    root.get("type").and_then(Value::as_str) == Some("object") && !root.contains_key("anyOf") && node(root, 0)
}

fn node(map: &Map<String, Value>, depth: usize) -> bool {
    if depth > 10 || !map.keys().all(|key| KNOWN.contains(&key.as_str())) {
        return false;
    }
    let says_what = ["type", "anyOf", "$ref", "enum", "const"].iter().any(|key| map.contains_key(*key));
    let below = |child: &Value| child.as_object().is_some_and(|child| node(child, depth + 1));
    let in_map = |key: &str| map.get(key).and_then(Value::as_object).is_none_or(|all| all.values().all(below));
    says_what
        && in_map("properties")
        && in_map("$defs")
        && map.get("items").is_none_or(below)
        && map.get("anyOf").and_then(Value::as_array).is_none_or(|all| all.iter().all(below))
        && (!is_object(map) || is_closed(map))
}

fn is_object(map: &Map<String, Value>) -> bool {
    match map.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => map.contains_key("properties"),
    }
}

/// Nothing unnamed is allowed, and everything named is required.
fn is_closed(map: &Map<String, Value>) -> bool {
    let required: Vec<&str> =
        map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = map.get("properties").and_then(Value::as_object);
    map.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_some_and(|all| all.keys().all(|name| required.contains(&name.as_str())))
}
