//! Reads the arguments of one native call, in every form providers send them. What is not here: schema checks (the
//! core's); nothing is ever repaired, and text that cannot be read never becomes `{}`.

use serde_json::Value;
use toolgate_core::json::{Json, read_strict};
use toolgate_core::proposal::{MalformedReason, ProposedArgs};

use crate::quote;

/// The arguments and their text as sent. `schema` is the tool's, if the tool is one that was offered.
pub(crate) fn read(sent: Option<&Value>, schema: Option<&Json>, notes: &mut Vec<String>) -> (ProposedArgs, String) {
    match sent {
        None => (absent("args_missing", schema, notes), String::new()),
        Some(Value::Null) => (absent("args_null", schema, notes), "null".to_owned()),
        Some(Value::String(text)) => (from_text(text, schema, notes), text.clone()),
        Some(object @ Value::Object(_)) => {
            notes.push("args_object".to_owned());
            let args = Json::from_value(object);
            let raw = args.as_str().to_owned();
            (ProposedArgs::Readable(args), raw)
        }
        Some(other) => (not_an_object(other), other.to_string()),
    }
}

fn from_text(text: &str, schema: Option<&Json>, notes: &mut Vec<String>) -> ProposedArgs {
    if text.trim().is_empty() {
        return absent("args_empty", schema, notes);
    }
    match read_strict(text) {
        Ok(object @ Value::Object(_)) => ProposedArgs::Readable(Json::from_value(&object)),
        Ok(Value::Null) => absent("args_null", schema, notes),
        Ok(Value::String(inner)) => match read_strict(&inner) {
            // One layer of double encoding is peeled, and only where an object comes out.
            Ok(object @ Value::Object(_)) => {
                notes.push("args_double_encoded".to_owned());
                ProposedArgs::Readable(Json::from_value(&object))
            }
            Ok(_) | Err(_) => not_an_object(&Value::String(inner)),
        },
        Ok(other) => not_an_object(&other),
        Err(fault) => ProposedArgs::Malformed {
            reason: quote::reason_of(fault.kind),
            detail: quote::fault_sentence("the arguments cannot be read", &fault, text),
        },
    }
}

fn not_an_object(value: &Value) -> ProposedArgs {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let shown = quote::clip(&value.to_string(), 100);
    let detail = format!("the arguments must be one JSON object, not {kind}: `{shown}`");
    ProposedArgs::Malformed { reason: MalformedReason::NotAnObject, detail: quote::detail(&detail) }
}

/// No arguments count as `{}` only for a tool that can be called without any: elsewhere they are a lost answer.
fn absent(note: &str, schema: Option<&Json>, notes: &mut Vec<String>) -> ProposedArgs {
    // A tool that was not offered is refused as unknown anyway, and that is the more useful reason.
    if schema.is_none_or(|schema| accepts_nothing(&schema.value())) {
        notes.push(note.to_owned());
        return ProposedArgs::Readable(Json::empty_object());
    }
    let detail = "the arguments are missing, and this tool needs some: send them as one JSON object";
    ProposedArgs::Malformed { reason: MalformedReason::MissingArguments, detail: detail.to_owned() }
}

/// Whether a schema plainly accepts `{}`. In doubt, no.
fn accepts_nothing(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return schema == &Value::Bool(true) };
    let requires = schema.get("required").is_some_and(|r| r.as_array().is_none_or(|names| !names.is_empty()));
    let minimum = schema.get("minProperties").is_some_and(|n| n.as_u64() != Some(0));
    let combined =
        ["allOf", "anyOf", "oneOf", "not", "if", "$ref", "const", "enum"].iter().any(|key| schema.contains_key(*key));
    !requires && !minimum && !combined
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(sent: Option<Value>, schema: &Value) -> (Result<String, MalformedReason>, Vec<String>) {
        let mut notes = Vec::new();
        let (args, _) = read(sent.as_ref(), Some(&Json::from_value(schema)), &mut notes);
        let args = match args {
            ProposedArgs::Readable(json) => Ok(json.as_str().to_owned()),
            ProposedArgs::Malformed { reason, .. } => Err(reason),
        };
        (args, notes)
    }

    #[test]
    fn absent_arguments_are_empty_only_where_the_tool_needs_none() {
        let free = json!({"type": "object", "properties": {"a": {}}});
        let bound = json!({"type": "object", "properties": {"a": {}}, "required": ["a"]});
        for sent in [None, Some(json!(null)), Some(json!("")), Some(json!(" \n")), Some(json!("null"))] {
            let (args, notes) = of(sent.clone(), &free);
            assert_eq!((args, notes.len()), (Ok("{}".to_owned()), 1), "{sent:?}");
            assert_eq!(of(sent, &bound), (Err(MalformedReason::MissingArguments), vec![]));
        }
        for schema in
            [json!({"anyOf": [{"required": ["a"]}]}), json!({"minProperties": 1}), json!({"$ref": "#/$defs/a"})]
        {
            assert_eq!(of(None, &schema).0, Err(MalformedReason::MissingArguments), "{schema}");
        }
    }

    #[test]
    fn one_layer_is_peeled_and_no_more() {
        let any = json!({});
        assert_eq!(
            of(Some(json!("\"{\\\"a\\\":1}\"")), &any),
            (Ok("{\"a\":1}".to_owned()), vec!["args_double_encoded".to_owned()])
        );
        let twice = json!(json!(json!("{\"a\":1}").to_string()).to_string());
        assert_eq!(of(Some(twice), &any).0, Err(MalformedReason::NotAnObject));
        for sent in [json!("[1]"), json!("\"text\""), json!("1"), json!([1]), json!(true)] {
            assert_eq!(of(Some(sent), &any).0, Err(MalformedReason::NotAnObject));
        }
    }

    #[test]
    fn inner_strings_that_look_like_json_stay_strings() {
        let (args, notes) = of(Some(json!({"tags": "[\"red\"]", "n": "42"})), &json!({}));
        assert_eq!(
            (args, notes),
            (Ok("{\"n\":\"42\",\"tags\":\"[\\\"red\\\"]\"}".to_owned()), vec!["args_object".to_owned()])
        );
    }
}
