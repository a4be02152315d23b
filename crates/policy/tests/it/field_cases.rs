//! Failures of decisions that people reported in public (`tests/field-cases`, kind `policy_check`): the calls and verdicts
//! are read from the files, the policy is what a user of this engine would write for the one in the file.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate_policy::grant::{Grant, GrantCall, GrantMiss};
use toolgate_policy::shown::{Warning, shown};
use toolgate_policy::{Decision, Facts};

use crate::world::{compile, facts, judge, policy, said};

fn case(name: &str) -> Value {
    let path = format!("{}/../../tests/field-cases/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

#[test]
fn e01_a_command_rule_is_no_text_prefix() {
    let case = case("FC-E01");
    let exact = |lists: Value| json!({"exact": lists});
    let policy = policy(
        &json!({"arguments": {"known": {"on": {"tools": ["run_command"]}, "argument": "/command", "effect": "ask",
        "argv": {"executables": {"git": exact(json!([["status"]])), "ls": exact(json!([[]])), "echo": exact(json!([[]]))}}}}}),
    );
    let calls = case["given"]["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 14);
    for call in calls {
        let judgement = judge(&policy, "run_command", &json!({"command": call["command"]}));
        // Spaces around and between words make no other command: documented at `derive`, so `allow`.
        let expected = call["verdict"].as_str().unwrap().replace("ask or allow, documented", "allow");
        assert_eq!(word(judgement.decision), expected, "{}", call["command"]);
    }
}

#[test]
fn e02_rules_that_allow_code_in_arguments_are_reported() {
    let case = case("FC-E02");
    let form = |lint: &str| {
        json!({"lint": lint, "arguments": {"known": {"on": {"tools": ["run_command"]}, "argument": "/command", "effect": "ask",
            "argv": {"executables": {"git": {"first": ["status"]}, "find": {}, "python": {}}}}}})
    };
    let warned = policy(&form("warn"));
    let traps: Vec<(&str, &str)> =
        warned.lint().iter().map(|trap| (trap.pointer.rsplit('/').next().unwrap(), trap.rule)).collect();
    assert_eq!(traps, [("find", "allows_trap_flag"), ("git", "allows_trap_flag"), ("python", "allows_interpreter")]);
    let find = &warned.lint()[0].detail;
    assert!(find.contains("-exec") && find.contains("-delete"), "{find}");
    for call in case["given"]["calls"].as_array().unwrap() {
        if call["verdict"] == "allow" {
            assert_eq!(said(&judge(&warned, "run_command", &json!({"command": call["command"]}))), "allow", "{call}");
        }
    }
    assert_eq!(case["expect"]["refused_at_load_if"], "strict lint is on");
    assert!(compile(&form("strict")).is_err());
}

#[test]
fn e03_order_decides_nothing() {
    let case = case("FC-E03");
    // Three rules and three policies, written in every order of their keys.
    let rules = [
        (
            "a-git",
            json!({"on": {"tools": ["run_command"]}, "argument": "/command", "argv": {"not_executables": ["git"]}}),
        ),
        (
            "b-env",
            json!({"on": {"tools": ["read_file"]}, "argument": "/path", "path": {"root": "/w", "not_named": [".env"]}}),
        ),
        ("c-path", json!({"on": {"tools": ["read_file"]}, "argument": "/path", "max_len": 1_000})),
    ];
    let texts = [
        "permit(principal, action, resource);",
        "permit(principal, action == Action::\"run_command\", resource) when { context.input.command like \"git push*\" };",
        "@id(\"no-git\") forbid(principal, action == Action::\"run_command\", resource) when { context.input.command like \"git *\" };",
    ];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let arguments: Vec<String> =
            order.iter().map(|idx| format!("\"{}\":{}", rules[*idx].0, rules[*idx].1)).collect();
        let text: Vec<&str> = order.iter().map(|idx| texts[*idx]).collect();
        let form = format!(
            "{{\"arguments\":{{{}}},\"cedar\":{{\"m\":{{\"text\":{}}}}}}}",
            arguments.join(","),
            Value::from(text.join("\n"))
        );
        let rules_and_policies = policy(&serde_json::from_str(&form).unwrap());
        let policies = policy(&json!({"cedar": {"m": {"text": text.join("\n")}}}));
        for call in case["given"]["calls"].as_array().unwrap() {
            let (tool, args) = match call.get("tool") {
                Some(tool) => (tool.as_str().unwrap(), json!({"path": call["path"]})),
                None => ("run_command", json!({"command": call["command"]})),
            };
            let judgement = judge(&rules_and_policies, tool, &args);
            assert_eq!(word(judgement.decision), call["verdict"], "{order:?} {call}");
            if judgement.decision == Decision::Deny {
                let named = judgement.first.unwrap().rule_id;
                assert_eq!(&*named, if tool == "read_file" { "b-env" } else { "a-git" });
            }
            if tool == "run_command" {
                let denied = judge(&policies, tool, &args);
                assert_eq!(
                    (said(&denied).as_str(), &*denied.first.unwrap().rule_id),
                    ("deny policy_forbids", "m/no-git")
                );
            }
        }
    }
}

#[test]
fn e04_a_path_is_what_it_means() {
    let case = case("FC-E04");
    let root = case["given"]["root"].as_str().unwrap();
    let links = case["given"]["links"].as_object().unwrap();
    let policy = policy(&json!({"arguments": {"inside": {"on": {"tools": ["write_file"]}, "argument": "/path",
        "path": {"root": root, "not_under": ["/w/protected"]}}}}));
    for call in case["given"]["calls"].as_array().unwrap() {
        let path = call["path"].as_str().unwrap();
        let args = json!({"path": path, "content": ""});
        // Where the file system is ours, the driver says where a path leads; a client must check again.
        let real = links.iter().find_map(|(link, target)| {
            path.strip_prefix(link.as_str()).map(|rest| format!("{}{rest}", target.as_str().unwrap()))
        });
        let known: BTreeMap<String, String> = real.into_iter().map(|real| ("/path".to_owned(), real)).collect();
        let judgement = policy.judge(&Facts { resolved_paths: Some(&known), ..facts("write_file", &args) });
        let expected = match call["verdict"].as_str().unwrap() {
            "allow" | "taken literally, stays below /w" => "allow",
            "deny" | "refused" | "refused or documented" | "deny (server venue) / recheck by client (client venue)" => {
                "deny"
            }
            other => panic!("{other}"),
        };
        assert_eq!(word(judgement.decision), expected, "{path:?}");
    }
}

#[test]
fn e07_a_remembered_approval_covers_its_arguments_alone() {
    let case = case("FC-E07");
    let remembered = &case["given"]["remembered"][0];
    let grant: Grant = serde_json::from_value(json!({"tool": remembered["tool"], "args": remembered["args"],
        "tool_version": "v1", "bundle": "b1", "session": "s1", "expires_at_micros": 100}))
    .unwrap();
    let args = &case["given"]["calls"][0]["args"];
    let base = GrantCall { tool: "run_command", tool_version: "v1", bundle: "b1", session: "s1", args, at_micros: 99 };
    for call in case["given"]["calls"].as_array().unwrap() {
        let covered = grant.covers(&GrantCall { args: &call["args"], ..base });
        match call["verdict"].as_str().unwrap() {
            "allow (remembered)" => assert_eq!(covered, Ok(())),
            // A null argument is not an absent one (ruling 20), so it is another call.
            "ask" | "documented (null = absent?)" => assert_eq!(covered, Err(GrantMiss::Args), "{call}"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(case["expect"]["other_session"], "ask");
    assert_eq!(grant.covers(&GrantCall { session: "s2", ..base }), Err(GrantMiss::Session));
    assert_eq!(grant.covers(&GrantCall { bundle: "b2", ..base }), Err(GrantMiss::Bundle));
    assert_eq!(grant.covers(&GrantCall { tool_version: "v2", ..base }), Err(GrantMiss::ToolVersion));
    assert_eq!(grant.covers(&GrantCall { at_micros: 100, ..base }), Err(GrantMiss::Expired));
    assert_eq!(grant.covers(&GrantCall { tool: "exec", ..base }), Err(GrantMiss::Tool));
    let open: Grant = Grant { open: ["cwd".to_owned()].into(), ..grant };
    let elsewhere = &case["given"]["calls"][2]["args"];
    assert_eq!(open.covers(&GrantCall { args: elsewhere, ..base }), Ok(()));
    let other = &case["given"]["calls"][1]["args"];
    assert_eq!(open.covers(&GrantCall { args: other, ..base }), Err(GrantMiss::Args));
}

#[test]
fn e08_a_fault_never_allows() {
    let case = case("FC-E08");
    let call = &case["given"]["call"];
    let (tool, args) = (call["tool"].as_str().unwrap(), &call["args"]);
    for fault in case["given"]["faults"].as_array().unwrap() {
        match fault.as_str().unwrap() {
            // There is no panic and no clock in the engine; what a policy can do is fail while it is evaluated.
            "policy check panics" => {
                let failing = "permit(principal, action, resource);
                    forbid(principal, action == Action::\"transfer\", resource) when { 9223372036854775807 + context.input.amount_cents == 1 };";
                let judgement = judge(&policy(&json!({"cedar": {"m": {"text": failing}}})), tool, args);
                assert_eq!(said(&judgement), "deny policy_fault");
            }
            "takes longer than its limit" => {
                let long =
                    format!("permit(principal, action, resource) when {{ {} }};", ["1 == 1"; 5_000].join(" && "));
                assert!(compile(&json!({"cedar": {"m": {"text": long}}})).is_err());
            }
            // The caller has no policy then, and no judgement either: nothing to allow with.
            "store unreachable" | "policy document missing" => {
                assert!(compile(&Value::Null).is_err());
            }
            "policy document with unknown field" => {
                assert!(compile(&json!({"lists": {}, "allow_all": true})).is_err());
            }
            "fail_mode: 'clsoed'" => {
                let text = "permit(principal, action, resource);";
                assert!(compile(&json!({"cedar": {"m": {"text": text, "fail_mode": "clsoed"}}})).is_err());
                assert!(compile(&json!({"cedar": {"m": {"text": text, "mode": "enfroce"}}})).is_err());
            }
            "empty rule list" => {
                assert!(compile(&json!({})).is_err());
                assert!(compile(&json!({"cedar": {"m": {"text": ""}}})).is_err());
            }
            other => panic!("{other}"),
        }
    }
    // A policy without a permit for the call denies by rule, under another code than a fault.
    let narrow =
        policy(&json!({"cedar": {"m": {"text": "permit(principal, action == Action::\"search\", resource);"}}}));
    assert_eq!(said(&judge(&narrow, tool, args)), "deny policy_not_permitted");
}

/// A text as the cases write it: `{"$repeat": {…}, "then": …}` or itself.
fn spelled(value: &Value) -> String {
    value.get("$repeat").map_or_else(
        || value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned),
        |repeat| {
            let text =
                repeat["text"].as_str().unwrap().repeat(usize::try_from(repeat["times"].as_u64().unwrap()).unwrap());
            format!("{text}{}", value["then"].as_str().unwrap_or_default())
        },
    )
}

#[test]
fn e12_what_an_approver_sees_is_what_runs() {
    let case = case("FC-E12");
    let check =
        policy(&json!({"checks": {"seen": {"on": {"all": true}, "check": "hidden_characters", "effect": "ask"}}}));
    let mut warnings = Vec::new();
    for call in case["given"]["pending"].as_array().unwrap() {
        let fields = call["args"].as_object().unwrap();
        let mut of_call: Vec<Warning> = Vec::new();
        for value in fields.values() {
            let text = spelled(value);
            let seen = shown(&text);
            assert!(
                !seen.text.chars().any(|c| c.is_control() || matches!(c, '\u{200b}'..='\u{206f}')),
                "{}",
                seen.text
            );
            assert!(seen.text.chars().count() >= text.chars().count(), "nothing is cut");
            of_call.extend(seen.warnings);
        }
        assert!(!of_call.is_empty(), "{call}");
        warnings.push(of_call);
        let hidden = |value: &Value| {
            value.as_str().is_some_and(|text| text.contains(['\u{202e}', '\u{430}', '\u{200b}', '\u{1b}']))
        };
        if fields.values().any(hidden) {
            let tool = call["tool"].as_str().unwrap();
            assert_eq!(said(&judge(&check, tool, &call["args"])), "ask hidden_characters", "{call}");
        }
    }
    assert_eq!(
        warnings,
        [
            vec![Warning::HiddenCharacters],
            vec![Warning::MixedAlphabets],
            vec![Warning::Long],
            vec![Warning::HiddenCharacters, Warning::HiddenCharacters],
            vec![Warning::LineBreak],
        ]
    );
    assert_eq!(shown(case["given"]["rationale_of_model"].as_str().unwrap()).text, r"harmless\u{2066} text");
}
