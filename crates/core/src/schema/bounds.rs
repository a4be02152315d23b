//! Static bounds on schemas, so that no registered schema can cost unbounded time. What is not here: the check itself.
//! Source: `anyOf` that doubles per level, counted repetition and look-around are known ways to stall a validator.

use serde_json::{Map, Value};

use super::SchemaFault;

/// Bytes of one schema.
const MAX_BYTES: usize = 32 * 1024;
/// Levels of nesting.
const MAX_DEPTH: usize = 24;
/// Subschemas after every local `$ref` is followed.
const MAX_EXPANDED: usize = 2_048;
/// Characters of one `pattern`.
const MAX_PATTERN_CHARS: usize = 256;

const ONE: [&str; 11] = [
    "additionalProperties",
    "items",
    "additionalItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
];
const LIST: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const MAP: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

pub(super) fn check(schema: &Value) -> Result<(), SchemaFault> {
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(SchemaFault::new("", format!("{bytes} bytes; a schema has at most {MAX_BYTES}")));
    }
    let mut walk = Walk { root: schema, expanded: 0, following: Vec::new() };
    walk.visit(schema, "", 0, false)
}

struct Walk<'a> {
    root: &'a Value,
    expanded: usize,
    following: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, node: &'a Value, at: &str, depth: usize, branching: bool) -> Result<(), SchemaFault> {
        self.expanded += 1;
        if self.expanded > MAX_EXPANDED {
            return Err(SchemaFault::new(
                at,
                format!("more than {MAX_EXPANDED} subschemas once references are followed"),
            ));
        }
        if depth > MAX_DEPTH {
            return Err(SchemaFault::new(at, format!("nested deeper than {MAX_DEPTH}")));
        }
        let Value::Object(map) = node else { return Ok(()) };
        for key in ["$dynamicRef", "$recursiveRef"] {
            if map.contains_key(key) {
                return Err(SchemaFault::new(format!("{at}/{key}"), "not supported; use `$ref` into `$defs`"));
            }
        }
        check_patterns(map, at)?;
        let branching = branching || ["anyOf", "oneOf", "allOf", "if", "not"].iter().any(|key| map.contains_key(*key));
        for key in ONE {
            if let Some(child) = map.get(key) {
                self.visit(child, &format!("{at}/{key}"), depth + 1, branching)?;
            }
        }
        for key in LIST.into_iter().chain(["items"]) {
            for (idx, child) in map.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
                self.visit(child, &format!("{at}/{key}/{idx}"), depth + 1, branching)?;
            }
        }
        for key in MAP {
            for (name, child) in map.get(key).and_then(Value::as_object).into_iter().flatten() {
                self.visit(child, &format!("{at}/{key}/{}", escape(name)), depth + 1, branching)?;
            }
        }
        self.follow(map, at, depth, branching)
    }

    /// Follows a local `$ref`. Recursion is allowed where data can only shrink one way: outside combinators.
    fn follow(
        &mut self,
        map: &'a Map<String, Value>,
        at: &str,
        depth: usize,
        branching: bool,
    ) -> Result<(), SchemaFault> {
        let Some(Value::String(target)) = map.get("$ref") else { return Ok(()) };
        let place = format!("{at}/$ref");
        let Some(pointer) = target.strip_prefix('#') else {
            return Err(SchemaFault::new(place, "only references inside the schema (`#/…`) are allowed"));
        };
        if self.following.contains(&target.as_str()) {
            return if branching {
                Err(SchemaFault::new(place, "recursion through a combinator can cost unbounded time; write it out"))
            } else {
                Ok(())
            };
        }
        let Some(found) = self.root.pointer(pointer) else {
            return Err(SchemaFault::new(place, format!("`{target}` points at nothing")));
        };
        self.following.push(target);
        let result = self.visit(found, at, depth + 1, branching);
        self.following.pop();
        result
    }
}

fn check_patterns(map: &Map<String, Value>, at: &str) -> Result<(), SchemaFault> {
    let named = map.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let own = map.get("pattern").and_then(Value::as_str).map(ToOwned::to_owned);
    for pattern in own.into_iter().chain(named.cloned()) {
        let length = pattern.chars().count();
        if length > MAX_PATTERN_CHARS {
            let detail = format!("a pattern of {length} characters; at most {MAX_PATTERN_CHARS}");
            return Err(SchemaFault::new(format!("{at}/pattern"), detail));
        }
    }
    Ok(())
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doubling_is_refused_and_plain_recursion_is_not() {
        let mut node = json!({"type": "string"});
        for _ in 0..14 {
            node = json!({"anyOf": [node.clone(), node]});
        }
        assert!(check(&node).is_err());

        let mut defs = Map::new();
        for level in 0..20 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({"anyOf": [next.clone(), next]}));
        }
        defs.insert("d20".to_owned(), json!({"type": "string"}));
        assert!(check(&json!({"$ref": "#/$defs/d0", "$defs": defs})).is_err());

        let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert_eq!(check(&list), Ok(()));
        let hostile = json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]});
        assert!(check(&hostile).is_err());
    }
}
