//! What holds for any call: judging is total and always the same, a rule that denies never widens, order means nothing.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof};
use proptest::{collection, proptest, sample};
use serde_json::{Map, Value, json};
use toolgate_policy::{CallStatus, Decision, Facts, Policy};

use crate::world::{Past, catalogue, earlier, facts, past, policy};

/// Any value, with the shapes and texts that attacks use.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        sample::select(vec![
            "/w/a",
            "../x",
            "git status",
            "https://a.example/x",
            "bob@x.com",
            "1,000",
            "\u{202e}",
            "a;b",
            "'",
            "~",
            ""
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::vec((key(), inner), 0..5).prop_map(|pairs| Value::Object(Map::from_iter(pairs))),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    let known = [
        "path",
        "to",
        "amount_cents",
        "query",
        "url",
        "argv",
        "command",
        "iban",
        "amount",
        "__entity",
        "__extn",
        "~",
        "a/b",
    ];
    prop_oneof![sample::select(known.to_vec()).prop_map(ToOwned::to_owned), any::<String>()]
}

/// Arguments that more often than not are an object.
fn args() -> impl Strategy<Value = Value> {
    let object = collection::vec((key(), value()), 0..6).prop_map(|pairs| Value::Object(Map::from_iter(pairs)));
    prop_oneof![4 => object, 1 => value()]
}

fn tool() -> impl Strategy<Value = String> {
    let names: Vec<String> =
        catalogue().into_iter().map(|tool| tool.id).chain([String::new(), "nope".to_owned()]).collect();
    sample::select(names)
}

fn history() -> impl Strategy<Value = Vec<Past>> {
    let status = sample::select(vec![
        CallStatus::Ok,
        CallStatus::Running,
        CallStatus::Failed,
        CallStatus::NotExecuted,
        CallStatus::Indeterminate,
        CallStatus::DryRun,
    ]);
    let names = sample::select(vec!["transfer", "search", "contacts", "read_file", "test", "nope"]);
    collection::vec((names, args(), status, any::<u64>(), any::<String>()), 0..6).prop_map(|calls| {
        calls
            .into_iter()
            .map(|(tool, args, status, at, text)| Past { at, ..past(tool, args).status(status).result(&text) })
            .collect()
    })
}

/// A rule of every kind.
fn everything() -> Value {
    json!({
        "arguments": {
            "path": {"on": {"tools": ["write_file", "read_file"]}, "argument": "/path", "path": {"root": "/w", "not_named": [".env"]}, "effect": "ask"},
            "url": {"on": {"tools": ["fetch"]}, "argument": "/url", "url": {"hosts": ["*"]}},
            "argv": {"on": {"tools": ["exec"]}, "argument": "/argv", "argv": {"executables": {"git": {"first": ["status"]}}}},
            "command": {"on": {"tools": ["run_command"]}, "argument": "/command", "argv": {"executables": {"git": {}}}, "effect": "ask"},
            "query": {"on": {"tools": ["search"]}, "argument": "/query", "regex": "[^x]*", "min_len": 0, "max_len": 100, "not_one_of": ["a"]},
            "cents": {"on": {"tools": ["transfer"]}, "argument": "/amount_cents", "min": 0, "max": 1_000_000}},
        "sequences": {"seq": {"on": {"tools": ["fetch"]}, "after": {"tools": ["read_file"]}, "effect": "ask"},
            "need": {"on": {"tools": ["pay"]}, "only_after": {"tools": ["contacts"]}}},
        "rates": {"rate": {"on": {"all": true}, "max": 4, "window_ms": 60_000}},
        "totals": {"sum": {"on": {"tools": ["transfer"]}, "scope": "session", "per": "/to", "sum": {"argument": "/amount_cents", "max": 500_000}}},
        "origins": {"mail": {"on": {"tools": ["send_mail"]}, "argument": "/to/*", "as": "email", "from": {"user": true, "results": [{"tool": "contacts", "at": "/*/email"}]}},
            "num": {"on": {"tools": ["pay"]}, "argument": "/amount", "as": "number", "from": {"user": true}},
            "link": {"on": {"tools": ["fetch"]}, "argument": "/url", "as": "host", "from": {"user": true, "results": [{"tool": "search"}]}}},
        "checks": {"zero": {"on": {"tools": ["pay"]}, "argument": "/amount", "check": "amount_zero"},
            "hidden": {"on": {"all": true}, "check": "hidden_characters", "effect": "ask"}},
        "cedar": {"main": {"text": "permit(principal, action, resource);
            @effect(\"escalate\") permit(principal, action == Action::\"transfer\", resource) when { context.input.amount_cents > 10 && context.evidence.tested == 0 };
            forbid(principal, action == Action::\"write_file\", resource) when { context.input.path like \"*.git*\" || context.counts.search > 3 };"}}})
}

fn judge_all(
    policy: &Policy,
    tool: &str,
    args: &Value,
    history: &[Past],
    words: &[String],
) -> toolgate_policy::Judgement {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    policy.judge(&Facts { earlier: &earlier(history), user_words: &words, ..facts(tool, args) })
}

/// Rules that deny, one of a kind each; each is well formed beside [`everything`].
fn denials() -> Vec<Value> {
    vec![
        json!({"lists": {"x": {"on": {"tools": ["search", "transfer"]}}}}),
        json!({"arguments": {"x": {"on": {"tools": ["transfer"]}, "argument": "/to", "one_of": ["a"]}}}),
        json!({"arguments": {"x": {"on": {"tools": ["search"]}, "argument": "/query", "not_regex": "a"}}}),
        json!({"sequences": {"x": {"on": {"all": true}, "after": {"tools": ["search"]}}}}),
        json!({"rates": {"x": {"on": {"all": true}, "max": 1, "window_ms": 10}}}),
        json!({"totals": {"x": {"on": {"all": true}, "scope": "run", "max_count": 1}}}),
        json!({"origins": {"x": {"on": {"tools": ["transfer"]}, "argument": "/to", "effect": "deny", "from": {"user": true}}}}),
        json!({"cedar": {"x": {"text": "forbid(principal, action, resource) when { context.session.step > 0 && context.input has to };"}}}),
    ]
}

fn with(form: &Value, more: &Value) -> Value {
    let mut form = form.clone();
    for (section, rules) in more.as_object().unwrap() {
        for (id, rule) in rules.as_object().unwrap() {
            form[section][id] = rule.clone();
        }
    }
    form
}

thread_local! {
    static BASE: Policy = policy(&everything());
    static STRICTER: Vec<Policy> = denials().iter().map(|more| policy(&with(&everything(), more))).collect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn judging_is_total_and_repeats(tool in tool(), args in args(), history in history(), words in collection::vec(any::<String>(), 0..3)) {
        BASE.with(|policy| {
            let once = judge_all(policy, &tool, &args, &history, &words);
            assert_eq!(once, judge_all(policy, &tool, &args, &history, &words));
            assert_eq!(once.decision == Decision::Allow, once.first.is_none());
            let known = catalogue().iter().any(|one| one.id == tool);
            assert!(known || once.decision == Decision::Deny);
            // What is not an object passes no rule that looks inside.
            if known && !args.is_object() {
                assert_eq!(once.decision, Decision::Deny);
            }
        });
    }

    #[test]
    fn a_rule_that_denies_never_widens(tool in tool(), args in args(), history in history(), words in collection::vec(any::<String>(), 0..3)) {
        let base = BASE.with(|policy| judge_all(policy, &tool, &args, &history, &words).decision);
        STRICTER.with(|policies| {
            for policy in policies {
                assert!(judge_all(policy, &tool, &args, &history, &words).decision >= base);
            }
        });
    }

    #[test]
    fn any_text_as_a_policy_compiles_or_is_refused(text in any::<String>(), cut in 0_usize..400) {
        let valid = "@id(\"a\") permit(principal, action == Action::\"search\", resource) when { context.input.query like \"a*\" || context.session.step < 5 };";
        for text in [text.as_str(), valid.get(..cut).unwrap_or(valid)] {
            let _ = crate::world::compile(&json!({"cedar": {"m": {"text": text}}}));
            let _ = crate::world::compile(&json!({"arguments": {"r": {"on": {"tools": ["search"]}, "argument": text, "regex": text}}}));
        }
    }
}

#[test]
fn facts_that_only_add_harm_never_widen() {
    // More history, of effectful calls, never turns a denial by a limit into an allowance.
    let form = json!({"totals": {"t": {"on": {"tools": ["search"]}, "scope": "session", "max_count": 3}}});
    let policy = policy(&form);
    let mut history = Vec::new();
    let mut last = Decision::Allow;
    for _ in 0..6 {
        let now = judge_all(&policy, "search", &json!({"query": "x"}), &history, &[]).decision;
        assert!(now >= last);
        last = now;
        history.push(past("search", json!({"query": "x"})));
    }
    assert_eq!(last, Decision::Deny);
}
