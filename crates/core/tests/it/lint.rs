//! What a sound bundle leaves open: each rule of the checklist finds what it is for, and nothing where it is mended.

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::bundle::lint::Severity;

use crate::script::merge;

/// A bundle with nothing left open.
fn clean() -> Value {
    let tool = |class: &str, risk: &str| {
        json!({
            "description": "Does it.", "venue": "server", "class": class, "risk": risk, "timeout_ms": 1000,
            "executor": {"builtin": "echo"}, "result": {"type": "object"},
            "parameters": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 40}, "n": {"type": "integer"}}}
        })
    };
    json!({
        "version": 1,
        "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 4, "max_tool_calls": 4, "deadline_ms": 60000},
        "tools": {"look": tool("read", "low"), "act": tool("once", "high")},
        "profiles": {"p": ["look", "act"]},
        "policies": {"totals": {"once": {"on": {"tools": ["act"]}, "max_count": 1, "scope": "run"}}}
    })
}

/// What is found in the clean bundle after a merge patch: place, rule, severity.
fn found(patch: Value) -> Vec<(String, &'static str, Severity)> {
    let mut bundle = clean();
    merge(&mut bundle, &patch);
    let bundle = Bundle::load(&bundle.to_string()).unwrap_or_else(|faults| panic!("{faults:#?}"));
    bundle.lint().into_iter().map(|finding| (finding.path, finding.rule, finding.severity)).collect()
}

#[track_caller]
fn finds(patch: Value, expected: &[(&str, &str, Severity)]) {
    let found = found(patch);
    let found: Vec<(&str, &str, Severity)> =
        found.iter().map(|(path, rule, how)| (path.as_str(), *rule, *how)).collect();
    assert_eq!(found, expected);
}

const ERROR: Severity = Severity::Error;
const WARNING: Severity = Severity::Warning;

#[test]
fn nothing_is_found_where_nothing_is_open() {
    finds(json!({}), &[]);
}

#[test]
fn what_a_contract_leaves_to_defaults_is_found() {
    finds(
        json!({"tools": {"look": {"class": null, "risk": null, "timeout_ms": null, "result": null, "description": "look"}},
            "policies": {"totals": {"once": {"on": {"tools": ["act", "look"]}}}}}),
        &[
            ("/tools/look", "contract_class", WARNING),
            ("/tools/look", "contract_result", WARNING),
            ("/tools/look", "contract_risk", WARNING),
            ("/tools/look", "contract_timeout", WARNING),
            ("/tools/look/description", "contract_description", WARNING),
        ],
    );
}

#[test]
fn free_text_is_found_by_its_schema_and_not_by_its_name() {
    let free = json!({"type": "object", "properties": {"note": {"type": "string"}}});
    let patch = |policies: Value| json!({"tools": {"look": {"parameters": free}}, "policies": policies});
    finds(patch(json!({})), &[("/tools/look/parameters", "free_form_argument", ERROR)]);
    let named = json!({"arguments": {"words": {"on": {"tools": ["look"]}, "argument": "/note", "max_len": 80}}});
    finds(patch(named), &[]);
    // A name that says `sql` is no argument that takes any.
    let listed = json!({"type": "object", "properties": {"sql": {"enum": ["report_1", "report_2"]}}});
    finds(json!({"tools": {"look": {"parameters": listed}}}), &[]);
    // The client asks its own people.
    let at_client = json!({"look": {"venue": "client", "executor": null, "parameters": free}});
    finds(json!({"tools": at_client}), &[]);
    let mut bare = clean();
    bare.as_object_mut().unwrap().remove("policies");
    merge(&mut bare, &json!({"tools": {"look": {"parameters": free}, "act": {"requires_approval": true}}}));
    let rules: Vec<&str> = Bundle::load(&bare.to_string()).unwrap().lint().iter().map(|f| f.rule).collect();
    assert_eq!(rules, ["free_form_argument"], "also where there are no policies");
}

#[test]
fn an_effect_needs_a_human_or_a_rule() {
    let without = json!({"policies": {"totals": {"once": {"on": {"tools": ["look"]}}}}});
    finds(without.clone(), &[("/tools/act", "effect_unguarded", ERROR)]);
    let mut approved = without.clone();
    merge(&mut approved, &json!({"tools": {"act": {"requires_approval": true}}}));
    finds(approved, &[]);
    // In one of two profiles only is not enough.
    let partly = json!({"profiles": {"q": ["act"]}, "policies": {"totals": {"once": {"on": {"tools": ["act"], "profiles": ["p"]}}}}});
    finds(partly, &[("/tools/act", "effect_unguarded", ERROR)]);
    let cedar = |text: &str| {
        let mut patch = without.clone();
        merge(&mut patch, &json!({"policies": {"cedar": {"c": {"text": text}}}}));
        found(patch).into_iter().map(|(_, rule, _)| rule).collect::<Vec<_>>()
    };
    assert_eq!(cedar("permit(principal, action, resource);"), ["effect_unguarded"]);
    assert_eq!(
        cedar("permit(principal, action, resource) when { context.input has n && context.input.n < 5 };"),
        [""; 0]
    );
    assert_eq!(cedar("@effect(\"escalate\") permit(principal, action, resource);"), [""; 0]);
}

#[test]
fn tools_models_and_labels_that_do_nothing_are_found() {
    finds(json!({"profiles": {"p": ["act"]}}), &[("/tools/look", "unused_tool", WARNING)]);
    finds(
        json!({"models": {"spare": {"provider": "scripted", "script": [{"done": 1}]}}}),
        &[("/models/spare", "unused_model", WARNING)],
    );
    finds(
        json!({"classification": {"rules": {"a": {"profile": "p"}}, "default": {"profile": "p"}}}),
        &[("/classification/rules/a", "label_redundant", WARNING)],
    );
    finds(
        json!({"policies": {"lists": {"never": {"on": {"tools": ["look"]}}}}}),
        &[("/tools/look", "denied_tool", ERROR)],
    );
    let unknown =
        "permit(principal, action, resource) when { context.session has label && context.session.label != \"gone\" };";
    finds(
        json!({"policies": {"cedar": {"c": {"text": unknown}}}}),
        &[("/policies/cedar/c/text", "label_unknown", ERROR)],
    );
    finds(
        json!({"default_harness": {"max_tool_calls": 5000, "deadline_ms": 100_000_000}}),
        &[("/profiles/p", "limit_wide", WARNING), ("/profiles/p", "limit_wide", WARNING)],
    );
    finds(json!({"default_harness": {"max_tool_calls": 0}}), &[("/profiles/p", "limit_closed", WARNING)]);
}

#[test]
fn rules_that_cannot_do_what_they_seem_to_are_found() {
    finds(
        json!({"tools": {"spare": clean()["tools"]["look"]},
            "policies": {"rates": {"slow": {"on": {"tools": ["spare"]}, "max": 1, "window_ms": 1000}}}}),
        &[("/policies/rates/slow", "unreachable_rule", ERROR), ("/tools/spare", "unused_tool", WARNING)],
    );
    finds(
        json!({"policies": {"lists": {"never": {"on": {"tools": ["act"]}}}}}),
        &[("/policies/totals/once", "shadowed_rule", WARNING), ("/tools/act", "denied_tool", ERROR)],
    );
    let argument = |rule: Value| {
        let mut rule = rule;
        merge(&mut rule, &json!({"on": {"tools": ["look"]}, "argument": "/n"}));
        rule
    };
    finds(
        json!({"policies": {"arguments": {"big": argument(json!({"min": 10})), "small": argument(json!({"max": 9.5}))}}}),
        &[("/policies/arguments/small", "contradictory_rules", ERROR)],
    );
    finds(
        json!({"policies": {"arguments": {"big": argument(json!({"min": 10})), "small": argument(json!({"max": 10}))}}}),
        &[],
    );
    finds(
        json!({"policies": {"arguments": {"one": argument(json!({"one_of": [1, 2]})), "two": argument(json!({"one_of": [3, 4]}))}}}),
        &[("/policies/arguments/two", "contradictory_rules", ERROR)],
    );
    finds(
        json!({"policies": {"arguments": {"tried": argument(json!({"max": 9, "mode": "shadow"})), "was": argument(json!({"max": 9, "mode": "off"}))}}}),
        &[("/policies/arguments/tried", "rule_in_shadow", WARNING), ("/policies/arguments/was", "rule_off", WARNING)],
    );
    finds(
        json!({"profiles": {"q": ["act"]}, "policies": {"sequences": {"first": {"on": {"tools": ["act"]}, "only_after": {"tools": ["look"]}}}}}),
        &[("/policies/sequences/first/only_after", "unsatisfiable_rule", ERROR)],
    );
    let both = "permit(principal, action == Action::\"look\", resource);\npermit(principal, action == Action::\"act\", resource);\nforbid(principal, action == Action::\"look\", resource);";
    finds(
        json!({"policies": {"cedar": {"c": {"text": both}}}}),
        &[("/policies/cedar/c/text", "allow_and_deny", ERROR)],
    );
    finds(
        json!({"policies": {"cedar": {"c": {"text": "permit(principal, action == Action::\"act\", resource);"}}}}),
        &[("/tools/look", "never_permitted", ERROR)],
    );
}
