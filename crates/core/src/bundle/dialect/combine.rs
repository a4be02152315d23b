//! Combinators at the top of a schema, which providers refuse: shown as the plain object that allows at least as much. What
//! is not here: combinators further down, which are taken.

use serde_json::{Map, Value, json};

use super::{Change, tell};

/// Keywords that providers refuse at the top.
const REFUSED: [&str; 11] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else", "dependentSchemas"];

/// Replaces what is refused by the properties that any of it names, and tells the rest in words.
pub(super) fn flatten(root: &mut Map<String, Value>, changes: &mut Vec<Change>) {
    let found: Vec<(&str, Value)> = REFUSED.iter().filter_map(|key| Some((*key, root.remove(*key)?))).collect();
    if found.is_empty() {
        return;
    }
    let document = Value::Object(root.clone());
    let mut shape = Shape::of(root);
    let mut words = Map::new();
    for (key, value) in &found {
        let detail = format!("`{key}` at the top is refused; its properties are shown, the rest is told in words");
        changes.push(Change { pointer: format!("/{key}"), detail });
        match (*key, value) {
            ("$ref", Value::String(target)) => {
                // A cycle was refused when the tool was registered.
                let target = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
                shape.all(&branch(&document, target.unwrap_or(&Value::Null), 0));
                continue;
            }
            ("allOf", Value::Array(all)) => all.iter().for_each(|part| shape.all(&branch(&document, part, 0))),
            ("anyOf" | "oneOf", Value::Array(any)) => {
                shape.any(&any.iter().map(|part| branch(&document, part, 0)).collect::<Vec<_>>());
            }
            ("if" | "then" | "else", part) => shape.any(&[branch(&document, part, 0), Shape::default()]),
            ("dependentSchemas", Value::Object(parts)) => {
                parts.values().for_each(|part| shape.any(&[branch(&document, part, 0), Shape::default()]));
            }
            _ => {}
        }
        words.insert((*key).to_owned(), value.clone());
    }
    // What the branches see cannot be told from here, so the object is closed only where it was closed itself.
    root.remove("unevaluatedProperties");
    root.insert("properties".to_owned(), Value::Object(shape.properties));
    if shape.required.is_empty() {
        root.remove("required");
    } else {
        root.insert("required".to_owned(), json!(shape.required));
    }
    if !words.is_empty() {
        tell(root, &format!("The arguments as a whole also match this JSON Schema: {}", Value::Object(words)));
    }
}

/// The properties of an object, and which of them it needs.
#[derive(Default)]
struct Shape {
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Shape {
    fn of(map: &Map<String, Value>) -> Self {
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        Self {
            properties: map.get("properties").and_then(Value::as_object).cloned().unwrap_or_default(),
            required: required.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        }
    }

    /// Both hold.
    fn all(&mut self, other: &Self) {
        for name in &other.required {
            if !self.required.contains(name) {
                self.required.push(name.clone());
            }
        }
        for (name, schema) in &other.properties {
            match self.properties.get(name) {
                // What is said first is weaker than both together.
                Some(_) => {}
                None => _ = self.properties.insert(name.clone(), schema.clone()),
            }
        }
    }

    /// One of them holds, beside what is here.
    fn any(&mut self, branches: &[Self]) {
        let mut either = Self::default();
        for (at, branch) in branches.iter().enumerate() {
            match at {
                0 => either.required.clone_from(&branch.required),
                _ => either.required.retain(|name| branch.required.contains(name)),
            }
            for (name, schema) in &branch.properties {
                // A branch that does not name it may still allow it with any value.
                let everywhere = branches.iter().all(|other| other.properties.contains_key(name));
                match either.properties.get_mut(name) {
                    None if everywhere => _ = either.properties.insert(name.clone(), json!({"anyOf": [schema]})),
                    None => _ = either.properties.insert(name.clone(), described(schema)),
                    Some(known) => {
                        if let Some(Value::Array(known)) = known.get_mut("anyOf")
                            && !known.contains(schema)
                        {
                            known.push(schema.clone());
                        }
                    }
                }
            }
        }
        for schema in either.properties.values_mut() {
            if let Some([only]) = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
                *schema = only.clone();
            }
        }
        self.all(&either);
    }
}

/// A hint in place of a constraint that holds in one branch only.
fn described(schema: &Value) -> Value {
    json!({"description": format!("In one form: {schema}")})
}

/// The shape of a branch with its own combinators.
fn branch(document: &Value, part: &Value, depth: usize) -> Shape {
    let Value::Object(map) = part else { return Shape::default() };
    let mut shape = Shape::of(map);
    if depth > 16 {
        return Shape::default();
    }
    if let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#')) {
        shape.all(&branch(document, document.pointer(target).unwrap_or(&Value::Null), depth + 1));
    }
    for part in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        shape.all(&branch(document, part, depth + 1));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(any) = map.get(key).and_then(Value::as_array) {
            shape.any(&any.iter().map(|part| branch(document, part, depth + 1)).collect::<Vec<_>>());
        }
    }
    shape
}
