//! What a careful owner asks before granting: free-form arguments without a rule. What is not here: rules that
//! do nothing (`engine::review`); limits, contracts and approvals, which the bundle's own checks know.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::facts::{ToolFacts, Venue};
use crate::fault::{Fault, Faults, escape};

/// Levels of a schema that are looked at.
const MAX_DEPTH: usize = 8;
/// Places of one tool that are listed.
const MAX_PLACES: usize = 256;
/// Subschemas of one tool that are looked at, references followed.
const MAX_NODES: usize = 4_096;

/// A walk over a tool's schema.
struct Walk<'a> {
    root: &'a Value,
    nodes: usize,
    found: BTreeSet<String>,
}

/// Places of a tool's arguments that hold free text, as a command, query, path or URL would be: found by the schema, not by
/// the name. A text that is listed, constant, matched from end to end by a pattern or at most 64 characters long is not
/// free; a value of no said type, and what an open object may hold besides its properties (`/*`), is.
fn free_texts(tool: &ToolFacts) -> BTreeSet<String> {
    let mut walk = Walk { root: &tool.parameters, nodes: 0, found: BTreeSet::new() };
    walk.visit(&tool.parameters, "", 0);
    walk.found
}

impl<'a> Walk<'a> {
    fn visit(&mut self, schema: &'a Value, at: &str, depth: usize) {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES || self.found.len() >= MAX_PLACES {
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#')) {
            if let Some(next) = self.root.pointer(target) {
                self.visit(next, at, depth + 1);
            }
            return;
        }
        if is_free_text(schema) {
            self.found.insert(at.to_owned());
        }
        if let Some(rest) = open_rest(schema, depth) {
            self.visit(rest, &format!("{at}/*"), depth + 1);
        }
        for inner in schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
            self.visit(inner.1, &format!("{at}/*"), depth + 1);
        }
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.visit(inner, &format!("{at}/{}", escape(name)), depth + 1);
        }
        let elements = schema
            .get("items")
            .into_iter()
            .chain(schema.get("prefixItems").and_then(Value::as_array).into_iter().flatten());
        for items in elements.filter(|items| items.is_object()) {
            self.visit(items, &format!("{at}/*"), depth + 1);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.visit(branch, at, depth + 1);
            }
        }
    }
}

/// What an object may hold besides its properties, where that is free.
fn open_rest(schema: &Value, depth: usize) -> Option<&Value> {
    // At the root an unsaid `additionalProperties` is `false`.
    let rest = schema.get("additionalProperties")?;
    (depth < MAX_DEPTH && *rest != Value::Bool(false)).then_some(rest)
}

fn is_free_text(schema: &Value) -> bool {
    // Says nothing of the value: `true`, `{}`, a mere description.
    let silent = ["type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties", "items"];
    if *schema == Value::Bool(true) || (schema.is_object() && !silent.iter().any(|key| schema.get(key).is_some())) {
        return true;
    }
    let text = match schema.get("type") {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => false,
    };
    let bound = |key: &str| schema.get(key).is_some();
    let short = schema.get("maxLength").and_then(Value::as_u64).is_some_and(|max| max <= 64);
    let shaped = schema.get("pattern").and_then(Value::as_str).is_some_and(is_shape);
    text && !short && !bound("enum") && !bound("const") && !shaped
}

/// Whether a pattern says what the whole text may be: it holds from the beginning to the end, and takes not just anything.
fn is_shape(pattern: &str) -> bool {
    pattern.starts_with('^') && pattern.ends_with('$') && ![".*", ".+"].iter().any(|any| pattern.contains(any))
}

/// Free-form arguments of the server's tools in a bundle that has no rules at all. Pointers start at the bundle.
#[must_use]
pub fn unguarded_without_rules(tools: &[ToolFacts]) -> Vec<Fault> {
    let mut found = Faults::default();
    unguarded(tools.iter(), |_, _| false, &mut found);
    found.into_sorted()
}

/// Free-form arguments of the server's tools on which no rule looks, as `guarded` says by tool and place.
pub(crate) fn unguarded<'a>(
    tools: impl Iterator<Item = &'a ToolFacts>,
    guarded: impl Fn(&str, &str) -> bool,
    found: &mut Faults,
) {
    for tool in tools.filter(|tool| tool.venue == Venue::Server) {
        for place in free_texts(tool).into_iter().filter(|place| !guarded(&tool.id, place)) {
            let detail = format!("`{}` takes free text at `{place}`, and no rule looks at it", tool.id);
            found.add(format!("/tools/{}/parameters", escape(&tool.id)), "free_form_argument", detail);
        }
    }
}

/// Whether a rule at one place looks at what stands at another: at it, above it, or at its elements.
pub(crate) fn covers(rule: &str, place: &str) -> bool {
    let below = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    below(rule, place) || rule.strip_prefix(place) == Some("/*")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::{Class, Risk};

    #[test]
    fn free_texts_are_found_by_schema() {
        let tool = ToolFacts {
            id: "t".to_owned(),
            venue: Venue::Server,
            class: Class::Once,
            risk: Risk::High,
            tags: BTreeSet::new(),
            parameters: json!({"type": "object", "properties": {
                "free": {"type": "string"}, "pick": {"type": "string", "enum": ["a"]},
                "short": {"type": "string", "maxLength": 64}, "long": {"type": "string", "maxLength": 65},
                "shaped": {"type": "string", "pattern": "^a$"}, "n": {"type": "integer"},
                "argv": {"type": "array", "items": {"type": "string"}},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "deep": {"$ref": "#/$defs/d"},
                "partly": {"type": "string", "pattern": "a"}, "any": {"type": "string", "pattern": "^.*$"},
                "silent": {"description": "what it likes"}, "open": {"type": "object", "additionalProperties": true}},
                "$defs": {"d": {"type": "object", "properties": {"sql": {"type": ["string", "null"]}}}}}),
            derived: Vec::new(),
            secret: Vec::new(),
        };
        let found: Vec<String> = free_texts(&tool).into_iter().collect();
        assert_eq!(
            found,
            ["/any", "/argv/*", "/deep/sql", "/free", "/long", "/maybe", "/open/*", "/partly", "/silent"]
        );
    }
}
