//! Hostile policies and calls: whatever is written, compiling and judging end soon and never take the process down. The
//! bounds on time are wide; they tell linear from worse.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{compile, compile_with, judge, many, policy, said, tool};

/// Runs on a stack of the size that a thread of a server has.
fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).unwrap().join().unwrap()
}

#[test]
fn deep_and_long_policies_are_refused_or_judged() {
    let when = |body: &str| format!("permit(principal, action, resource) when {{ {body} }};");
    let texts = [
        when(&format!("{}true{}", many("(", 30_000), many(")", 30_000))),
        when(&format!("{}true{}", many("(", 20), many(")", 20))),
        when(&format!("{}true", many("!", 30_000))),
        when(&format!("{}true", many("!", 4))),
        when(&format!("1 == {}1", many("-", 30_000))),
        when(&format!("true{}", many(" && true", 8_000))),
        when(&format!("true{}", many(" && true", 900))),
        when(&format!("true{}", many(" || true", 900))),
        when(&format!("1{} == 2", many(" + 1", 900))),
        when(&format!("{}true{}", many("if true then ", 400), many(" else false", 400))),
        when(&format!("context{} == 1", many(".a", 15_000))),
        when(&format!("context{} == 1", many(".session", 900))),
        when(&format!("[{}].contains(1)", many("1,", 900))),
        when(&format!("{}1{}.isEmpty()", many("[", 10_000), many("]", 10_000))),
        when(&format!("{}1{}.isEmpty()", many("[", 20), many("]", 20))),
        when(&format!("{}{{a: 1}}{} == {{}}", many("{a:", 23), many("}", 23))),
        when(&format!("\"{}\" like \"{}b\"", many("a", 1_000), many("*a", 900))),
        many("permit(principal, action, resource);", 180),
        many("@", 60_000),
        many("\"", 60_001),
        many("permit(", 9_000),
        "\u{0}permit(principal, action, resource);".to_owned(),
        many("/", 60_000),
    ];
    for text in texts {
        let shown: String = text.chars().take(60).collect();
        let started = Instant::now();
        let outcome = on_a_small_stack(move || {
            let compiled = compile(&json!({"cedar": {"main": {"text": text}}}));
            compiled
                .map(|policy| said(&judge(&policy, "search", &json!({"query": "x"}))))
                .map_err(|faults| faults.len())
        });
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "{shown}: {took:?}");
        match outcome {
            Ok(said) => assert!(
                ["allow", "deny policy_fault", "deny policy_not_permitted"].contains(&said.as_str()),
                "{shown}: {said}"
            ),
            Err(count) => assert!(count > 0),
        }
    }
}

#[test]
fn wild_patterns_over_long_texts_are_linear() {
    for pattern in [
        "(a*)*b",
        "(a|aa)+",
        "(.*.*.*.*)x",
        "[a-z]*[a-z]*[a-z]*!",
        "(x+x+)+y",
        "[a-z]{1,60}[a-z]{1,60}z",
        "([a-z]{1,40}){1,40}9",
    ] {
        let rule = json!({"arguments": {"r": {"on": {"tools": ["search"]}, "argument": "/query", "regex": pattern}}});
        let policy = policy(&rule);
        let args = json!({"query": many("a", 60_000)});
        let started = Instant::now();
        let judgement = judge(&policy, "search", &args);
        assert!(started.elapsed() < Duration::from_secs(5), "{pattern}: {:?}", started.elapsed());
        assert!(!judgement.findings.is_empty());
    }
}

/// Many patterns, each within its own bound: together they are refused, before all of them are compiled.
#[test]
fn many_large_patterns_are_refused_together_and_at_once() {
    let rules: BTreeMap<String, Value> = (0..999)
        .map(|n| {
            let rule = json!({"on": {"tools": ["search"]}, "argument": "/query", "regex": "(?:\\w{4}|.*)",
                "not_regex": "\\w{4}~~"});
            (format!("r{n}"), rule)
        })
        .collect();
    let started = Instant::now();
    let faults = compile(&json!({"arguments": rules})).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(faults.iter().any(|fault| fault.detail.contains("all patterns together")), "{faults:#?}");
}

/// What one pattern may cost is bounded by its size times the length of the text: a large one takes short texts only.
#[test]
fn a_large_pattern_is_tried_on_short_texts_only() {
    let rules: BTreeMap<String, Value> = (0..20)
        .map(|n| {
            let rule =
                json!({"on": {"tools": ["search"]}, "argument": "/query", "not_regex": "(?s)(a|b)*a(a|b){200}c"});
            (format!("r{n}"), rule)
        })
        .collect();
    let policy = policy(&json!({"arguments": rules}));
    let text: String =
        (0..64_000_u32).map(|n| if n.wrapping_mul(2_654_435_761) & 0x800 == 0 { 'a' } else { 'b' }).collect();
    let started = Instant::now();
    let judgement = judge(&policy, "search", &json!({"query": text}));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(said(&judgement), "deny argument_wrong_kind");
    let detail = judgement.first.unwrap().detail;
    assert!(detail.contains("bytes for its pattern"), "{detail}");
    assert_eq!(said(&judge(&policy, "search", &json!({"query": many("ab", 400)}))), "allow");
}

#[test]
fn like_with_many_stars_is_bounded() {
    let stars = many("*a", 200);
    let text = format!(
        "permit(principal, action == Action::\"search\", resource) when {{ context.input.query like \"{stars}b\" }};"
    );
    let policy = policy(&json!({"cedar": {"main": {"text": text}}}));
    let started = Instant::now();
    let judgement = judge(&policy, "search", &json!({"query": many("a", 60_000)}));
    assert_eq!(said(&judgement), "deny policy_not_permitted");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn deep_arguments_and_schemas_do_no_harm() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!({"a": [deep]});
    }
    let mut schema = json!({"type": "string"});
    for _ in 0..100 {
        schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": schema}}});
    }
    let mut tools = crate::world::catalogue();
    tools.push(tool("deep", &json!({"x": schema})));
    let mut looped = tool("looped", &json!({"x": {"$ref": "#/$defs/l"}}));
    looped.parameters["$defs"] = json!({"l": {"type": "object", "properties": {"next": {"$ref": "#/$defs/l"}}}});
    tools.push(looped);
    let mut wide = tool("wide", &json!({"x": {"$ref": "#/$defs/0"}}));
    let defs: serde_json::Map<String, Value> = (0..12)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            (level.to_string(), json!({"type": "object", "properties": {"a": next, "b": next, "c": next}}))
        })
        .collect();
    wide.parameters["$defs"] = Value::Object(defs);
    tools.push(wide);
    let started = Instant::now();
    let form = json!({"cedar": {"main": {"text": "permit(principal, action, resource);"}},
        "checks": {"h": {"on": {"all": true}, "check": "hidden_characters"}}});
    let policy = compile_with(&form, &tools).unwrap();
    for name in ["deep", "looped", "wide"] {
        let judgement = judge(&policy, name, &json!({"x": deep}));
        assert!(!judgement.findings.is_empty());
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn long_histories_are_linear() {
    let form = json!({
        "sequences": {"s": {"on": {"tools": ["transfer"]}, "after": {"tools": ["fetch"]}, "same": {"this": "/to", "earlier": "/url"}}},
        "rates": {"r": {"on": {"all": true}, "max": 1_000_000, "window_ms": 1_000}},
        "totals": {"t": {"on": {"tools": ["transfer"]}, "scope": "session", "sum": {"argument": "/amount_cents", "max": 1_000_000_000}}}});
    let policy = policy(&form);
    let history: Vec<_> = (0..20_000)
        .map(|idx| crate::world::past("transfer", json!({"to": format!("a{idx}"), "amount_cents": 1})))
        .collect();
    let started = Instant::now();
    let judgement = crate::world::judge_after(&policy, &history, "transfer", &json!({"to": "x", "amount_cents": 5}));
    assert_eq!(said(&judgement), "allow");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn many_policies_over_many_tools_are_bounded() {
    let tools: Vec<_> = (0..100)
        .map(|idx| tool(&format!("t{idx}"), &json!({"path": {"type": "string"}, "n": {"type": "integer"}})))
        .collect();
    let one = "forbid(principal, action, resource) when { context.input.path like \"*/.git/*\" && context.input.n > 5 && context.session.step > 3 };";
    let text = |count: usize| format!("permit(principal, action, resource);{}", many(one, count));
    let started = Instant::now();
    assert!(compile_with(&json!({"cedar": {"main": {"text": text(30)}}}), &tools).is_ok());
    println!("30 policies over 100 tools: {:?}", started.elapsed());
    for count in [2, 16] {
        let sets: serde_json::Map<String, Value> =
            (0..count).map(|idx| (format!("s{idx}"), json!({"text": text(190)}))).collect();
        let started = Instant::now();
        let refused = compile_with(&json!({"cedar": sets}), &tools).unwrap_err();
        assert_eq!((refused[0].pointer.as_str(), refused[0].rule), ("/cedar", "bound"));
        println!("{} policies over 100 tools, refused: {:?}", count * 190, started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
