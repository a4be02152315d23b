//! How long one judgement takes: 20 rules, an argument object of 2 KB, 20 earlier calls; with and without policy files
//! among the rules. Prints percentiles. What is not here: a bound, which belongs to whoever runs this on a quiet machine.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, prints, and fails loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Value, json};
use toolgate_policy::{
    CallStatus, Class, Decision, EarlierCall, Facts, Policy, PolicyForm, Principal, Risk, SessionFacts, ToolFacts,
    Venue,
};

const ROUNDS: usize = 20_000;

fn main() {
    for (name, form) in [("20 built-in rules", built_in(20)), ("10 built-in rules, 10 policies", mixed())] {
        let tool = tool();
        let profiles = BTreeMap::from([("p".to_owned(), BTreeSet::from(["send".to_owned()]))]);
        let form = PolicyForm::read(&form).unwrap();
        let policy = Policy::compile(&form, &[tool], &profiles).unwrap();
        let args = args();
        let earlier: Vec<EarlierCall<'_>> = (0..20)
            .map(|idx| EarlierCall {
                run: 1,
                tool: "send",
                status: CallStatus::Ok,
                args: Some(&args),
                result: Some("{\"ok\":true}"),
                at_micros: idx,
            })
            .collect();
        let facts = Facts {
            tool: "send",
            args: &args,
            profile: "p",
            principal: Principal { tenant: "acme", id: "alice", roles: &["ops"] },
            session: SessionFacts { id: "s", run: 1, step: 3, ballots: 1, agreed: 1, ..SessionFacts::default() },
            at_micros: 1_790_000_000_000_000,
            earlier: &earlier,
            user_words: &["Please send the minutes to bob@example.com and carol@example.com today."],
            resolved_paths: None,
        };
        assert_eq!(policy.judge(&facts).decision, Decision::Allow);
        let mut nanos: Vec<u128> = (0..ROUNDS)
            .map(|_| {
                let started = Instant::now();
                let judgement = policy.judge(std::hint::black_box(&facts));
                let took = started.elapsed().as_nanos();
                assert_eq!(std::hint::black_box(judgement).decision, Decision::Allow);
                took
            })
            .collect();
        nanos.sort_unstable();
        let micros = |share: usize| nanos[(ROUNDS - 1) * share / 1_000] / 100;
        let (p50, p99, p999) = (micros(500), micros(990), micros(999));
        println!(
            "{name}: p50 {}.{} us, p99 {}.{} us, p99.9 {}.{} us ({} bytes of arguments)",
            p50 / 10,
            p50 % 10,
            p99 / 10,
            p99 % 10,
            p999 / 10,
            p999 % 10,
            args.to_string().len()
        );
    }
}

fn tool() -> ToolFacts {
    let text = json!({"type": "string"});
    ToolFacts {
        id: "send".to_owned(),
        venue: Venue::Server,
        class: Class::Once,
        risk: Risk::High,
        tags: BTreeSet::from(["mail".to_owned()]),
        parameters: json!({"type": "object", "additionalProperties": false, "properties": {
            "to": {"type": "array", "items": text}, "subject": text, "body": text, "path": text, "link": text,
            "count": {"type": "integer"}, "amount": {"type": "number"},
            "meta": {"type": "object", "properties": {"a": text, "b": text, "c": text}}}}),
        derived: serde_json::from_value(json!([{"name": "file", "from": "/path", "kind": "path", "root": "/w"},
            {"name": "link", "from": "/link", "kind": "url"}]))
        .unwrap(),
        secret: Vec::new(),
    }
}

fn args() -> Value {
    json!({"to": ["bob@example.com", "carol@example.com"], "subject": "Minutes", "body": "All agreed. ".repeat(140),
        "path": "/w/minutes/2026/11.txt", "link": "https://docs.example.com/minutes/11", "count": 12, "amount": 99.5,
        "meta": {"a": "one", "b": "two", "c": "three"}})
}

fn built_in(count: usize) -> Value {
    let on = json!({"tools": ["send"]});
    let arguments = [
        json!({"argument": "/path", "path": {"root": "/w", "not_named": [".env"]}}),
        json!({"argument": "/link", "url": {"hosts": ["*.example.com"]}}),
        json!({"argument": "/count", "min": 1, "max": 100}),
        json!({"argument": "/amount", "max": 1000}),
        json!({"argument": "/subject", "max_len": 200}),
        json!({"argument": "/subject", "regex": "[A-Za-z ]+"}),
        json!({"argument": "/body", "not_regex": "(?i)password|secret"}),
        json!({"argument": "/to", "max_len": 5}),
        json!({"argument": "/to/*", "regex": "[a-z]+@example\\.com"}),
        json!({"argument": "/meta/a", "one_of": ["one", "two"]}),
    ];
    let mut form = json!({
        "origins": {"o": {"on": on, "argument": "/to/*", "as": "email", "from": {"user": true}}},
        "rates": {"r": {"on": on, "max": 100, "window_ms": 60_000}},
        "totals": {"t": {"on": on, "scope": "session", "sum": {"argument": "/amount", "max": 1_000_000}},
            "u": {"on": on, "scope": "run", "max_count": 1_000}},
        "sequences": {"s": {"on": on, "only_after": on, "same": {"this": "/path", "earlier": "/path"}}}});
    for idx in 0..count - 5 {
        let mut rule = arguments[idx % arguments.len()].clone();
        rule["on"] = on.clone();
        form["arguments"][format!("a{idx}")] = rule;
    }
    form
}

fn mixed() -> Value {
    let mut form = built_in(10);
    let mut text = String::from("permit(principal, action == Action::\"send\", resource);\n");
    for idx in 0..9 {
        text.push_str(&format!(
            "forbid(principal, action == Action::\"send\", resource) when {{ context.input has path && context.input.path like \"*/secret{idx}/*\"
                && context.session.step > {idx} && context.derived has link && context.derived.link.host == \"evil{idx}.example\" }};\n"
        ));
    }
    form["cedar"] = json!({"main": {"text": text}});
    form
}
