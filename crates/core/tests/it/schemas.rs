//! Schemas as attackers write them: each is refused when it is registered, or checks the worst data in bounded time.
//! What is not here: what schemas mean (`field_cases`, and the units in `schema`).

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use toolgate_core::schema::Schema;

/// Time for one check, on a busy machine, without optimisation.
const BOUND: Duration = Duration::from_millis(50);

/// How a hostile schema fares.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Refused,
    Bounded,
}

fn fate(name: &str, schema: &Value, data: &Value) -> Fate {
    let (compiled, compiling) = within_bound(|| Schema::compile(schema));
    let Ok(compiled) = compiled else {
        assert!(compiling < BOUND, "{name}: refused after {compiling:?}");
        return Fate::Refused;
    };
    let (_, checking) = within_bound(|| compiled.mismatches(data, false));
    println!("{name}: compiled in {compiling:?}, checked in {checking:?}");
    assert!(compiling < BOUND && checking < BOUND, "{name}: compiled in {compiling:?}, checked in {checking:?}");
    Fate::Bounded
}

/// Does it and takes the time, some times more when other processes were in the way: what is unbounded stays too slow.
fn within_bound<T>(work: impl Fn() -> T) -> (T, Duration) {
    let timed = || {
        let started = Instant::now();
        let done = work();
        (done, started.elapsed())
    };
    let mut last = timed();
    for _ in 0..20 {
        if last.1 < BOUND {
            break;
        }
        last = timed();
    }
    last
}

/// `{"next":{"next":…}}`, as deep as arguments may be.
fn chain(key: &str, depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({ key: inner }))
}

fn nested(keyword: &str, depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({ keyword: [inner] }))
}

#[test]
fn hostile_schemas_are_refused_or_bounded() {
    let deep = chain("next", 60);
    let bad_end = (0..60).fold(json!({"v": "x"}), |inner, _| json!({"next": inner}));
    let long = "a".repeat(50_000);
    let many: Vec<Value> = (0..2_000).map(|n| json!({"n": n})).collect();
    let refused: Vec<(&str, Value, Value)> = vec![
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
    ];
    for (name, schema, data) in &refused {
        assert_eq!(fate(name, schema, data), Fate::Refused, "{name}");
    }
    let bounded: Vec<(&str, Value, Value)> = vec![
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
    ];
    for (name, schema, data) in &bounded {
        assert_eq!(fate(name, schema, data), Fate::Bounded, "{name}");
    }
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

fn wide(count: usize) -> Value {
    Value::Object((0..count).map(|n| (format!("p{n}"), json!(n))).collect())
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
