//! Hostile schemas that are refused when they are registered. What is not here: those whose checks are bounded.

use serde_json::{Map, Value, json};

use super::{Hostile, chain, fan, nested};

pub(super) fn refused() -> Vec<Hostile> {
    let deep = chain("next", 60);
    let long = "a".repeat(50_000);
    vec![
        ("root refers to itself", json!({"$ref": "#"}), json!(1)),
        (
            "two that refer to each other",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!(1),
        ),
        ("dependent schema refers to the root", json!({"dependentSchemas": {"next": {"$ref": "#"}}}), deep.clone()),
        (
            "old dependencies refer to the root",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"next": {"$ref": "#"}}}),
            deep.clone(),
        ),
        (
            "every child twice",
            json!({"properties": {"next": {"$ref": "#"}}, "patternProperties": {"^n": {"$ref": "#"}}}),
            deep.clone(),
        ),
        (
            "overlapping patterns",
            json!({"patternProperties": {"^n": {"$ref": "#"}, "t$": {"$ref": "#"}}}),
            deep.clone(),
        ),
        (
            "items and contains",
            json!({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}),
            (0..60).fold(json!([]), |inner, _| json!([inner])),
        ),
        (
            "recursion through anyOf twice",
            json!({"anyOf": [{"properties": {"next": {"$ref": "#"}}}, {"properties": {"next": {"$ref": "#"}}, "required": ["x"]}]}),
            deep.clone(),
        ),
        (
            "a reference and a property of it",
            json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {
                "$ref": "#/$defs/n", "properties": {"next": {"$ref": "#/$defs/n"}}
            }}}}}),
            deep.clone(),
        ),
        ("optional reference to itself", json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}), json!(1)),
        (
            "recursion through if and then",
            json!({"properties": {"next": {"if": {"$ref": "#"}, "then": {"$ref": "#"}}}}),
            deep.clone(),
        ),
        (
            "an embedded resource",
            json!({"properties": {"a": {"$id": "http://x/", "$ref": "#/$defs/b", "$defs": {"b": {"$ref": "#"}}}}}),
            json!({"a": 1}),
        ),
        (
            "a hidden embedded resource",
            json!({"$ref": "#/$defs/a/$defs/b", "$defs": {"a": {"$id": "http://x/", "$defs": {"b": {"$ref": "#"}}}}}),
            json!({"a": 1}),
        ),
        ("dynamic reference", json!({"$dynamicRef": "#x", "$dynamicAnchor": "x"}), json!(1)),
        ("anchor", json!({"$ref": "#x", "$defs": {"x": {"$anchor": "x"}}}), json!(1)),
        ("remote", json!({"$ref": "http://127.0.0.1:9/x"}), json!(1)),
        ("remote meta-schema", json!({"$schema": "http://127.0.0.1:9/x"}), json!(1)),
        ("look-around", json!({"pattern": "^(?=(a+)+b)a*$"}), json!(long)),
        ("back reference", json!({"pattern": "(a*)\\1*b"}), json!(long)),
        ("large repetition", json!({"pattern": "^a{0,1000000}$"}), json!(long)),
        ("nested repetition", json!({"pattern": "^((a{0,99}){0,99}){0,99}$"}), json!(long)),
        ("long pattern", json!({"pattern": "a".repeat(300)}), json!(long)),
        ("pattern key", json!({"patternProperties": {"^(a{0,999}){0,999}$": true}}), json!({"a": 1})),
        ("deep", nested("allOf", 40, json!({"type": "string"})), json!(1)),
        ("large", json!({"enum": (0..9_000).collect::<Vec<u32>>()}), json!(1)),
        ("doubling references", doubling(12), json!("x")),
        ("a circle through not", circle(|next| json!({"not": next})), json!(1)),
        ("a circle through if", circle(|next| json!({"if": next, "then": false})), json!(1)),
        ("a circle through one of", circle(|next| json!({"oneOf": [next]})), json!(1)),
        (
            "recursion through one of twice",
            json!({"oneOf": [{"additionalProperties": {"$ref": "#"}}, {"properties": {"next": {"$ref": "#"}}}]}),
            deep.clone(),
        ),
        (
            "recursion through then and else",
            json!({
                "if": {"required": ["x"]},
                "then": {"properties": {"next": {"$ref": "#"}}}, "else": {"properties": {"next": {"$ref": "#"}}}
            }),
            deep.clone(),
        ),
        (
            "recursion through a condition and its child",
            json!({"if": {"properties": {"next": {"$ref": "#"}}}, "additionalProperties": {"$ref": "#"}}),
            deep.clone(),
        ),
        (
            "recursion through two dependent schemas",
            json!({"dependentSchemas": {
                "next": {"properties": {"next": {"$ref": "#"}}}, "other": {"additionalProperties": {"$ref": "#"}}
            }}),
            deep.clone(),
        ),
        (
            "recursion through what was not evaluated",
            json!({"allOf": [{"properties": {"next": {"$ref": "#"}}}], "unevaluatedProperties": {"$ref": "#"}}),
            deep.clone(),
        ),
        (
            "recursion through a reference beside items",
            json!({"$ref": "#/$defs/l", "$defs": {"l": {"items": {"$ref": "#/$defs/l"}, "allOf": [{"items": {"$ref": "#/$defs/l"}}]}}}),
            (0..60).fold(json!([]), |inner, _| json!([inner])),
        ),
        (
            "two lists that hold each other twice",
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"items": {"$ref": "#/$defs/b"}, "contains": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}
            }}),
            (0..60).fold(json!([]), |inner, _| json!([inner])),
        ),
        ("old recursive reference", json!({"$recursiveAnchor": true, "items": {"$recursiveRef": "#"}}), json!([[[]]])),
        ("a hidden dynamic anchor", json!({"items": {"$dynamicAnchor": "x", "type": "array"}}), json!([[]])),
        ("a file", json!({"$ref": "file:///etc/passwd"}), json!(1)),
        ("a neighbour", json!({"$ref": "../other.json#/a"}), json!(1)),
        ("a name", json!({"$ref": "urn:example:x"}), json!(1)),
        ("a reference to nothing", json!({"$ref": "#/$defs/none"}), json!(1)),
        ("references in width", json!({"$ref": "#/$defs/d0", "$defs": fan("allOf", 3, 50)}), json!("x")),
        ("references in cases", json!({"$ref": "#/$defs/d0", "$defs": fan("oneOf", 11, 2)}), json!("x")),
        ("references in places", json!({"$ref": "#/$defs/d0", "$defs": fan("prefixItems", 4, 8)}), json!([[["x"]]])),
        ("more cases than a schema may have", json!({"anyOf": vec![json!({}); 2_100]}), json!(1)),
        ("conditions in a row", json!({"allOf": vec![json!({"if": {}, "then": {}}); 700]}), json!(1)),
        ("deep properties", (0..40).fold(json!({}), |inner, _| json!({"properties": {"next": inner}})), deep.clone()),
        ("deep rest", (0..40).fold(json!({}), |inner, _| json!({"additionalProperties": inner})), deep.clone()),
        ("deep conditions", (0..40).fold(json!({}), |inner, _| json!({"if": true, "then": inner})), json!(1)),
        ("long description", json!({"description": "x".repeat(40_000)}), json!(1)),
        ("long constant", json!({"const": "x".repeat(40_000)}), json!(long)),
        ("many names", json!({"required": (0..4_000).map(|n| format!("name{n}")).collect::<Vec<_>>()}), json!({})),
        ("either case, often", json!({"pattern": "(?i)^(?:\\p{Lu}|\\p{Ll}|\\d){0,700}$"}), json!(long)),
        ("a named group twice", json!({"pattern": "(?<a>x)(?<a>y)"}), json!(long)),
        ("atomic group", json!({"pattern": "^(?>a+)+$"}), json!(long)),
        ("look behind", json!({"pattern": "(?<=a{1,200})b"}), json!(long)),
        (
            "more groups than the engine nests",
            json!({"pattern": format!("{}a{}", "(".repeat(127), ")".repeat(100))}),
            json!(long),
        ),
        ("unknown draft", json!({"$schema": "https://json-schema.org/draft/2099-01/schema"}), json!(1)),
    ]
}

/// Each level refers twice to the next: 2^levels subschemas once the references are followed.
fn doubling(levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"anyOf": [next.clone(), next]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// Three definitions of which each needs the next about the same value.
fn circle(link: impl Fn(Value) -> Value) -> Value {
    let next = |name: &str| link(json!({"$ref": format!("#/$defs/{name}")}));
    json!({"$ref": "#/$defs/a", "$defs": {"a": next("b"), "b": next("c"), "c": next("a")}})
}
