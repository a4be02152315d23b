//! What each provider takes of a tool's schema, and how the rest is shown to its models. What is validated is never
//! touched: the shown schema may be weaker than the check, never the other way round. What is not here: the check itself
//! (`schema`), requests (`toolgate-proposers`).

use serde_json::{Map, Value, json};

use super::model::Provider;

mod combine;
mod strict;

pub use strict::is_strict;

/// Characters of a constraint that is told in words.
const MAX_WORDS: usize = 2_000;
/// Longest property name that Anthropic takes.
const MAX_NAME: usize = 64;

/// A schema as a provider takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// What is sent.
    pub schema: Value,
    /// Every construct the provider would have refused, in the order of places.
    pub changes: Vec<Change>,
}

/// A construct that a provider refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// JSON pointer into the schema.
    pub pointer: String,
    /// What is refused there, and what is shown in its place.
    pub detail: String,
}

/// The schema of a tool's arguments as the models of a provider are shown it.
#[must_use]
pub fn shown(provider: Provider, schema: &Value) -> Shown {
    let mut shown = Shown { schema: schema.clone(), changes: Vec::new() };
    if provider == Provider::Scripted {
        return shown;
    }
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Value::Object(root) = &mut shown.schema {
        // Providers read one draft and some refuse the key.
        root.remove("$schema");
        root.remove("$id");
        root.insert("type".to_owned(), json!("object"));
        combine::flatten(root, &mut shown.changes);
    }
    let rules =
        Rules { names: provider == Provider::Anthropic, tuples: !draft.is_empty() && !draft.contains("2020-12") };
    rules.walk(&mut shown.schema, "", &mut shown.changes, 0);
    shown.changes.sort();
    shown
}

/// Tells a constraint in words, where the model reads it.
fn tell(map: &mut Map<String, Value>, words: &str) {
    let words: String = words.chars().take(MAX_WORDS).collect();
    let before = map.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = if before.is_empty() { words } else { format!("{before}\n{words}") };
    map.insert("description".to_owned(), json!(text));
}

/// What is refused at any depth.
struct Rules {
    names: bool,
    tuples: bool,
}

impl Rules {
    fn walk(&self, node: &mut Value, at: &str, changes: &mut Vec<Change>, depth: usize) {
        let Value::Object(map) = node else { return };
        // Registered schemas are far less deep.
        if depth > 128 {
            return;
        }
        if self.tuples {
            tuple(map, at, changes);
        }
        if self.names {
            names(map, at, changes);
        }
        for (key, child) in map.iter_mut() {
            let here = format!("{at}/{}", escape(key));
            match (key.as_str(), child) {
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(all),
                ) => {
                    for (name, child) in all.iter_mut() {
                        self.walk(child, &format!("{here}/{}", escape(name)), changes, depth + 1);
                    }
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                    for (idx, child) in all.iter_mut().enumerate() {
                        self.walk(child, &format!("{here}/{idx}"), changes, depth + 1);
                    }
                }
                (
                    "items"
                    | "additionalProperties"
                    | "additionalItems"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contains"
                    | "propertyNames"
                    | "unevaluatedProperties"
                    | "unevaluatedItems",
                    child,
                ) => self.walk(child, &here, changes, depth + 1),
                _ => {}
            }
        }
    }
}

/// A tuple in the words of older drafts.
fn tuple(map: &mut Map<String, Value>, at: &str, changes: &mut Vec<Change>) {
    if !map.get("items").is_some_and(Value::is_array) {
        return;
    }
    if let Some(items) = map.remove("items") {
        map.insert("prefixItems".to_owned(), items);
    }
    if let Some(rest) = map.remove("additionalItems") {
        map.insert("items".to_owned(), rest);
    }
    let detail = "a tuple of an older draft; shown as `prefixItems`".to_owned();
    changes.push(Change { pointer: format!("{at}/items"), detail });
}

/// Properties whose names are refused: told in words, and the object is shown open, so that they may be sent.
fn names(map: &mut Map<String, Value>, at: &str, changes: &mut Vec<Change>) {
    let Some(Value::Object(properties)) = map.get_mut("properties") else { return };
    let allowed = |name: &str| {
        (1..=MAX_NAME).contains(&name.chars().count())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
    };
    let odd: Vec<String> = properties.keys().filter(|name| !allowed(name)).cloned().collect();
    if odd.is_empty() {
        return;
    }
    let mut words = String::from("Further properties:");
    for name in &odd {
        let schema = properties.remove(name).unwrap_or(Value::Null);
        words.push_str(&format!(" {}: {schema};", json!(name)));
        let detail = format!("the property name {} is refused; told in words", json!(name));
        changes.push(Change { pointer: format!("{at}/properties/{}", escape(name)), detail });
    }
    if let Some(Value::Array(required)) = map.get_mut("required") {
        let needed: Vec<Value> = required.iter().filter(|name| odd.iter().any(|odd| *name == odd)).cloned().collect();
        required.retain(|name| !needed.contains(name));
        if !needed.is_empty() {
            words.push_str(&format!(" required of them: {}", Value::Array(needed)));
        }
    }
    for closed in ["additionalProperties", "unevaluatedProperties"] {
        if map.get(closed) == Some(&Value::Bool(false)) {
            map.remove(closed);
        }
    }
    tell(map, &words);
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
