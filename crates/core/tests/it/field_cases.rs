//! Failures that people reported in public, as far as they are decided at the schema: the files stand in
//! `tests/field-cases`, and what they expect is read from them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolgate_core::json::Json;
use toolgate_core::schema::{Schema, describe};

pub(crate) fn case(name: &str) -> Value {
    let path = format!("{}/../../tests/field-cases/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(case["case"], name);
    case
}

/// The schemas of a case by tool; a case with one schema has a tool without a name.
pub(crate) fn schemas(case: &Value) -> BTreeMap<String, Value> {
    match case["given"]["tools"].as_array() {
        None => BTreeMap::from([(String::new(), case["given"]["schema"].clone())]),
        Some(tools) => {
            tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["schema"].clone())).collect()
        }
    }
}

/// Runs the checks of a case: every one by the arguments as a model wrote them. Gives how many there were.
fn run_checks(name: &str) -> usize {
    let case = case(name);
    let compiled: BTreeMap<String, Schema> = schemas(&case)
        .into_iter()
        .filter_map(|(tool, schema)| Some((tool, Schema::for_arguments(&schema).ok()?)))
        .collect();
    let checks = case["expect"]["checks"].as_array().unwrap();
    for check in checks {
        let schema = &compiled[check["tool"].as_str().unwrap_or_default()];
        let raw = check["args_raw"].as_str().unwrap();
        let args = Json::parse(raw).unwrap();
        let found = schema.mismatches(&args.value(), false);
        assert_eq!(found.is_empty(), check["valid"] == true, "{name} {raw}: {}", describe(&found));
        if let Some(canonical) = check["canonical_form"].as_str() {
            assert_eq!(args.as_str(), canonical, "{name} {raw}");
        }
    }
    checks.len()
}

#[test]
fn fc_b01_recursive_references_are_checked_at_every_depth() {
    assert_eq!(run_checks("FC-B01"), 3);
    let schema = Schema::for_arguments(&schemas(&case("FC-B01"))[""]).unwrap();
    let shown = schema.shown().value();
    assert!(shown.pointer("/$defs/Order").is_some(), "the model is shown what its references point at");
}

#[test]
fn fc_b02_combinators_are_enforced() {
    assert_eq!(run_checks("FC-B02"), 3);
}

#[test]
fn fc_b03_null_is_refused_with_the_mend_and_kept_where_allowed() {
    let case = case("FC-B03");
    let raw = case.pointer("/given/responses/0/choices/0/message/tool_calls/0/function/arguments").unwrap();
    let args = Json::parse(raw.as_str().unwrap()).unwrap();
    let parameters =
        json!({"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["query"]});
    let found = Schema::for_arguments(&parameters).unwrap().mismatches(&args.value(), false);
    for mention in case["expect"]["strict_mode"]["feedback_mentions"].as_array().unwrap() {
        let (field, mend) = mention.as_str().unwrap().split_once(": ").unwrap();
        assert_eq!(describe(&found), format!("`/{field}`: {mend}"));
    }
    let nullable = json!({"properties": {"query": {"type": "string"}, "limit": {"type": ["integer", "null"]}}});
    assert!(Schema::for_arguments(&nullable).unwrap().mismatches(&args.value(), false).is_empty());
    assert_eq!(args.as_str(), "{\"limit\":null,\"query\":\"x\"}", "a null is not dropped");
}

#[test]
fn fc_b04_numbers_have_one_form_and_text_is_no_number() {
    assert_eq!(run_checks("FC-B04"), 7);
}

#[test]
fn fc_b05_drafts_are_kept_apart() {
    assert_eq!(run_checks("FC-B05"), 4);
    let case = case("FC-B05");
    for (tool, schema) in schemas(&case) {
        let expected = case["expect"]["registration"][&tool].as_str().unwrap();
        let compiled = Schema::for_arguments(&schema);
        assert_eq!(compiled.is_ok(), expected.starts_with("accepted"), "{tool}: {expected}");
    }
}

#[test]
fn fc_b08_formats_are_checked_and_unknown_ones_pass() {
    assert_eq!(run_checks("FC-B08"), 5);
}

#[test]
fn fc_b09_patterns_cost_bounded_time() {
    let case = case("FC-B09");
    let limit = Duration::from_millis(case["expect"]["time_limit_ms"].as_u64().unwrap());
    let repeat = &case["given"]["args"]["s"]["$repeat"];
    let text = repeat["text"].as_str().unwrap().repeat(usize::try_from(repeat["times"].as_u64().unwrap()).unwrap());
    let args = json!({"s": format!("{text}{}", case["given"]["args"]["s"]["then"].as_str().unwrap())});
    for (tool, schema) in schemas(&case) {
        let started = Instant::now();
        let compiled = Schema::for_arguments(&schema);
        let invalid = compiled.as_ref().is_ok_and(|schema| !schema.mismatches(&args, false).is_empty());
        assert!(compiled.is_err() || invalid, "{tool}: refused, or the check ends as invalid");
        assert!(tool != "bad_escape" || compiled.is_err(), "a pattern that is none is refused");
        assert!(started.elapsed() < limit, "{tool}: {:?}", started.elapsed());
    }
}

#[test]
fn fc_b10_pattern_properties_are_checked() {
    assert_eq!(run_checks("FC-B10"), 4);
}

#[test]
fn fc_b11_odd_names_are_addressed_by_pointer() {
    assert_eq!(run_checks("FC-B11"), 3);
    let schema = Schema::for_arguments(&schemas(&case("FC-B11"))[""]).unwrap();
    let found = schema.mismatches(&json!({"x/y~z": 1, "": 2, "a.b": 3}), false);
    let mut pointers: Vec<&str> = found.iter().map(|mismatch| mismatch.pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["/", "/a.b", "/x~1y~0z"]);
}
