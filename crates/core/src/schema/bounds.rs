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

/// Keywords that hold one schema, a list of them, or a map of them.
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
const LIST: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
const MAP: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

pub(super) fn check(schema: &Value) -> Result<(), SchemaFault> {
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(SchemaFault::new("", format!("{bytes} bytes; a schema has at most {MAX_BYTES}")));
    }
    one_resource(schema, "")?;
    let mut walk = Walk { root: schema, expanded: 0, following: Vec::new() };
    walk.visit(schema, "", Place { depth: 0, branching: false, level: 0 })
}

/// Refuses `$id` below the root: it would change what `#` means there, and so what this walk has seen.
fn one_resource(node: &Value, at: &str) -> Result<(), SchemaFault> {
    match node {
        Value::Object(map) => map.iter().try_for_each(|(key, child)| {
            let here = format!("{at}/{}", escape(key));
            let names = !at.is_empty() && (key == "$id" || key == "$anchor" || key == "$dynamicAnchor");
            if names && child.is_string() {
                return Err(SchemaFault::new(here, "not supported; refer to `#/$defs/…` by its place"));
            }
            one_resource(child, &here)
        }),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(idx, child)| one_resource(child, &format!("{at}/{idx}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Where the walk stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// Below a combinator.
    branching: bool,
    /// How far into the data: children of objects and arrays are one level deeper.
    level: usize,
}

impl Place {
    const fn below(self, branching: bool, into_data: bool) -> Self {
        Self { depth: self.depth + 1, branching, level: self.level + if into_data { 1 } else { 0 } }
    }
}

struct Walk<'a> {
    root: &'a Value,
    expanded: usize,
    /// References that are being followed, and how far into the data each was met.
    following: Vec<(&'a str, usize)>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, node: &'a Value, at: &str, place: Place) -> Result<(), SchemaFault> {
        self.expanded += 1;
        if self.expanded > MAX_EXPANDED {
            let detail = format!("more than {MAX_EXPANDED} subschemas once references are followed");
            return Err(SchemaFault::new(at, detail));
        }
        if place.depth > MAX_DEPTH {
            return Err(SchemaFault::new(at, format!("nested deeper than {MAX_DEPTH}")));
        }
        let Value::Object(map) = node else { return Ok(()) };
        for key in ["$dynamicRef", "$recursiveRef"] {
            if map.contains_key(key) {
                return Err(SchemaFault::new(format!("{at}/{key}"), "not supported; use `$ref` into `$defs`"));
            }
        }
        check_patterns(map, at)?;
        let branching = place.branching || branches(map);
        for key in ONE {
            if let Some(child) = map.get(key).filter(|child| !child.is_array()) {
                let into_data = !matches!(key, "not" | "if" | "then" | "else");
                self.visit(child, &format!("{at}/{key}"), place.below(branching, into_data))?;
            }
        }
        for key in LIST {
            let below = place.below(branching, matches!(key, "prefixItems" | "items"));
            for (idx, child) in map.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
                self.visit(child, &format!("{at}/{key}/{idx}"), below)?;
            }
        }
        for key in MAP {
            let below = place.below(branching, matches!(key, "properties" | "patternProperties"));
            for (name, child) in map.get(key).and_then(Value::as_object).into_iter().flatten() {
                self.visit(child, &format!("{at}/{key}/{}", escape(name)), below)?;
            }
        }
        self.follow(map, at, Place { branching, ..place })
    }

    /// Follows a local `$ref`. Recursion is allowed where it goes into the data, one way: each value is then looked at
    /// once for each place in the schema, and a mismatch once more for each level above it.
    fn follow(&mut self, map: &'a Map<String, Value>, at: &str, place: Place) -> Result<(), SchemaFault> {
        let Some(Value::String(target)) = map.get("$ref") else { return Ok(()) };
        let here = format!("{at}/$ref");
        let Some(pointer) = target.strip_prefix('#') else {
            return Err(SchemaFault::new(here, "only references inside the schema (`#/…`) are allowed"));
        };
        // The root is being followed from the start.
        let met = self.following.iter().rev().find(|(known, _)| known == target).map(|(_, level)| *level);
        let met = met.or_else(|| pointer.is_empty().then_some(0));
        if let Some(level) = met {
            return if place.branching {
                Err(SchemaFault::new(
                    here,
                    "recursion of which several branches apply at once can cost unbounded time; write it out",
                ))
            } else if level == place.level {
                Err(SchemaFault::new(here, "refers to itself without going into the data, which never ends"))
            } else {
                Ok(())
            };
        }
        let Some(found) = self.root.pointer(pointer) else {
            return Err(SchemaFault::new(here, format!("`{target}` points at nothing")));
        };
        self.following.push((target, place.level));
        let result = self.visit(found, at, place.below(place.branching, false));
        self.following.pop();
        result
    }
}

/// Whether a value, or a child of it, may be given to several subschemas here: recursion below then multiplies with each
/// level of the data. An optional reference (`anyOf` of a `$ref` and `null`) is one, a node with two of them is not.
/// `properties` and `additionalProperties` never share a child; patterns share with each other and with `properties`.
fn branches(map: &Map<String, Value>) -> bool {
    let lists = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| map.get(*key)?.as_array()).flatten();
    let maps = ["dependentSchemas", "dependencies"].iter().filter_map(|key| map.get(*key)?.as_object());
    let singles = ["not", "if", "then", "else", "contains"].iter().filter_map(|key| map.get(*key));
    let below = lists.chain(maps.flat_map(Map::values)).chain(singles).filter(|child| goes_on(child)).count();
    let patterns = map.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
    let beside_patterns = usize::from(patterns == 0 && children(map) || patterns > 0 && map.contains_key("properties"));
    below + patterns + beside_patterns + usize::from(map.contains_key("$ref")) > 1
}

/// Whether some child of the value gets a schema here, patterns aside.
fn children(map: &Map<String, Value>) -> bool {
    let keys = [
        "properties",
        "additionalProperties",
        "unevaluatedProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
    ];
    keys.iter().any(|key| map.get(*key).is_some_and(|child| !child.is_boolean()))
}

/// Whether a subschema looks any further than at the value itself.
fn goes_on(schema: &Value) -> bool {
    let holds = |key: &&str| schema.get(*key).is_some_and(|child| !child.is_boolean());
    ["$ref"].iter().chain(&ONE).chain(&LIST).chain(&MAP).any(holds)
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
