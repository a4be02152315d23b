//! Policy files: the four safety rules, default deny, escalation, shadow, what a policy may read.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate_policy::{Code, Facts, Judgement, Outcome, Policy, Principal, SessionFacts};

use crate::world::{catalogue, compile, compile_with, earlier, facts, faults, judge, of, past, policy, said, tool};

fn set(text: &str) -> Value {
    json!({"cedar": {"main": {"text": text}}})
}

fn cedar(text: &str) -> Policy {
    policy(&set(text))
}

fn refusal(text: &str) -> String {
    compile(&set(text)).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const READS: &str = "permit(principal, action in Action::\"class:read\", resource);";

#[test]
fn what_no_policy_permits_is_denied_and_forbid_wins() {
    let policy = cedar(&format!(
        "{READS}
        @id(\"no-secrets\") forbid(principal, action == Action::\"read_file\", resource) when {{ context.input.path like \"*secret*\" }};"
    ));
    let read = |path: &str| judge(&policy, "read_file", &json!({"path": path}));
    assert_eq!(said(&read("a")), "allow");
    assert_eq!(read("a").cedar.unwrap().deciding, ["main/p1"]);
    let denied = read("a/secret/b");
    assert_eq!(said(&denied), "deny policy_forbids");
    assert_eq!(&*denied.first.clone().unwrap().rule_id, "main/no-secrets");
    assert_eq!(*of(&denied, "main/no-secrets").looked_at, ["context.input.path"]);
    let unpermitted = judge(&policy, "transfer", &json!({"to": "a", "amount_cents": 1}));
    assert_eq!(said(&unpermitted), "deny policy_not_permitted");
    let answer = denied.cedar.unwrap();
    assert_eq!((answer.policy_hash.len(), answer.schema_hash.len()), (64, 64));
    assert!(answer.engine.starts_with("cedar-policy 4."), "{}", answer.engine);
}

#[test]
fn any_escalating_permit_asks() {
    let policy = cedar(
        "permit(principal, action, resource);
        @id(\"big\") @effect(\"escalate\") permit(principal, action == Action::\"transfer\", resource) when { context.input.amount_cents > 100 };",
    );
    let send = |cents: i64| judge(&policy, "transfer", &json!({"to": "a", "amount_cents": cents}));
    assert_eq!(said(&send(100)), "allow");
    let big = send(101);
    assert_eq!(said(&big), "ask policy_escalates");
    assert_eq!(&*big.first.unwrap().rule_id, "main/big");
}

#[test]
fn entities_and_extension_calls_in_arguments_are_never_read() {
    let mut tools = catalogue();
    let mut free = tool("free", &json!({"box": {"type": "object", "properties": {"path": {"type": "string"}}}}));
    free.parameters["properties"]["box"]["additionalProperties"] = json!(true);
    tools.push(free);
    let policy = compile_with(
        &set("permit(principal, action, resource);
            forbid(principal, action == Action::\"free\", resource) when { context.input.box has path && context.input.box.path like \"*/.git/*\" };
            forbid(principal, action == Action::\"read_file\", resource) when { context.input.path like \"*/.git/*\" };"),
        &tools,
    )
    .unwrap();
    let entity = json!({"__entity": {"type": "Agent", "id": "root"}});
    let extension = json!({"__extn": {"fn": "decimal", "arg": "1.0"}});
    for value in [entity, extension, json!({"__expr": "1"}), json!(1), json!(null), json!(["a"])] {
        let judgement = judge(&policy, "read_file", &json!({"path": value}));
        assert_eq!(said(&judgement), "deny context_invalid", "{value}");
        let inside = judge(&policy, "free", &json!({"box": {"path": value}}));
        let expected = if value.is_null() { "allow" } else { "deny context_invalid" };
        assert_eq!(said(&inside), expected, "{value}");
        // Beside the declared fields it is data that no policy sees, and never more than that.
        assert_eq!(
            said(&judge(&policy, "free", &json!({"box": value}))),
            match &value {
                Value::Object(_) => "allow",
                _ => "deny context_invalid",
            }
        );
    }
}

#[test]
fn a_policy_that_fails_denies_even_where_another_permits() {
    let policy = cedar(
        "permit(principal, action, resource);
        @id(\"sum\") forbid(principal, action == Action::\"transfer\", resource) when { context.input.amount_cents + 9223372036854775807 == 5 };",
    );
    let judgement = judge(&policy, "transfer", &json!({"to": "a", "amount_cents": 1}));
    assert_eq!(said(&judgement), "deny policy_fault");
    assert_eq!(&*judgement.first.unwrap().rule_id, "main/sum");
    assert_eq!(judgement.cedar.unwrap().failed, ["main/sum"]);
    assert_eq!(said(&judge(&policy, "transfer", &json!({"to": "a", "amount_cents": -1}))), "allow");
}

#[test]
fn arguments_that_do_not_fit_the_schema_are_denied() {
    let policy = cedar("permit(principal, action, resource);");
    for args in [
        json!({}),
        json!({"to": "a"}),
        json!({"to": "a", "amount_cents": null}),
        json!({"to": "a", "amount_cents": 1.5}),
        json!({"to": "a", "amount_cents": "1"}),
        json!({"to": "a", "amount_cents": u64::MAX}),
        json!({"to": 1, "amount_cents": 1}),
        json!([]),
        json!(null),
    ] {
        let judgement = judge(&policy, "transfer", &args);
        assert_eq!(said(&judgement), "deny context_invalid", "{args}");
    }
    assert_eq!(said(&judge(&policy, "pay", &json!({"iban": "a", "amount": 98.7654}))), "allow");
    assert_eq!(said(&judge(&policy, "pay", &json!({"iban": "a", "amount": 98.76541}))), "deny context_invalid");
    assert_eq!(said(&judge(&policy, "transfer", &json!({"to": "a", "amount_cents": 2.0}))), "allow");
}

#[test]
fn what_policies_cannot_see_is_named_to_them() {
    let mut tools = catalogue();
    let mut free = tool("free", &json!({"a": {"type": "string"}}));
    free.parameters["additionalProperties"] = json!(true);
    tools.push(free);
    let text = "permit(principal, action == Action::\"free\", resource) when { context.unseen.isEmpty() };";
    let policy = compile_with(&set(text), &tools).unwrap();
    assert_eq!(said(&judge(&policy, "free", &json!({"a": "x"}))), "allow");
    assert_eq!(said(&judge(&policy, "free", &json!({"a": "x", "b": 1}))), "deny policy_not_permitted");
}

#[test]
fn policies_see_session_principal_history_and_derived_fields() {
    let mut tools = catalogue();
    for tool in &mut tools {
        if tool.id == "run_command" {
            tool.derived = serde_json::from_value(
                json!([{"name": "cmd", "from": "/command", "kind": "argv", "on_refused": "ask"}]),
            )
            .unwrap();
        }
    }
    let text = "
        permit(principal in Role::\"ops\", action == Action::\"run_command\", resource)
            when { context.derived has cmd && [\"git\", \"ls\"].contains(context.derived.cmd.argv0) && context.derived.cmd.argv_len < 3 };
        permit(principal, action == Action::\"transfer\", resource)
            when { context.evidence.tested >= 1 && context.counts.transfer < 2 && context.session.step <= 5
                && principal.tenant == \"acme\" && !(context.session has label && context.session.label == \"untrusted\")
                && context.tool.tags.contains(\"money\") };";
    let policy = compile_with(&set(text), &tools).unwrap();
    let run =
        |command: &str, roles: &[&str]| {
            let args = json!({"command": command});
            said(&policy.judge(&Facts {
                principal: Principal { tenant: "acme", id: "a", roles },
                ..facts("run_command", &args)
            }))
        };
    assert_eq!(run("git status", &["ops"]), "allow");
    assert_eq!(run("git status", &["dev"]), "deny policy_not_permitted");
    assert_eq!(run("rm x", &["ops"]), "deny policy_not_permitted");
    assert_eq!(run("git status; ls", &["ops"]), "deny policy_not_permitted");

    let args = json!({"to": "a", "amount_cents": 1});
    let send = |history: &[crate::world::Past], session: SessionFacts<'_>| -> Judgement {
        policy.judge(&Facts { earlier: &earlier(history), session, ..facts("transfer", &args) })
    };
    let session = facts("transfer", &args).session;
    let tested = past("test", json!({}));
    let sent = past("transfer", args.clone());
    assert_eq!(said(&send(std::slice::from_ref(&tested), session)), "allow");
    assert_eq!(said(&send(&[], session)), "deny policy_not_permitted");
    assert_eq!(said(&send(&[tested.clone().run(2)], session)), "deny policy_not_permitted");
    assert_eq!(said(&send(&[tested.clone(), sent.clone()], session)), "allow");
    assert_eq!(said(&send(&[tested.clone(), sent.clone(), sent], session)), "deny policy_not_permitted");
    assert_eq!(
        said(&send(std::slice::from_ref(&tested), SessionFacts { step: 6, ..session })),
        "deny policy_not_permitted"
    );
    let labelled = SessionFacts { label: Some("untrusted"), ..session };
    assert_eq!(said(&send(&[tested], labelled)), "deny policy_not_permitted");
}

#[test]
fn groups_name_class_venue_risk_and_tag() {
    for (group, yes) in
        [("class:read", "contacts"), ("venue:client", "write_file"), ("risk:medium", "transfer"), ("tag:money", "pay")]
    {
        let policy = cedar(&format!("permit(principal, action in [Action::\"{group}\"], resource);"));
        let args = json!({"path": "a", "content": "", "to": "a", "amount_cents": 1, "iban": "a", "amount": 1});
        let known = catalogue().into_iter().find(|tool| tool.id == yes).unwrap();
        let names: BTreeSet<String> = known.parameters["properties"].as_object().unwrap().keys().cloned().collect();
        let args: Value = args
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| names.contains(*name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(said(&judge(&policy, yes, &args)), "allow", "{group}");
        let other = if group == "risk:medium" { continue } else { "fetch" };
        assert_eq!(said(&judge(&policy, other, &json!({"url": "x"}))), "deny policy_not_permitted", "{group}");
    }
}

#[test]
fn a_shadow_set_is_judged_with_the_others_and_decides_nothing() {
    let form = json!({"cedar": {
        "main": {"text": "permit(principal, action, resource);"},
        "next": {"text": "@id(\"no-money\") forbid(principal, action in Action::\"tag:money\", resource);", "mode": "shadow"},
        "old": {"text": "forbid(principal, action, resource);", "mode": "off"}}});
    let policy = policy(&form);
    let judgement = judge(&policy, "pay", &json!({"iban": "a", "amount": 1}));
    assert_eq!(said(&judgement), "allow");
    let shadow = of(&judgement, "next");
    assert_eq!((shadow.shadow, shadow.outcome, shadow.code), (true, Outcome::Deny, Some(Code::PolicyForbids)));
    assert_eq!(*shadow.looked_at, ["next/no-money"]);
    let search = judge(&policy, "search", &json!({"query": "x"}));
    assert_eq!(of(&search, "next").outcome, Outcome::Pass);
}

#[test]
fn a_rule_that_reads_what_no_tool_has_is_an_error_with_its_place() {
    for (text, words) in [
        (
            "permit(principal, action == Action::\"read_file\", resource)\n  when { context.input.pth == \"a\" };",
            "line 2",
        ),
        ("permit(principal, action == Action::\"read_fil\", resource);", "read_fil"),
        ("permit(principal, action, resource) when { context.input.path == \"a\" };", "path"),
        ("permit(principal, action, resource) when { context.input has pth };", "context.input.pth"),
        (
            "permit(principal, action, resource) when { context.input has pth || context.input has path };",
            "context.input.pth",
        ),
        ("forbid(principal, action, resource) when { context.input has path && context.input.path == 5 };", "type"),
        ("permit(principal, action, resource) when { context.counts.trnsfer > 1 };", "trnsfer"),
        ("permit(principal, action, resource) when { context.evidence has nothing };", "context.evidence.nothing"),
        ("permit(principal, action in Action::\"tag:nope\", resource);", "tag:nope"),
        ("permit(principal == User::\"a\", action, resource);", "User"),
        ("permit(principal, action == Action::\"run_command\", resource) when { context.input.cwd == \"a\" };", "cwd"),
        ("permit(principal, action, resource) when { 1 == 2 };", "false"),
        ("permit(principal, action, resource", "line 1, column"),
        ("permit(principal == ?principal, action, resource);", "template"),
        ("", "has no policy"),
        ("// nothing", "has no policy"),
        ("@efect(\"escalate\") permit(principal, action, resource);", "`@efect` is unknown"),
        ("@effect(\"ask\") permit(principal, action, resource);", "escalate"),
        ("@effect(\"escalate\") forbid(principal, action, resource);", "a forbid forbids"),
        ("@id(\"A B\") permit(principal, action, resource);", "1 to 64"),
        (
            "@id(\"a\") permit(principal, action, resource); @id(\"a\") permit(principal, action, resource);",
            "used twice",
        ),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with("/cedar/main/text: "), "{text}: {refusal}");
        assert!(refusal.contains(words), "{text}: {refusal}");
    }
}

#[test]
fn sets_are_bounded() {
    let policies = "permit(principal, action, resource);".repeat(201);
    assert!(refusal(&policies).contains("more than 200 policies"));
    let long = format!("permit(principal, action, resource); // {}", "x".repeat(65_536));
    assert!(refusal(&long).contains("more than 65536 bytes"));
    let sets: serde_json::Map<String, Value> =
        (0..17).map(|idx| (format!("s{idx}"), json!({"text": "permit(principal, action, resource);"}))).collect();
    assert_eq!(faults(&json!({"cedar": sets})), ["/cedar bound"]);
}

#[test]
fn hashes_name_the_enforced_text_and_the_tools() {
    let versions = |form: &Value| {
        let policy = policy(form);
        let (text, schema, _) = policy.cedar_versions().unwrap();
        (text.to_owned(), schema.to_owned())
    };
    let one = versions(&set(READS));
    assert_eq!(versions(&set(READS)), one);
    let other = versions(&set(&format!("{READS}\n")));
    assert_ne!(other.0, one.0);
    assert_eq!(other.1, one.1);
    let mut tools = catalogue();
    tools.push(tool("more", &json!({})));
    let more = compile_with(&set(READS), &tools).unwrap();
    assert_ne!(more.cedar_versions().unwrap().1, one.1);
}
