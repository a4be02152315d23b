//! The built-in tools: pure functions of their arguments, for demos, tests and first steps. What is not here: anything
//! that reads files, the network or the clock.

use serde_json::{Value, json};
use toolgate_core::json::Json;
use toolgate_core::output::OutcomeStatus;

use super::{RawOutcome, RawOutput};

/// What `lookup` knows.
const ENTRIES: [(&str, &str); 6] = [
    ("france", "Paris"),
    ("germany", "Berlin"),
    ("italy", "Rome"),
    ("japan", "Tokyo"),
    ("kenya", "Nairobi"),
    ("peru", "Lima"),
];

/// Runs a built-in on canonical arguments; `cap` is the most bytes that are kept.
///
/// - `echo` returns its arguments.
/// - `add` takes numbers `a` and `b`; whole numbers are added exactly.
/// - `lookup` takes a `key` (a country, without regard to case) and returns its capital.
/// - `word_count` takes a `text`.
/// - `fail` always fails, with `message` if given.
#[must_use]
pub fn run(name: &str, args: &Json, cap: u64) -> RawOutcome {
    let answer = match name {
        "echo" => Ok(args.clone()),
        "add" => add(&args.value()),
        "lookup" => lookup(&args.value()),
        "word_count" => word_count(&args.value()),
        "fail" => Err(text(&args.value(), "message").unwrap_or("told to fail").to_owned()),
        _ => Err(format!("no built-in tool `{name}`")),
    };
    match answer {
        Ok(json) => RawOutcome::ok(RawOutput::capped("application/json", json.as_str().as_bytes().to_vec(), cap)),
        Err(why) => RawOutcome::bare(OutcomeStatus::Failed, &why),
    }
}

fn text<'a>(args: &'a Value, field: &str) -> Option<&'a str> {
    args.get(field).and_then(Value::as_str)
}

fn add(args: &Value) -> Result<Json, String> {
    let (Some(a), Some(b)) = (args.get("a"), args.get("b")) else { return Err("needs `a` and `b`".to_owned()) };
    let exact = |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    if let (Some(a), Some(b)) = (exact(a), exact(b)) {
        let sum = a + b;
        let whole = i64::try_from(sum).map(Value::from).or_else(|_| u64::try_from(sum).map(Value::from));
        return whole
            .map(|sum| Json::from_value(&json!({ "sum": sum })))
            .map_err(|_| "the sum needs more than 64 bits".to_owned());
    }
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return Err("`a` and `b` must be numbers".to_owned()) };
    let sum = a + b;
    if sum.is_finite() { Ok(Json::from_value(&json!({ "sum": sum }))) } else { Err("the sum is not finite".to_owned()) }
}

fn lookup(args: &Value) -> Result<Json, String> {
    let key = text(args, "key").ok_or("needs a text `key`")?;
    let found = ENTRIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
    found.map_or_else(
        || Err(format!("no entry `{}`", key.chars().take(80).collect::<String>())),
        |(_, value)| Ok(Json::from_value(&json!({ "key": key, "value": value }))),
    )
}

fn word_count(args: &Value) -> Result<Json, String> {
    let text = text(args, "text").ok_or("needs a `text`")?;
    Ok(Json::from_value(&json!({ "words": text.split_whitespace().count() })))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use toolgate_core::bundle::BUILTINS;

    use super::*;

    fn answer(name: &str, args: &str) -> Result<String, String> {
        let outcome = run(name, &Json::parse(args).unwrap(), 1_000);
        match outcome.output {
            Some(output) => {
                assert_eq!((outcome.status, output.media_type.as_str()), (OutcomeStatus::Ok, "application/json"));
                Ok(String::from_utf8(output.bytes).unwrap())
            }
            None => {
                assert_eq!(outcome.status, OutcomeStatus::Failed);
                Err(outcome.detail.unwrap())
            }
        }
    }

    #[test]
    fn every_builtin_that_a_bundle_may_name_exists() {
        for name in BUILTINS {
            assert_ne!(answer(name, "{}"), Err(format!("no built-in tool `{name}`")));
        }
        assert!(answer("nonsense", "{}").is_err());
    }

    #[test]
    fn answers() {
        assert_eq!(
            answer("echo", r#"{"b":[1.0],"a":18446744073709551615}"#).unwrap(),
            r#"{"a":18446744073709551615,"b":[1]}"#
        );
        assert_eq!(answer("add", r#"{"a":9223372036854775807,"b":1}"#).unwrap(), r#"{"sum":9223372036854775808}"#);
        assert_eq!(answer("add", r#"{"a":0.5,"b":1}"#).unwrap(), r#"{"sum":1.5}"#);
        assert!(answer("add", r#"{"a":18446744073709551615,"b":1}"#).is_err());
        assert!(answer("add", r#"{"a":1e308,"b":1e308}"#).is_err());
        assert!(answer("add", r#"{"a":"1","b":1}"#).is_err());
        assert_eq!(answer("lookup", r#"{"key":"France"}"#).unwrap(), r#"{"key":"France","value":"Paris"}"#);
        assert_eq!(answer("lookup", r#"{"key":"Atlantis"}"#), Err("no entry `Atlantis`".to_owned()));
        assert_eq!(answer("word_count", r#"{"text":" two  words\n"}"#).unwrap(), r#"{"words":2}"#);
        assert_eq!(answer("fail", r#"{"message":"broken"}"#), Err("broken".to_owned()));
    }

    #[test]
    fn long_output_is_cut_and_says_so() {
        let output = run("echo", &Json::parse(r#"{"text":"0123456789"}"#).unwrap(), 8).output.unwrap();
        assert_eq!((output.bytes.as_slice(), output.truncated_from), (br#"{"text":"#.as_slice(), Some(21)));
    }
}
