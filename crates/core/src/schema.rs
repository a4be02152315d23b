//! Argument and output schemas: bounded when registered, compiled once, checked with errors that name the place.
//! What is not here: which schema applies where (`bundle`, `pipeline`).

use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::json::Json;

mod bounds;

/// A compiled schema with the text that models and people are shown.
#[derive(Debug, Clone)]
pub struct Schema {
    shown: Json,
    validator: Arc<Validator>,
}

/// Why a schema was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pointer}`: {detail}")]
pub struct SchemaFault {
    /// JSON pointer into the schema.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl SchemaFault {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// One way in which a value does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON pointer into the value.
    pub pointer: String,
    /// What is wrong, for the model and for people.
    pub detail: String,
}

/// At most this many mismatches are reported for one value.
const MISMATCHES_SHOWN: usize = 8;
/// Characters of one mismatch that are shown.
const DETAIL_CHARS: usize = 300;

impl Schema {
    /// Compiles the schema of a tool's arguments: a top-level object that refuses unnamed properties unless it says otherwise.
    pub fn for_arguments(schema: &Value) -> Result<Self, SchemaFault> {
        let Value::Object(map) = schema else {
            return Err(SchemaFault::new("", "the schema of arguments must be an object"));
        };
        let mut map = map.clone();
        match map.get("type") {
            None => {
                map.insert("type".to_owned(), Value::String("object".to_owned()));
            }
            Some(Value::String(kind)) if kind == "object" => {}
            Some(_) => return Err(SchemaFault::new("/type", "arguments are an object; write `\"type\": \"object\"`")),
        }
        close_object(&mut map);
        Self::compile(&Value::Object(map))
    }

    /// Compiles any schema (results, final outputs).
    pub fn compile(schema: &Value) -> Result<Self, SchemaFault> {
        bounds::check(schema)?;
        let validator = jsonschema::options()
            .with_draft(draft_of(schema)?)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .should_validate_formats(true)
            .build(schema)
            .map_err(|error| {
                let pointer = error.instance_path().to_string();
                SchemaFault::new(pointer, error.masked_with("this value").to_string())
            })?;
        Ok(Self { shown: Json::from_value(schema), validator: Arc::new(validator) })
    }

    /// The schema as models and people are shown it.
    #[must_use]
    pub const fn shown(&self) -> &Json {
        &self.shown
    }

    /// Compares a value with the schema; empty means it matches. `masked` keeps the value itself out of the words.
    #[must_use]
    pub fn mismatches(&self, value: &Value, masked: bool) -> Vec<Mismatch> {
        self.validator
            .iter_errors(value)
            .take(MISMATCHES_SHOWN)
            .map(|error| {
                let pointer = error.instance_path().to_string();
                Mismatch { pointer, detail: detail(&error, masked) }
            })
            .collect()
    }
}

/// What is wrong with one value, and how to mend it where that is known.
fn detail(error: &ValidationError<'_>, masked: bool) -> String {
    if error.instance().is_null() {
        return "null not allowed, leave it out".to_owned();
    }
    let full = error.to_string();
    // A long value would leave no room for what is wrong with it.
    let said = if masked || full.chars().count() > DETAIL_CHARS {
        error.masked_with("the value").to_string().chars().take(DETAIL_CHARS).collect()
    } else {
        full
    };
    let wraps_json =
        matches!(error.instance().as_ref(), Value::String(text) if text.trim_start().starts_with(['[', '{']));
    if wraps_json && !masked && matches!(error.kind(), ValidationErrorKind::Type { .. }) {
        format!("{said}; send JSON directly, not inside a string")
    } else {
        said
    }
}

/// Puts mismatches in one sentence for the model.
#[must_use]
pub fn describe(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(|m| format!("`{}`: {}", m.pointer, m.detail)).collect::<Vec<_>>().join("; ")
}

/// Refuses unnamed properties where the schema is silent about them.
fn close_object(map: &mut Map<String, Value>) {
    if map.contains_key("additionalProperties") || map.contains_key("unevaluatedProperties") {
        return;
    }
    let combined =
        ["anyOf", "oneOf", "allOf", "if", "$ref", "dependentSchemas"].iter().any(|key| map.contains_key(*key));
    let old_draft = map.get("$schema").and_then(Value::as_str).is_some_and(|uri| !uri.contains("2020-12"));
    match (combined, old_draft) {
        (false, _) => map.insert("additionalProperties".to_owned(), Value::Bool(false)),
        (true, false) => map.insert("unevaluatedProperties".to_owned(), Value::Bool(false)),
        // Draft 4 to 7 cannot see through combinators; closing them would refuse what the branches allow.
        (true, true) => None,
    };
}

fn draft_of(schema: &Value) -> Result<Draft, SchemaFault> {
    let Some(uri) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let known = [
        ("json-schema.org/draft-04/schema", Draft::Draft4),
        ("json-schema.org/draft-06/schema", Draft::Draft6),
        ("json-schema.org/draft-07/schema", Draft::Draft7),
        ("json-schema.org/draft/2019-09/schema", Draft::Draft201909),
        ("json-schema.org/draft/2020-12/schema", Draft::Draft202012),
    ];
    let text = uri.as_str().unwrap_or_default();
    let bare = text.trim_end_matches('#').trim_start_matches("https://").trim_start_matches("http://");
    known
        .into_iter()
        .find_map(|(id, draft)| (id == bare).then_some(draft))
        .ok_or_else(|| SchemaFault::new("/$schema", "unknown draft; use 2020-12, 2019-09, 7, 6 or 4"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, args: &str) -> bool {
        let schema = Schema::for_arguments(schema).unwrap();
        schema.mismatches(&Json::parse(args).unwrap().value(), false).is_empty()
    }

    #[test]
    fn unnamed_arguments_are_refused_unless_said() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert!(check(&schema, r#"{"a":"x"}"#));
        assert!(!check(&schema, r#"{"a":"x","b":1}"#));
        assert!(check(&json!({"type": "object", "additionalProperties": true}), r#"{"b":1}"#));
    }

    #[test]
    fn combinators_keep_their_branches_properties() {
        let pick = json!({"anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
        ]});
        assert!(check(&pick, r#"{"a":"x"}"#));
        assert!(!check(&pick, "{}"));
        assert!(!check(&pick, r#"{"a":"x","c":1}"#));
    }

    #[test]
    fn a_null_is_named_with_the_mend() {
        let schema = Schema::for_arguments(&json!({"properties": {"limit": {"type": "integer"}}})).unwrap();
        let found = schema.mismatches(&json!({"limit": null}), false);
        assert_eq!(describe(&found), "`/limit`: null not allowed, leave it out");
    }

    #[test]
    fn json_inside_a_string_is_named_with_the_mend() {
        let schema = Schema::for_arguments(&json!({"properties": {"tags": {"type": "array"}}})).unwrap();
        let found = |tags: &str, masked| describe(&schema.mismatches(&json!({ "tags": tags }), masked));
        let said = r#"`/tags`: "[1]" is not of type "array"; send JSON directly, not inside a string"#;
        assert_eq!(found("[1]", false), said);
        assert_eq!(found("one", false), r#"`/tags`: "one" is not of type "array""#);
        assert_eq!(found("[1]", true), r#"`/tags`: the value is not of type "array""#);
        // A long value does not push out what is wrong with it.
        assert_eq!(found(&"x".repeat(400), false), r#"`/tags`: the value is not of type "array""#);
    }

    #[test]
    fn remote_references_and_unknown_drafts_are_refused() {
        for schema in [
            json!({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}),
            json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
            json!({"$schema": "https://example.invalid/my-draft"}),
        ] {
            assert!(Schema::for_arguments(&schema).is_err(), "{schema}");
        }
    }
}
