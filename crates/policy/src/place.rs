//! Places inside arguments and results: JSON pointers in which `*` stands for each element of a list.
//! What is not here: what is asked of the values found there.

use serde_json::Value;

/// The most values that one place may stand for in one call.
const MAX_VALUES: usize = 10_000;
/// The most tokens of one place.
const MAX_TOKENS: usize = 16;

/// A JSON pointer in which the token `*` stands for each element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Key(String),
    Each,
}

/// What a place stands for in one value.
#[derive(Debug, Default)]
pub(crate) struct Spots<'a> {
    /// The values found.
    pub(crate) values: Vec<&'a Value>,
    /// A property was not there, or a list had no element.
    pub(crate) absent: bool,
    /// Something on the way was of another kind (a `null` is one), or there were too many values.
    pub(crate) wrong: bool,
}

/// Whether arguments that match a schema can have a value at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared<'a> {
    /// Declared, with this schema.
    Yes(&'a Value),
    /// The schema may allow it, but does not say what it is.
    Open,
    /// The schema rules it out.
    No,
}

impl Place {
    /// Reads a place such as `/to` or `/recipients/*/email`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let rest =
            text.strip_prefix('/').ok_or("needs a JSON pointer such as `/path`, with `*` for each list element")?;
        let tokens: Option<Vec<Token>> = rest.split('/').map(token).collect();
        let tokens = tokens.ok_or("`~` in a pointer is written `~0`, and `/` inside a name `~1`")?;
        if tokens.len() > MAX_TOKENS || text.len() > 512 {
            return Err("has more than 16 steps or 512 bytes; point less deep");
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Every value of this place.
    pub(crate) fn find<'a>(&self, root: &'a Value) -> Spots<'a> {
        let mut spots = Spots::default();
        walk(&self.tokens, root, &mut spots);
        if spots.values.is_empty() && !spots.wrong {
            spots.absent = true;
        }
        spots
    }

    /// The only value of this place, where there is exactly one.
    pub(crate) fn single<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        let spots = self.find(root);
        match spots.values.as_slice() {
            [one] if !spots.wrong => Some(one),
            _ => None,
        }
    }

    /// Whether the place stands for a list's elements.
    pub(crate) fn has_each(&self) -> bool {
        self.tokens.contains(&Token::Each)
    }

    /// Whether a schema of arguments declares this place.
    pub(crate) fn declared<'a>(&self, schema: &'a Value) -> Declared<'a> {
        let mut here = schema;
        for token in &self.tokens {
            here = match step(schema, here, token) {
                Declared::Yes(next) => next,
                other => return other,
            };
        }
        Declared::Yes(resolve(schema, here))
    }
}

fn token(text: &str) -> Option<Token> {
    if text == "*" {
        return Some(Token::Each);
    }
    let mut key = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '~' {
            key.push(c);
            continue;
        }
        match chars.next() {
            Some('0') => key.push('~'),
            Some('1') => key.push('/'),
            _ => return None,
        }
    }
    Some(Token::Key(key))
}

fn walk<'a>(tokens: &[Token], value: &'a Value, spots: &mut Spots<'a>) {
    let Some((first, rest)) = tokens.split_first() else {
        if spots.values.len() < MAX_VALUES {
            spots.values.push(value);
        } else {
            spots.wrong = true;
        }
        return;
    };
    match (first, value) {
        (Token::Each, Value::Array(items)) => {
            if items.is_empty() {
                spots.absent = true;
            }
            for item in items {
                if spots.wrong {
                    return;
                }
                walk(rest, item, spots);
            }
        }
        (Token::Key(key), Value::Object(map)) => match map.get(key) {
            Some(next) => walk(rest, next, spots),
            None => spots.absent = true,
        },
        (Token::Key(key), Value::Array(items)) => match key.parse::<usize>() {
            Ok(idx) => match items.get(idx) {
                Some(next) => walk(rest, next, spots),
                None => spots.absent = true,
            },
            Err(_) => spots.wrong = true,
        },
        _ => spots.wrong = true,
    }
}

/// Follows local references, a few at most: a cycle ends as what it started as.
fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..8 {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        let Some(next) = target.and_then(|pointer| root.pointer(pointer)) else { break };
        schema = next;
    }
    schema
}

fn step<'a>(root: &'a Value, schema: &'a Value, token: &Token) -> Declared<'a> {
    let schema = resolve(root, schema);
    let found = match token {
        Token::Key(key) => schema.get("properties").and_then(|all| all.get(key)),
        Token::Each => schema.get("items").filter(|items| items.is_object()),
    };
    if let Some(next) = found {
        return Declared::Yes(next);
    }
    let open = match schema {
        Value::Object(map) => {
            let combined =
                ["$ref", "anyOf", "oneOf", "allOf", "if", "dependentSchemas", "patternProperties", "prefixItems"];
            let rest = map.get("additionalProperties").is_some_and(|rest| *rest != Value::Bool(false));
            let untyped = !map.contains_key("type") && !map.contains_key("properties") && !map.contains_key("enum");
            let listed = map.get("type").is_some_and(|kind| match kind {
                Value::String(kind) => kind == "array",
                Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
                _ => false,
            });
            // An index into a list and the elements of a list without `items` are not ruled out.
            rest || untyped || listed || combined.iter().any(|key| map.contains_key(*key))
        }
        Value::Bool(any) => *any,
        _ => false,
    };
    if open { Declared::Open } else { Declared::No }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(place: &str, value: &Value) -> (Vec<String>, bool, bool) {
        let place = Place::parse(place).unwrap();
        let spots = place.find(value);
        (spots.values.iter().map(ToString::to_string).collect(), spots.absent, spots.wrong)
    }

    #[test]
    fn values_are_found_and_gaps_are_seen() {
        let value = json!({"a": {"b/c": 1, "t~": 2}, "l": [{"x": 1}, {"y": 2}, {"x": 3}], "e": [], "n": null});
        assert_eq!(texts("/a/b~1c", &value), (vec!["1".to_owned()], false, false));
        assert_eq!(texts("/a/t~0", &value), (vec!["2".to_owned()], false, false));
        assert_eq!(texts("/l/*/x", &value), (vec!["1".to_owned(), "3".to_owned()], true, false));
        assert_eq!(texts("/l/1/y", &value), (vec!["2".to_owned()], false, false));
        assert_eq!(texts("/e/*", &value), (vec![], true, false));
        assert_eq!(texts("/gone", &value), (vec![], true, false));
        assert_eq!(texts("/n/x", &value), (vec![], false, true));
        assert_eq!(texts("/a/*", &value), (vec![], false, true));
        assert_eq!(texts("/n", &value), (vec!["null".to_owned()], false, false));
    }

    #[test]
    fn places_that_are_none_are_refused() {
        for text in ["", "a", "/a~", "/a~2", &"/a".repeat(17)] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schemas_say_what_exists() {
        let schema = json!({"type": "object", "properties": {
            "to": {"type": "string"}, "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
            "free": {"type": "object", "additionalProperties": true}, "any": true,
            "loop": {"$ref": "#/properties/loop"}},
            "$defs": {"item": {"type": "object", "properties": {"mail": {"type": "string"}}}}});
        let declared = |place: &str| match Place::parse(place).unwrap().declared(&schema) {
            Declared::Yes(_) => "yes",
            Declared::Open => "open",
            Declared::No => "no",
        };
        for (place, answer) in [
            ("/to", "yes"),
            ("/list/*/mail", "yes"),
            ("/list/*/phone", "no"),
            ("/list/0", "open"),
            ("/free/x", "open"),
            ("/any/x", "open"),
            ("/to/x", "no"),
            ("/tto", "no"),
            ("/loop/x", "open"),
        ] {
            assert_eq!(declared(place), answer, "{place}");
        }
    }
}
