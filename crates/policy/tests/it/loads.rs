//! Faults of policies: each is refused when loaded, with its place. Valid rules that are traps are named, and refused where
//! the policy asks for that.

use serde_json::{Value, json};

use crate::world::{catalogue, compile, compile_with, faults, policy};

fn argument(rule: Value) -> Value {
    let mut rule = rule;
    if rule.get("on").is_none() {
        rule["on"] = json!({"tools": ["write_file"]});
    }
    if rule.get("argument").is_none() {
        rule["argument"] = json!("/path");
    }
    json!({"arguments": {"r": rule}})
}

#[test]
fn what_is_no_part_of_the_format_is_refused_with_its_place() {
    for (form, pointer) in [
        (json!({"argument": {}}), "/argument"),
        (json!({"arguments": {"R!": {}}}), "/arguments/R!"),
        (json!({"arguments": {"r": {"on": {"tools": ["a"]}, "argument": "/a", "maximum": 5}}}), "/arguments/r/maximum"),
        (json!({"arguments": {"r": {"on": {"tool": "a"}, "argument": "/a", "max": 5}}}), "/arguments/r/on/tool"),
        (json!({"arguments": {"r": {"on": {"tools": ["a"]}, "argument": "/a", "max": "5"}}}), "/arguments/r/max"),
        (
            json!({"arguments": {"r": {"on": {"tools": ["a"]}, "argument": "/a", "mode": "enforced"}}}),
            "/arguments/r/mode",
        ),
        (
            json!({"arguments": {"r": {"on": {"tools": ["a"]}, "argument": "/a", "effect": "allow"}}}),
            "/arguments/r/effect",
        ),
        (json!({"cedar": {"c": {"text": "x", "mode": "clsoed"}}}), "/cedar/c/mode"),
        (json!({"totals": {"t": {"on": {"all": true}, "max_count": -1, "scope": "run"}}}), "/totals/t/max_count"),
        (json!({"totals": {"t": {"on": {"all": true}, "max_count": 1}}}), "/totals/t"),
        (json!({"rates": {"t": {"on": {"all": true}, "max": 1}}}), "/rates/t"),
        (json!({"lists": []}), "/lists"),
        (json!({"examples": [{"tool": "a", "expect": "allow", "want": 1}]}), "/examples/0/want"),
    ] {
        let found = compile(&form).unwrap_err();
        assert_eq!((found[0].pointer.as_str(), found[0].rule), (pointer, "shape"), "{form}");
        assert!(!found[0].detail.is_empty());
    }
}

#[test]
fn rules_that_point_at_nothing_are_refused() {
    for (form, expected) in [
        (argument(json!({"on": {"tools": ["write_fil"]}, "one_of": ["a"]})), "/arguments/r/on/tools tool_exists"),
        (argument(json!({"on": {"tags": ["nope"]}, "one_of": ["a"]})), "/arguments/r/on/tags tag_exists"),
        (
            argument(json!({"on": {"profiles": ["nope"], "all": true}, "one_of": ["a"]})),
            "/arguments/r/on/profiles profile_exists",
        ),
        (argument(json!({"on": {}, "one_of": ["a"]})), "/arguments/r/on selector"),
        (argument(json!({"on": {"all": true, "tools": ["write_file"]}, "one_of": ["a"]})), "/arguments/r/on selector"),
        (
            argument(json!({"on": {"tools": ["write_file"], "venues": ["server"]}, "one_of": ["a"]})),
            "/arguments/r/on selects_something",
        ),
        (argument(json!({"argument": "/pth", "one_of": ["a"]})), "/arguments/r/argument argument_exists"),
        (argument(json!({"argument": "path", "one_of": ["a"]})), "/arguments/r/argument pointer"),
        (argument(json!({"argument": "/path/*", "one_of": ["a"]})), "/arguments/r/argument argument_exists"),
        (argument(json!({})), "/arguments/r condition"),
        (argument(json!({"one_of": []})), "/arguments/r/one_of condition"),
        (argument(json!({"max": 5})), "/arguments/r/argument kind_fits"),
        (argument(json!({"min_len": 5, "max_len": 4})), "/arguments/r/max_len contradiction"),
        (argument(json!({"one_of": ["a"], "not_one_of": ["a"]})), "/arguments/r/not_one_of contradiction"),
        (
            argument(json!({"on": {"tools": ["transfer"]}, "argument": "/amount_cents", "min": 5, "max": 4.5})),
            "/arguments/r/max contradiction",
        ),
        (argument(json!({"regex": "a(b"})), "/arguments/r/regex pattern"),
        (argument(json!({"regex": "a)|(b"})), "/arguments/r/regex pattern"),
        (argument(json!({"regex": "(?=a)b"})), "/arguments/r/regex pattern"),
        (argument(json!({"regex": "(a{1000}){1000}"})), "/arguments/r/regex pattern"),
        (argument(json!({"path": {"root": "w"}})), "/arguments/r/path/root root"),
        (argument(json!({"path": {"root": "/w", "under": []}})), "/arguments/r/path/under path"),
        (argument(json!({"path": {"root": "/w", "not_under": ["/"]}})), "/arguments/r/path/not_under/0 contradiction"),
        (argument(json!({"path": {"root": "/w", "under": ["../x"]}})), "/arguments/r/path/under/0 path"),
        (argument(json!({"path": {"root": "/w", "not_named": ["a/b"]}})), "/arguments/r/path/not_named/0 name"),
        (argument(json!({"url": {"hosts": []}})), "/arguments/r/url/hosts hosts"),
        (argument(json!({"url": {"hosts": ["https://a.example"]}})), "/arguments/r/url/hosts host"),
        (argument(json!({"url": {"hosts": ["*.com"]}})), "/arguments/r/url/hosts host"),
        (argument(json!({"url": {"hosts": ["a*.example"]}})), "/arguments/r/url/hosts host"),
        (argument(json!({"url": {"hosts": ["a.example:443"]}})), "/arguments/r/url/hosts host"),
        (argument(json!({"url": {"hosts": ["*"], "not_hosts": ["*"]}})), "/arguments/r/url/not_hosts host"),
        (argument(json!({"url": {"hosts": ["*"], "schemes": ["https://"]}})), "/arguments/r/url/schemes scheme"),
        (argument(json!({"argv": {}})), "/arguments/r/argv argv"),
        (argument(json!({"argv": {"executables": {}}})), "/arguments/r/argv/executables argv"),
        (argument(json!({"argv": {"executables": {"git push": {}}}})), "/arguments/r/argv/executables/git push argv"),
        (
            argument(json!({"argv": {"executables": {"ls": {}}, "not_executables": ["LS"]}})),
            "/arguments/r/argv/executables/ls contradiction",
        ),
        (
            argument(json!({"argv": {"executables": {"ls": {"flags_denied": ["l"]}}}})),
            "/arguments/r/argv/executables/ls/flags_denied flag",
        ),
        (
            argument(json!({"argv": {"executables": {"ls": {"exact": [[]], "max_args": 1}}}})),
            "/arguments/r/argv/executables/ls contradiction",
        ),
        (json!({}), " policy"),
        (
            json!({"lists": {"x": {"on": {"all": true}}}, "arguments": {"x": {"on": {"tools": ["search"]}, "argument": "/query", "max_len": 1}}}),
            "/arguments/x id_unique",
        ),
        (json!({"sequences": {"s": {"on": {"all": true}}}}), "/sequences/s sequence"),
        (
            json!({"sequences": {"s": {"on": {"tools": ["test"]}, "only_after": {"tools": ["test"]}}}}),
            "/sequences/s/only_after unreachable",
        ),
        (
            json!({"sequences": {"s": {"on": {"tools": ["test"]}, "after": {"all": true, "profiles": ["all"]}}}}),
            "/sequences/s/after/profiles selector",
        ),
        (json!({"rates": {"s": {"on": {"all": true}, "max": 0, "window_ms": 1}}}), "/rates/s/max bound"),
        (json!({"totals": {"s": {"on": {"all": true}, "scope": "run"}}}), "/totals/s total"),
        (json!({"totals": {"s": {"on": {"all": true}, "scope": "run", "max_count": 0}}}), "/totals/s/max_count bound"),
        (
            json!({"totals": {"s": {"on": {"tools": ["pay"]}, "scope": "run", "sum": {"argument": "/amount", "max": -1}}}}),
            "/totals/s/sum/max bound",
        ),
        (
            json!({"origins": {"o": {"on": {"tools": ["pay"]}, "argument": "/iban", "from": {}}}}),
            "/origins/o/from sources",
        ),
        (
            json!({"origins": {"o": {"on": {"tools": ["pay"]}, "argument": "/iban", "from": {"results": [{"tool": "x"}]}}}}),
            "/origins/o/from/results/0/tool tool_exists",
        ),
        (
            json!({"checks": {"c": {"on": {"tools": ["pay"]}, "argument": "/amount", "check": "amount_implausible"}}}),
            "/checks/c/above bound",
        ),
        (json!({"checks": {"c": {"on": {"tools": ["pay"]}, "check": "amount_zero"}}}), "/checks/c/argument argument"),
        (json!({"repeats": {"warn": 1}}), "/repeats/warn bound"),
        (json!({"repeats": {"refuse": 9}}), "/repeats/end bound"),
    ] {
        let found = faults(&form);
        assert!(found.iter().any(|fault| fault == expected), "{form}: {found:?}");
    }
}

#[test]
fn all_faults_are_found_at_once() {
    let form = json!({
        "lists": {"a": {"on": {"tools": ["nope"]}}},
        "rates": {"b": {"on": {"all": true}, "max": 0, "window_ms": 0}},
        "cedar": {"c": {"text": "permit(principal, action, resource) when { context.input.nope == 1 };"}}});
    let found = faults(&form);
    for pointer in ["/cedar/c/text", "/lists/a/on/tools", "/rates/b/max", "/rates/b/window_ms"] {
        assert!(found.iter().any(|fault| fault.starts_with(pointer)), "{pointer}: {found:?}");
    }
}

#[test]
fn derived_fields_are_checked_with_the_tools() {
    for (derived, expected) in [
        (json!([{"name": "a", "from": "/nope", "kind": "bytes"}]), "/tools/run_command/derived/0/from argument_exists"),
        (json!([{"name": "a", "from": "/command", "kind": "count"}]), "/tools/run_command/derived/0/from kind_fits"),
        (json!([{"name": "a", "from": "/command", "kind": "path"}]), "/tools/run_command/derived/0/root root"),
        (
            json!([{"name": "a", "from": "/command", "kind": "path", "root": "x"}]),
            "/tools/run_command/derived/0/root root",
        ),
        (
            json!([{"name": "a", "from": "/command", "kind": "bytes", "root": "/x"}]),
            "/tools/run_command/derived/0/root root",
        ),
        (json!([{"name": "A", "from": "/command", "kind": "bytes"}]), "/tools/run_command/derived/0/name name"),
        (
            json!([{"name": "a", "from": "/command", "kind": "bytes"}, {"name": "a", "from": "/cwd", "kind": "bytes"}]),
            "/tools/run_command/derived/1/name name_unique",
        ),
    ] {
        let mut tools = catalogue();
        tools.iter_mut().find(|tool| tool.id == "run_command").unwrap().derived =
            serde_json::from_value(derived.clone()).unwrap();
        let found = compile_with(&json!({"lists": {"x": {"on": {"all": true}}}}), &tools).unwrap_err();
        let found: Vec<String> = found.iter().map(|fault| format!("{} {}", fault.pointer, fault.rule)).collect();
        assert!(found.iter().any(|fault| fault == expected), "{derived}: {found:?}");
    }
}

#[test]
fn examples_are_judged_when_the_policy_is_loaded() {
    let form = |expect: &str| {
        json!({"totals": {"few": {"on": {"tools": ["transfer"]}, "scope": "run", "sum": {"argument": "/amount_cents", "max": 10}}},
            "examples": [{"tool": "transfer", "args": {"to": "a", "amount_cents": 6},
                "earlier": [{"tool": "transfer", "args": {"to": "b", "amount_cents": 5}}], "expect": expect}]})
    };
    for expect in ["deny", "deny:few", "deny:cumulative_limit"] {
        let _ = policy(&form(expect));
    }
    for expect in ["allow", "ask", "deny:other"] {
        let found = compile(&form(expect)).unwrap_err();
        assert_eq!((found[0].pointer.as_str(), found[0].rule), ("/examples/0", "example_fails"), "{expect}");
        assert!(found[0].detail.contains("`deny` from `few` (cumulative_limit)"), "{}", found[0]);
    }
    assert_eq!(faults(&form("reject")), ["/examples/0/expect example"]);
}

#[test]
fn traps_are_named_and_refused_where_that_is_asked_for() {
    let form = |lint: &str, argv: Value| {
        let mut form = argument(json!({"on": {"tools": ["exec"]}, "argument": "/argv", "argv": argv}));
        form["lint"] = json!(lint);
        form
    };
    for (argv, expected) in [
        (json!({"executables": {"python3.12": {}}}), "allows_interpreter"),
        (json!({"executables": {"/usr/bin/env": {"first": ["ls"]}}}), "allows_interpreter"),
        (json!({"executables": {"find": {"flags_denied": ["-exec"]}}}), "allows_trap_flag"),
        (json!({"executables": {"tar": {}}}), "allows_trap_flag"),
        (json!({"not_executables": ["rm"]}), "denies_by_name"),
    ] {
        let warned = policy(&form("warn", argv.clone()));
        assert_eq!(warned.lint().iter().map(|trap| trap.rule).collect::<Vec<_>>(), [expected], "{argv}");
        let refused = compile(&form("strict", argv.clone())).unwrap_err();
        assert_eq!(refused.iter().map(|trap| trap.rule).collect::<Vec<_>>(), [expected], "{argv}");
    }
    let exact =
        json!({"executables": {"python3": {"exact": [["-m", "pytest"]]}, "find": {"flags_allowed": ["-name"]}}});
    assert_eq!(policy(&form("strict", exact)).lint(), []);
}

#[test]
fn the_checklist_finds_free_text_without_a_rule_and_tools_nobody_may_use() {
    let form = json!({
        "arguments": {"q": {"on": {"tools": ["search"]}, "argument": "/query", "max_len": 100},
            "to": {"on": {"tools": ["transfer"]}, "argument": "/to", "max_len": 100, "mode": "shadow"}},
        "origins": {"iban": {"on": {"tools": ["pay"]}, "argument": "/iban", "from": {"user": true}},
            "mail": {"on": {"tools": ["send_mail"], "profiles": ["all"]}, "argument": "/to/*", "from": {"user": true}}},
        "cedar": {"m": {"text": "permit(principal, action in [Action::\"exec\", Action::\"search\", Action::\"pay\"], resource);
            permit(principal, action == Action::\"fetch\", resource) when { context.input.url like \"https://a.example/*\" };"}}});
    let found: Vec<String> = policy(&form)
        .checklist()
        .iter()
        .map(|fault| format!("{} {} {}", fault.pointer, fault.rule, fault.detail))
        .collect();
    let has = |words: &[&str]| found.iter().any(|line| words.iter().all(|word| line.contains(word)));
    for place in [["exec", "`/argv/*`"], ["send_mail", "`/body`"], ["send_mail", "`/to/*`"], ["transfer", "`/to`"]] {
        assert!(has(&["free_form_argument", place[0], place[1]]), "{place:?} {found:#?}");
    }
    for place in ["`/query`", "`/iban`", "`/url`", "write_file", "`/amount"] {
        assert!(!has(&["free_form_argument", place]), "{place} {found:#?}");
    }
    for tool in ["transfer", "write_file", "contacts"] {
        assert!(has(&["never_permitted", tool]), "{tool} {found:#?}");
    }
    assert!(!has(&["never_permitted", "fetch"]) && !has(&["never_permitted", "exec"]), "{found:#?}");
}
