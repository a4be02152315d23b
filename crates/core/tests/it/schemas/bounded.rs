//! Hostile schemas that are accepted, each with the data that costs it most: their checks are bounded. What is not here:
//! those that are refused.

use serde_json::{Map, Value, json};

use super::{Hostile, chain, fan, nested};

pub(super) fn bounded() -> Vec<Hostile> {
    let deep = chain("next", 60);
    let bad_end = (0..60).fold(json!({"v": "x"}), |inner, _| json!({"next": inner}));
    let long = "a".repeat(50_000);
    let many: Vec<Value> = (0..2_000).map(|n| json!({"n": n})).collect();
    vec![
        ("list by reference", json!({"type": "object", "properties": {"next": {"$ref": "#"}}}), deep.clone()),
        ("tree by rest", json!({"additionalProperties": {"$ref": "#"}}), deep.clone()),
        ("optional reference", optional("anyOf"), bad_end.clone()),
        ("optional reference, one of", optional("oneOf"), bad_end.clone()),
        ("recursion through not", json!({"not": {"properties": {"next": {"$ref": "#"}}}}), deep.clone()),
        ("one pattern for all", json!({"patternProperties": {"": {"$ref": "#"}}}), deep.clone()),
        ("nested anyOf", nested("anyOf", 23, json!({"type": "string"})), json!(1)),
        ("nested oneOf", nested("oneOf", 23, json!({"type": "string"})), json!(1)),
        ("nested allOf", nested("allOf", 23, json!({"type": "string"})), json!(1)),
        ("nested not", (0..23).fold(json!({"type": "string"}), |inner, _| json!({"not": inner})), json!(1)),
        (
            "nested if",
            (0..23).fold(json!({"type": "string"}), |inner, _| json!({"if": inner, "then": false})),
            json!(1),
        ),
        ("plain backtracking", json!({"pattern": "^(a+)+$"}), json!(format!("{long}!"))),
        (
            "many optionals",
            json!({"pattern": format!("^{}{}$", "a?".repeat(60), "a".repeat(60))}),
            json!("a".repeat(60)),
        ),
        ("unique items", json!({"uniqueItems": true}), json!(many)),
        ("unique nested items", json!({"uniqueItems": true}), json!(vec![deep.clone(); 500])),
        ("contains", json!({"contains": {"const": -1}}), json!(many)),
        ("many errors", json!({"items": {"type": "string"}}), json!(many)),
        (
            "wide unevaluated",
            json!({"allOf": (0..200).map(|n| json!({"properties": {format!("p{n}"): true}})).collect::<Vec<_>>(), "unevaluatedProperties": false}),
            wide(400),
        ),
        ("formats", every_format(), json!(long)),
        (
            "format e-mail of dots",
            json!({"format": "email"}),
            json!(format!("{}@{}", "a.".repeat(20_000), "a.".repeat(20_000))),
        ),
        ("format host of labels", json!({"format": "idn-hostname"}), json!("xn--a.".repeat(8_000))),
        ("format regex of groups", json!({"format": "regex"}), json!("(".repeat(40_000))),
        ("long string", json!({"maxLength": 3}), json!("ä".repeat(500_000))),
        ("small step", json!({"multipleOf": 1e-300}), json!(1e300)),
        ("large enum", json!({"enum": (0..3_000).collect::<Vec<u32>>()}), json!(many)),
        ("property names", json!({"propertyNames": {"pattern": "^(x+x+)+y$"}}), wide(2_000)),
        (
            "pattern and rest by reference",
            json!({"patternProperties": {"^x": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}),
            deep.clone(),
        ),
        ("names by reference", json!({"propertyNames": {"$ref": "#"}, "maxLength": 9}), wide(500)),
        ("alternatives with a shared start", json!({"pattern": "^(a|aa|aaa|aaaa)*$"}), json!(format!("{long}!"))),
        ("three stars", json!({"pattern": "^(((a*)*)*)*$"}), json!(format!("{long}!"))),
        ("dots without an anchor", json!({"pattern": ".*.*.*=.*"}), json!("a".repeat(5_000))),
        ("trailing space", json!({"pattern": "\\s+$"}), json!(format!("{}x", " ".repeat(10_000)))),
        (
            "an address pattern",
            json!({"pattern": "^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$"}),
            json!("a".repeat(20_000)),
        ),
        (
            "a long class",
            json!({"pattern": format!("^[{}]+$", (0..200).filter_map(|n| char::from_u32(0x4e00 + 2 * n)).collect::<String>())}),
            json!("一".repeat(10_000)),
        ),
        ("repetition of nothing", json!({"pattern": "^(?:(?:){0,9999}){0,9999}$"}), json!(long)),
        ("letters of all scripts, often", json!({"pattern": "^[\\p{L}\\p{N}_]{900}$"}), json!(long)),
        ("letters of all scripts", json!({"pattern": "^[\\p{L}\\p{M}]+$"}), json!("ä".repeat(10_000))),
        (
            "every word",
            json!({"pattern": (0..60).map(|n| format!("w{n}")).collect::<Vec<_>>().join("|")}),
            json!("w".repeat(20_000)),
        ),
        (
            "many groups",
            json!({"pattern": format!("{}a{}", "(".repeat(100), ")".repeat(100))}),
            json!("b".repeat(20_000)),
        ),
        ("patterns that overlap on every name", json!({"patternProperties": patterns(100)}), wide(100)),
        (
            "patterns on every item",
            json!({"items": {"allOf": (0..60).map(|n| json!({"pattern": format!("x{n}$")})).collect::<Vec<_>>()}}),
            json!(vec!["x"; 200]),
        ),
        ("fan within the bound", json!({"$ref": "#/$defs/d0", "$defs": fan("anyOf", 9, 2)}), json!(1)),
        (
            "cases that nearly all fail",
            json!({"oneOf": (0..400).map(|n| json!({"const": n})).collect::<Vec<_>>()}),
            json!(399),
        ),
        ("cases that all hold", json!({"oneOf": vec![json!({"type": "integer"}); 400]}), json!(1)),
        (
            "conditions one after another",
            json!({"allOf": (0..150).map(|n| json!({"if": {"required": [format!("p{n}")]}, "then": {"required": [format!("p{}", n + 1)]}})).collect::<Vec<_>>()}),
            wide(200),
        ),
        (
            "conditions in conditions",
            (0..20).fold(
                json!({"required": ["p0"]}),
                |inner, n| json!({"if": inner, "then": {"required": [format!("p{n}")]}, "else": {"minProperties": n}}),
            ),
            wide(50),
        ),
        (
            "dependent schemas in a row",
            json!({"dependentSchemas": (0..150).map(|n| (format!("p{n}"), json!({"required": [format!("p{}", n + 1)]}))).collect::<Map<_, _>>()}),
            wide(200),
        ),
        (
            "dependent names in a row",
            json!({"dependentRequired": (0..200).map(|n| (format!("p{n}"), json!([format!("p{}", n + 1)]))).collect::<Map<_, _>>()}),
            wide(300),
        ),
        (
            "unevaluated under cases",
            json!({"anyOf": (0..60).map(|n| json!({"properties": {format!("p{n}"): {"type": "integer"}}})).collect::<Vec<_>>(), "unevaluatedProperties": false}),
            wide(60),
        ),
        (
            "unevaluated in levels",
            (0..8).fold(
                json!({"properties": {"p0": true}}),
                |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
            ),
            wide(40),
        ),
        (
            "unevaluated items",
            json!({"contains": {"minimum": 5}, "prefixItems": [true], "unevaluatedItems": {"type": "string"}}),
            json!((0..500).collect::<Vec<u32>>()),
        ),
        (
            "contains between bounds",
            json!({"contains": {"type": "object"}, "minContains": 1_000_000, "maxContains": 4_000_000_000_u32}),
            json!(many),
        ),
        (
            "bounds beyond all numbers",
            json!({"minimum": -1e308, "maximum": 1e308, "exclusiveMaximum": 1e-308, "multipleOf": 5e-324}),
            json!(123_456_789.123),
        ),
        (
            "lengths beyond memory",
            json!({"minLength": 9_000_000_000_000_000_u64, "maxItems": 9_000_000_000_000_000_u64}),
            json!(long),
        ),
        (
            "unique long texts",
            json!({"uniqueItems": true}),
            json!((0..300).map(|n| format!("{}{n}", "a".repeat(200))).collect::<Vec<_>>()),
        ),
        (
            "unique numbers of both kinds",
            json!({"uniqueItems": true}),
            json!((0..1_000).flat_map(|n| [json!(n), json!(f64::from(n) + 0.5)]).collect::<Vec<_>>()),
        ),
        (
            "enum of objects",
            json!({"enum": (0..200).map(|n| json!({"k": {"k": [n, {"k": n}]}})).collect::<Vec<_>>()}),
            json!({"k": {"k": [200, {"k": 200}]}}),
        ),
        ("long constant object", json!({"const": wide(1_000)}), wide(1_000)),
        (
            "properties by the hundred",
            json!({"properties": (0..600).map(|n| (format!("p{n}"), json!({"type": "integer"}))).collect::<Map<_, _>>(), "additionalProperties": false}),
            wide(600),
        ),
        ("names that are wrong by the hundred", json!({"additionalProperties": false}), wide(2_000)),
        (
            "required by the hundred",
            json!({"required": (0..1_500).map(|n| format!("q{n}")).collect::<Vec<_>>()}),
            wide(500),
        ),
    ]
}

fn wide(count: usize) -> Value {
    Value::Object((0..count).map(|n| (format!("p{n}"), json!(n))).collect())
}

/// Patterns that all fit names such as `p17`.
fn patterns(count: usize) -> Value {
    Value::Object((0..count).map(|n| (format!("^p[0-9]{{0,{}}}", n + 1), json!({"minimum": 0}))).collect())
}

fn every_format() -> Value {
    let names = [
        "date-time",
        "uri",
        "email",
        "uuid",
        "regex",
        "hostname",
        "ipv6",
        "uri-template",
        "json-pointer",
        "duration",
        "idn-hostname",
        "iri",
    ];
    json!({"allOf": names.map(|format| json!({"format": format}))})
}

/// A list as generators write it: a node, or nothing.
fn optional(keyword: &str) -> Value {
    let next = json!({keyword: [{"$ref": "#/$defs/n"}, {"type": "null"}]});
    json!({
        "properties": {"first": next, "next": next},
        "$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": next}}}
    })
}
