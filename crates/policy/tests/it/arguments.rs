//! Rules on arguments, kind by kind: what passes, what the rule's effect meets, what is denied because it cannot be looked
//! at.

use serde_json::{Value, json};
use toolgate_policy::{Decision, Outcome};

use crate::world::{catalogue, compile_with, judge, of, policy, said, tool};

/// A policy of one rule on one argument.
fn rule(tool: &str, argument: &str, condition: Value) -> Value {
    let mut rule = condition;
    rule["on"] = json!({"tools": [tool]});
    rule["argument"] = json!(argument);
    json!({"arguments": {"r": rule}})
}

fn table(tool: &str, argument: &str, condition: &Value, rows: &[(Value, &str)]) {
    let policy = policy(&rule(tool, argument, condition.clone()));
    for (args, expected) in rows {
        assert_eq!(said(&judge(&policy, tool, args)), *expected, "{condition} {args}");
    }
}

#[test]
fn equality_is_by_value() {
    table(
        "transfer",
        "/amount_cents",
        &json!({"exact": 9_007_199_254_740_993_i64}),
        &[
            (json!({"amount_cents": 9_007_199_254_740_993_i64}), "allow"),
            (json!({"amount_cents": 9_007_199_254_740_992_i64}), "deny argument_rule"),
            (json!({"amount_cents": "9007199254740993"}), "deny argument_wrong_kind"),
            (json!({}), "deny argument_missing"),
            (json!({"amount_cents": null}), "deny argument_wrong_kind"),
        ],
    );
    table(
        "transfer",
        "/to",
        &json!({"one_of": ["a", "b"], "effect": "ask"}),
        &[
            (json!({"to": "a"}), "allow"),
            (json!({"to": "A"}), "ask argument_rule"),
            (json!({"to": "a "}), "ask argument_rule"),
            (json!({"to": ["a"]}), "deny argument_wrong_kind"),
            (json!({"to": {"a": 1}}), "deny argument_wrong_kind"),
        ],
    );
    table(
        "transfer",
        "/to",
        &json!({"not_one_of": ["root"]}),
        &[
            (json!({"to": "alice"}), "allow"),
            (json!({"to": "root"}), "deny argument_rule"),
            (json!({"to": " ROOT "}), "deny argument_rule"),
            (json!({"to": "ｒｏｏｔ"}), "deny argument_rule"),
            (json!({"to": 0}), "deny argument_wrong_kind"),
        ],
    );
}

#[test]
fn bounds_are_compared_exactly() {
    table(
        "transfer",
        "/amount_cents",
        &json!({"min": 1, "max": 9_007_199_254_740_992_i64}),
        &[
            (json!({"amount_cents": 1}), "allow"),
            (json!({"amount_cents": 9_007_199_254_740_992_i64}), "allow"),
            (json!({"amount_cents": 9_007_199_254_740_993_i64}), "deny argument_rule"),
            (json!({"amount_cents": u64::MAX}), "deny argument_rule"),
            (json!({"amount_cents": 1e300}), "deny argument_rule"),
            (json!({"amount_cents": 0.999_999}), "deny argument_rule"),
            (json!({"amount_cents": -1}), "deny argument_rule"),
            (json!({"amount_cents": true}), "deny argument_wrong_kind"),
            (json!({"amount_cents": "5"}), "deny argument_wrong_kind"),
            (json!({"amount_cents": [5]}), "deny argument_wrong_kind"),
        ],
    );
}

#[test]
fn lengths_count_characters_and_elements() {
    table(
        "search",
        "/query",
        &json!({"min_len": 1, "max_len": 3}),
        &[
            (json!({"query": "漢字é"}), "allow"),
            (json!({"query": "abcd"}), "deny argument_rule"),
            (json!({"query": ""}), "deny argument_rule"),
            (json!({"query": 3}), "deny argument_wrong_kind"),
        ],
    );
    table(
        "send_mail",
        "/to",
        &json!({"max_len": 2}),
        &[
            (json!({"to": ["a", "b"]}), "allow"),
            (json!({"to": ["a", "b", "c"]}), "deny argument_rule"),
            (json!({"to": {"a": 1}}), "deny argument_wrong_kind"),
        ],
    );
}

#[test]
fn patterns_match_the_whole_text() {
    table(
        "search",
        "/query",
        &json!({"regex": "a|bc"}),
        &[
            (json!({"query": "a"}), "allow"),
            (json!({"query": "bc"}), "allow"),
            (json!({"query": "abc"}), "deny argument_rule"),
            (json!({"query": "a\n"}), "deny argument_rule"),
            (json!({"query": "xa"}), "deny argument_rule"),
            (json!({"query": 1}), "deny argument_wrong_kind"),
            (json!({"query": "a".repeat(70_000)}), "deny argument_wrong_kind"),
        ],
    );
    table(
        "search",
        "/query",
        &json!({"not_regex": "(?i)password"}),
        &[(json!({"query": "my PassWord is"}), "deny argument_rule"), (json!({"query": "hello"}), "allow")],
    );
}

#[test]
fn every_element_of_a_list_is_asked() {
    table(
        "send_mail",
        "/to/*",
        &json!({"regex": ".*@acme\\.example"}),
        &[
            (json!({"to": ["a@acme.example", "b@acme.example"]}), "allow"),
            (json!({"to": ["a@acme.example", "b@evil.example"]}), "deny argument_rule"),
            (json!({"to": ["a@acme.example", 5]}), "deny argument_wrong_kind"),
            (json!({"to": []}), "deny argument_missing"),
            (json!({"to": "a@acme.example"}), "deny argument_wrong_kind"),
        ],
    );
}

#[test]
fn an_argument_may_be_left_out_only_where_the_rule_says_so() {
    let strict = policy(&rule("run_command", "/cwd", json!({"path": {"root": "/w"}})));
    let open = policy(&rule("run_command", "/cwd", json!({"path": {"root": "/w"}, "absent": "pass"})));
    let bare = json!({"command": "ls"});
    assert_eq!(said(&judge(&strict, "run_command", &bare)), "deny argument_missing");
    assert_eq!(said(&judge(&open, "run_command", &bare)), "allow");
    let null = json!({"command": "ls", "cwd": null});
    assert_eq!(said(&judge(&open, "run_command", &null)), "deny argument_wrong_kind");
    let outside = json!({"command": "ls", "cwd": "/etc"});
    assert_eq!(said(&judge(&open, "run_command", &outside)), "deny argument_rule");
}

#[test]
fn hosts_are_matched_by_whole_labels() {
    table(
        "fetch",
        "/url",
        &json!({"url": {"hosts": ["api.acme.example", "*.cdn.example", "10.0.0.7"], "not_hosts": ["bad.cdn.example"]}}),
        &[
            (json!({"url": "https://api.acme.example/x?y#z"}), "allow"),
            (json!({"url": "https://API.acme.example./"}), "allow"),
            (json!({"url": "https://a.b.cdn.example/"}), "allow"),
            (json!({"url": "https://10.0.0.7/"}), "allow"),
            (json!({"url": "https://cdn.example/"}), "deny argument_rule"),
            (json!({"url": "https://bad.cdn.example/"}), "deny argument_rule"),
            (json!({"url": "https://x.bad.cdn.example/"}), "allow"),
            (json!({"url": "https://evilcdn.example/"}), "deny argument_rule"),
            (json!({"url": "http://api.acme.example/"}), "deny argument_rule"),
            (json!({"url": "https://api.acme.example:8443/"}), "deny argument_rule"),
            (json!({"url": "https://u@api.acme.example/"}), "deny argument_rule"),
            (json!({"url": "https://api.acme.example.evil.example/"}), "deny argument_rule"),
        ],
    );
    table(
        "fetch",
        "/url",
        &json!({"url": {"hosts": ["*"], "schemes": ["http", "https"], "ports": [80, 443]}}),
        &[
            (json!({"url": "http://example.com/"}), "allow"),
            (json!({"url": "http://127.0.0.1/"}), "deny argument_rule"),
            (json!({"url": "http://8.8.8.8/"}), "deny argument_rule"),
            (json!({"url": "http://localhost/"}), "deny argument_rule"),
            (json!({"url": "http://db.internal/"}), "deny argument_rule"),
        ],
    );
}

#[test]
fn commands_are_matched_as_words() {
    let form = json!({"argv": {"executables": {
        "git": {"first": ["log", "diff"], "flags_denied": ["-c", "--output", "--ext-diff", "-O"], "max_args": 4},
        "ls": {"flags_allowed": ["-l", "-a"]}, "make": {"exact": [["test"], ["lint"]]}}, "not_executables": ["rm"]}});
    table(
        "exec",
        "/argv",
        &form,
        &[
            (json!({"argv": ["git", "log", "--oneline"]}), "allow"),
            (json!({"argv": ["git", "push"]}), "deny argument_rule"),
            (json!({"argv": ["git", "-c", "core.pager=sh", "log"]}), "deny argument_rule"),
            (json!({"argv": ["git", "log", "--outp=x"]}), "deny argument_rule"),
            (json!({"argv": ["git", "log", "--", "--output=x"]}), "deny argument_rule"),
            (json!({"argv": ["git", "log", "a", "b", "c", "d"]}), "deny argument_rule"),
            (json!({"argv": ["ls", "-la", "/tmp"]}), "allow"),
            (json!({"argv": ["ls", "-R"]}), "deny argument_rule"),
            (json!({"argv": ["make", "test"]}), "allow"),
            (json!({"argv": ["make", "test", "SHELL=sh"]}), "deny argument_rule"),
            (json!({"argv": ["./git", "log"]}), "deny argument_rule"),
            (json!({"argv": ["Git", "log"]}), "deny argument_rule"),
            (json!({"argv": ["/bin/RM.exe", "x"]}), "deny argument_rule"),
            (json!({"argv": "git log"}), "allow"),
            (json!({"argv": 5}), "deny argument_wrong_kind"),
            (json!({"argv": []}), "deny argument_wrong_kind"),
        ],
    );
}

#[test]
fn the_real_path_counts_where_it_is_known() {
    let policy = policy(&rule("read_file", "/path", json!({"path": {"root": "/w"}})));
    let args = json!({"path": "/w/link/x"});
    let real = |path: &str| {
        let known = std::collections::BTreeMap::from([("/path".to_owned(), path.to_owned())]);
        let facts = toolgate_policy::Facts { resolved_paths: Some(&known), ..crate::world::facts("read_file", &args) };
        said(&policy.judge(&facts))
    };
    assert_eq!(real("/w/y/x"), "allow");
    assert_eq!(real("/etc/x"), "deny argument_rule");
}

#[test]
fn a_shadow_rule_is_recorded_and_decides_nothing() {
    let form = |mode: &str| rule("transfer", "/amount_cents", json!({"max": 5, "mode": mode}));
    let args = json!({"to": "a", "amount_cents": 9});
    let shadow = judge(&policy(&form("shadow")), "transfer", &args);
    assert_eq!(said(&shadow), "allow");
    assert!(of(&shadow, "r").shadow);
    assert_eq!(of(&shadow, "r").outcome, Outcome::Deny);
    let off = judge(&policy(&form("off")), "transfer", &args);
    assert_eq!((said(&off).as_str(), off.findings.len()), ("allow", 0));
    assert_eq!(said(&judge(&policy(&form("enforce")), "transfer", &args)), "deny argument_rule");
}

#[test]
fn no_value_of_a_call_stands_in_a_finding() {
    let secret = "hunter2-s3cr3t";
    let form = json!({
        "arguments": {
            "p": {"on": {"tools": ["write_file"]}, "argument": "/path", "path": {"root": "/w"}, "mode": "shadow"},
            "q": {"on": {"tools": ["write_file"]}, "argument": "/content", "regex": "[0-9]+", "mode": "shadow"},
            "u": {"on": {"tools": ["fetch"]}, "argument": "/url", "url": {"hosts": ["a.example"]}, "mode": "shadow"},
            "c": {"on": {"tools": ["run_command"]}, "argument": "/command", "argv": {"executables": {"ls": {}}}, "mode": "shadow"}},
        "origins": {"o": {"on": {"tools": ["transfer"]}, "argument": "/to", "from": {"user": true}}},
        "checks": {"h": {"on": {"all": true}, "check": "hidden_characters"}}});
    let policy = policy(&form);
    for (tool, args) in [
        ("write_file", json!({"path": format!("/etc/{secret}"), "content": secret})),
        ("fetch", json!({"url": format!("https://{secret}.example/")})),
        ("run_command", json!({"command": format!("{secret} \u{200b}")})),
        ("transfer", json!({"to": secret, "amount_cents": 1})),
    ] {
        let judgement = judge(&policy, tool, &args);
        let text = serde_json::to_string(&judgement).unwrap();
        assert!(judgement.findings.iter().any(|finding| finding.code.is_some()), "{text}");
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn derived_fields_are_given_back_except_those_of_secrets() {
    let mut tools = catalogue();
    let mut deploy =
        tool("deploy", &json!({"cmd": {"type": "string"}, "path": {"type": "string"}, "token": {"type": "string"}}));
    deploy.derived = serde_json::from_value(json!([
        {"name": "cmd", "from": "/cmd", "kind": "argv"},
        {"name": "where_to", "from": "/path", "kind": "path", "root": "/w"},
        {"name": "token", "from": "/token", "kind": "bytes"}]))
    .unwrap();
    deploy.secret = vec!["/token".to_owned()];
    tools.push(deploy);
    let form = json!({"lists": {"never": {"on": {"tools": ["test"]}}}});
    let policy = compile_with(&form, &tools).unwrap();
    let judgement = judge(&policy, "deploy", &json!({"cmd": "git status", "path": "../x", "token": "abc"}));
    assert_eq!(judgement.decision, Decision::Allow);
    let derived = serde_json::to_value(&judgement.derived).unwrap();
    assert_eq!(
        derived,
        json!({"cmd": {"argv0": "git", "argv_len": 2, "program": "git", "words": ["git", "status"]},
            "where_to": {"had_parent": true, "inside": false, "name": "x", "path_norm": "/x"}})
    );
    let refused = judge(&policy, "deploy", &json!({"cmd": "git status; ls", "path": "x", "token": "abc"}));
    assert_eq!(said(&refused), "deny derived_refused");
    assert_eq!(&*refused.first.unwrap().rule_id, "derived.cmd");
}
