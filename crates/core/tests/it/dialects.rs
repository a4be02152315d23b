//! How schemas are shown to the models of each provider, and what of the field cases is about it: what is validated never
//! changes.

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::bundle::dialect::{is_strict, shown};
use toolgate_core::bundle::model::Provider;
use toolgate_core::id::ToolId;
use toolgate_core::json::Json;
use toolgate_core::schema::Schema;

use crate::field_cases::{case, schemas};
use crate::script::merge;
use crate::written::whole;

const REAL: [Provider; 3] = [Provider::Openai, Provider::OpenaiResponses, Provider::Anthropic];

/// The schema as it is registered, and as a provider's models are shown it.
fn both(provider: Provider, schema: &Value) -> (Schema, Value, Vec<String>) {
    let registered = Schema::for_arguments(schema).unwrap();
    let shown = shown(provider, &registered.shown().value());
    (registered, shown.schema, shown.changes.into_iter().map(|change| change.pointer).collect())
}

fn matches(schema: &Value, args: &str) -> bool {
    Schema::compile(schema).unwrap().mismatches(&Json::parse(args).unwrap().value(), false).is_empty()
}

#[test]
fn fc_b02_combinators_at_the_top_are_shown_as_a_plain_object() {
    let case = case("FC-B02");
    let schemas = schemas(&case);
    for provider in REAL {
        let (registered, pick, changes) = both(provider, &schemas["pick"]);
        assert_eq!(changes, ["/anyOf"]);
        assert_eq!(pick["type"], "object");
        assert!(pick.get("anyOf").is_none() && pick["description"].as_str().unwrap().contains("\"anyOf\""));
        assert!(pick["properties"]["a"].is_object() && pick["properties"]["b"].is_object());
        assert!(pick.get("required").is_none());
        // Weaker than the check, never stronger.
        for (args, valid) in [("{\"a\":\"x\"}", true), ("{\"b\":\"x\"}", true), ("{}", false)] {
            let value = Json::parse(args).unwrap().value();
            assert_eq!(registered.mismatches(&value, false).is_empty(), valid, "{args}");
            assert!(!valid || matches(&pick, args), "{args}");
        }
        let (_, cond, changes) = both(provider, &schemas["cond"]);
        assert_eq!(changes, ["/allOf"]);
        assert!(cond["properties"]["mode"].is_object() && matches(&cond, "{\"mode\":\"x\",\"note\":\"n\"}"));
    }
    let plain = shown(Provider::Scripted, &schemas["pick"]);
    assert_eq!((&plain.schema, plain.changes.len()), (&schemas["pick"], 0));
}

#[test]
fn branches_are_shown_together() {
    let schema = json!({
        "$ref": "#/$defs/base",
        "$defs": {"base": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
            {"properties": {"kind": {"const": "b"}, "y": {"type": "number"}}, "required": ["kind"]},
        ],
    });
    let (registered, shown, changes) = both(Provider::Openai, &schema);
    assert_eq!(changes, ["/$ref", "/oneOf"]);
    assert_eq!(shown["required"], json!(["id", "kind"]));
    assert_eq!(shown["properties"]["kind"], json!({"anyOf": [{"const": "a"}, {"const": "b"}]}));
    assert_eq!(shown["properties"]["id"], json!({"type": "integer"}));
    for (args, valid) in [
        ("{\"id\":1,\"kind\":\"a\",\"x\":\"s\"}", true),
        ("{\"id\":1,\"kind\":\"b\",\"y\":2}", true),
        ("{\"id\":1,\"kind\":\"b\",\"x\":5}", false),
        ("{\"kind\":\"b\"}", false),
    ] {
        let value = Json::parse(args).unwrap().value();
        assert_eq!(registered.mismatches(&value, false).is_empty(), valid, "{args}");
        assert!(!valid || matches(&shown, args), "{args} is valid and not shown so: {shown}");
    }
}

#[test]
fn fc_b05_tuples_of_older_drafts_are_shown_in_the_new_words() {
    let case = case("FC-B05");
    let schemas = schemas(&case);
    let (_, shown, changes) = both(Provider::Anthropic, &schemas["t07"]);
    assert_eq!(changes, ["/properties/range/items"]);
    assert!(shown.get("$schema").is_none());
    assert!(matches(&shown, "{\"range\":[1,2]}") && !matches(&shown, "{\"range\":[1,\"2\"]}"));
    assert_eq!(both(Provider::Anthropic, &schemas["t2020"]).2, Vec::<String>::new());
}

#[test]
fn fc_b06_names_are_taken_or_refused_by_their_form() {
    let case = case("FC-B06");
    let mut taken = Vec::new();
    for tool in case["given"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let times = tool.pointer("/name_expr/$repeat/times").and_then(Value::as_u64).unwrap_or(1);
        let name = name.repeat(usize::try_from(times).unwrap());
        match ToolId::new(name.as_str()) {
            Ok(id) => taken.push(id.to_string()),
            Err(refused) => assert!(refused.to_string().contains("a-z"), "{refused}"),
        }
    }
    // Upper case, spaces, 65 characters and nothing at all are refused, so that no two names differ in case alone. The names
    // on the wire are one to one (`proposers/names`).
    assert_eq!(taken, ["catalog.get", "catalog_get", "get_time"]);
}

#[test]
fn fc_b07_strict_is_said_only_where_it_is_true() {
    let case = case("FC-B07");
    for (name, schema) in schemas(&case) {
        let shown = Schema::for_arguments(&schema).unwrap().shown().value();
        assert_eq!(json!(is_strict(&shown)), case["expect"]["rendered_strict"][&name], "{name}");
    }
    for check in case["expect"]["our_check_unchanged"].as_array().unwrap() {
        let schema = &schemas(&case)[check["tool"].as_str().unwrap()];
        let value = Json::parse(check["args_raw"].as_str().unwrap()).unwrap().value();
        let found = Schema::for_arguments(schema).unwrap().mismatches(&value, false);
        assert_eq!(json!(found.is_empty()), check["valid"]);
    }
    let closed = |inner: Value| json!({"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false});
    assert!(is_strict(&closed(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}))));
    for inner in
        [json!({}), json!({"type": "string", "minLength": 1}), json!({"oneOf": [{"type": "string"}]}), json!(true)]
    {
        assert!(!is_strict(&closed(inner.clone())), "{inner}");
    }
}

#[test]
fn fc_b11_property_names_that_are_refused_are_told_in_words() {
    let case = case("FC-B11");
    let (registered, shown, changes) = both(Provider::Anthropic, &schemas(&case)[""]);
    let odd = [
        "/properties/",
        "/properties/$ref",
        "/properties/Account Number",
        "/properties/filter[id]",
        "/properties/x~1y~0z",
    ];
    assert_eq!(changes, odd);
    assert!(shown["description"].as_str().unwrap().contains("\"filter[id]\": {\"type\":\"string\"}"), "{shown}");
    for args in ["{\"filter[id]\":\"7\"}", "{\"a.b\":\"s\",\"a\":{\"b\":1}}"] {
        assert!(registered.mismatches(&Json::parse(args).unwrap().value(), false).is_empty() && matches(&shown, args));
    }
    assert_eq!(both(Provider::Openai, &schemas(&case)[""]).2, Vec::<String>::new());
    let nested = json!({"properties": {"o": {"type": "object", "additionalProperties": false, "required": ["a b", "c"],
        "properties": {"a b": {"type": "string"}, "c": {"type": "string"}}}}});
    let (_, shown, changes) = both(Provider::Anthropic, &nested);
    assert_eq!(changes, ["/properties/o/properties/a b"]);
    assert_eq!(shown["properties"]["o"]["required"], json!(["c"]));
    assert!(matches(&shown, "{\"o\":{\"a b\":\"x\",\"c\":\"y\"}}"));
}

/// The faults of a bundle with these tools, all of them in one profile.
fn offering(tools: usize, parameters: &Value, window: u64) -> Result<Bundle, String> {
    let mut form = whole();
    let spare = json!({"description": "x", "venue": "client", "parameters": parameters});
    let names: Vec<String> = (0..tools).map(|n| format!("x{n}")).collect();
    for name in &names {
        form["tools"][name] = spare.clone();
    }
    let harness = json!({"max_steps": 1, "max_tool_calls": 1, "deadline_ms": 1000});
    form["profiles"]["many"] = json!({"tools": names, "model": "real", "harness": harness});
    merge(
        &mut form,
        &json!({"models": {"scripted": {"max_input_tokens": window}, "real": {"max_input_tokens": window}}}),
    );
    Bundle::load(&form.to_string()).map_err(|faults| {
        faults.iter().map(|fault| format!("{} {} {}\n", fault.path, fault.rule, fault.detail)).collect()
    })
}

#[test]
fn fc_b12_every_tool_is_offered_or_the_bundle_is_refused() {
    let case = case("FC-B12");
    let number = |key: &str| usize::try_from(case["given"]["generate"][key].as_u64().unwrap()).unwrap();
    let (tools, each) = (number("tools"), number("properties_each"));
    let properties: serde_json::Map<String, Value> =
        (0..each).map(|n| (format!("property_{n}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties});
    let window = case["given"]["context_limit_tokens"].as_u64().unwrap();
    let refused = offering(tools, &schema, window).unwrap_err();
    assert!(refused.contains("/profiles/many/tools tools_fit") && refused.contains("reads at most 8000"), "{refused}");
    assert!(offering(3, &schema, window).is_ok(), "{}", offering(3, &schema, window).unwrap_err());
    let long = json!({"type": "object", "properties": {"p": {"type": "string", "description": "x".repeat(20_000)}}});
    let refused = offering(100, &long, 1_000_000).unwrap_err();
    assert!(refused.contains("tools_size") && refused.contains("at most 1048576"), "{refused}");
    let values: Vec<String> = (0..number("plus_one_tool_with_enum_values")).map(|n| format!("value-{n}")).collect();
    let refused =
        offering(1, &json!({"type": "object", "properties": {"v": {"enum": values}}}), 1_000_000).unwrap_err();
    assert!(refused.contains("a schema has at most 32768"), "{refused}");
    assert!(offering(513, &json!({}), 1_000_000).unwrap_err().contains("at most 512"));
}

#[test]
fn the_owner_is_told_what_is_shown_otherwise() {
    let mut form = whole();
    let parameters = json!({"type": "object", "anyOf": [{"properties": {"path": {"type": "string"}}}]});
    form["tools"]["odd"] = json!({"description": "x", "venue": "client", "parameters": parameters});
    form["models"]["native"] = json!({"provider": "anthropic", "base_url": "https://m.example.com/v1", "model": "m", "max_output_tokens": 9, "prices": {}});
    let harness = json!({"max_steps": 1, "max_tool_calls": 1, "deadline_ms": 1000});
    let many: Vec<String> = (0..129).map(|n| format!("x{n}")).collect();
    for name in &many {
        form["tools"][name] = json!({"description": "x", "venue": "client", "parameters": {}});
    }
    form["profiles"]["odd"] = json!({"tools": ["odd"], "model": "native", "harness": harness});
    form["profiles"]["many"] = json!({"tools": many, "model": "native", "harness": harness});
    let bundle = Bundle::load(&form.to_string()).unwrap();
    let found: Vec<(String, &str)> = bundle.lint().into_iter().map(|finding| (finding.path, finding.rule)).collect();
    assert!(found.contains(&("/tools/odd/parameters/anyOf".to_owned(), "shown_otherwise")), "{found:?}");
    assert!(found.contains(&("/profiles/many/tools".to_owned(), "many_tools")), "{found:?}");
}
