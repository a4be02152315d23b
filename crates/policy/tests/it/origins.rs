//! Origin rules through the engine: the user's words, trusted results, lists, re-encodings.

use serde_json::{Value, json};
use toolgate_policy::{CallStatus, Facts, Judgement, Policy};

use crate::world::{Past, earlier, facts, past, policy, said};

fn ask(policy: &Policy, words: &[&str], history: &[Past], tool: &str, args: &Value) -> Judgement {
    policy.judge(&Facts { user_words: words, earlier: &earlier(history), ..facts(tool, args) })
}

#[test]
fn every_recipient_needs_an_origin() {
    let policy = policy(&json!({"origins": {"r": {"on": {"tools": ["send_mail"]}, "argument": "/to/*", "as": "email",
        "from": {"user": true, "results": [{"tool": "contacts", "at": "/people/*/email"}]}}}}));
    let contacts =
        past("contacts", json!({})).result(r#"{"people":[{"email":"Carol@X.com","note":"mallory@evil.com"}]}"#);
    let words = ["Send it to Bob <bob@x.com> and Carol."];
    for (to, expected) in [
        (json!(["bob@x.com"]), "allow"),
        (json!(["BOB@x.com", "carol@x.com"]), "allow"),
        (json!(["bob@x.com", "mallory@evil.com"]), "ask origin_unknown"),
        (json!(["bob@x.com.evil.com"]), "ask origin_unknown"),
        (json!(["bob%40x.com"]), "ask origin_unknown"),
        (json!(["b\u{43e}b@x.com"]), "ask origin_unknown"),
        (json!(["bob@x.com,mallory@evil.com"]), "ask origin_unknown"),
        (json!(["Bob"]), "ask origin_unknown"),
        (json!([""]), "ask origin_unknown"),
        (json!([5]), "deny argument_wrong_kind"),
        (json!([null]), "deny argument_wrong_kind"),
        (json!([]), "deny argument_missing"),
        (json!("bob@x.com"), "deny argument_wrong_kind"),
    ] {
        let args = json!({"to": to, "body": ""});
        let judgement = ask(&policy, &words, std::slice::from_ref(&contacts), "send_mail", &args);
        assert_eq!(said(&judgement), expected, "{to}");
    }
    assert_eq!(
        said(&ask(&policy, &words, &[], "send_mail", &json!({"to": ["carol@x.com"], "body": ""}))),
        "ask origin_unknown"
    );
}

#[test]
fn only_successful_results_of_the_named_tool_are_trusted() {
    let policy =
        policy(&json!({"origins": {"r": {"on": {"tools": ["pay"]}, "argument": "/iban", "as": "id", "effect": "deny",
        "from": {"results": [{"tool": "contacts"}]}}}}));
    let args = json!({"iban": "DE89370400440532013000", "amount": 1});
    let result = "account DE89370400440532013000 of Carol";
    let says = |history: Past| said(&ask(&policy, &["pay DE89370400440532013000"], &[history], "pay", &args));
    assert_eq!(says(past("contacts", json!({})).result(result)), "allow");
    assert_eq!(says(past("search", json!({})).result(result)), "deny origin_unknown");
    for status in [CallStatus::Failed, CallStatus::NotExecuted, CallStatus::Indeterminate, CallStatus::DryRun] {
        assert_eq!(
            says(past("contacts", json!({})).result(result).status(status)),
            "deny origin_unknown",
            "{status:?}"
        );
    }
    assert_eq!(says(past("contacts", json!({}))), "deny origin_unknown");
    assert_eq!(says(past("contacts", json!({})).result("DE8937040044 0532013000")), "deny origin_unknown");
}

#[test]
fn words_are_not_pieced_together() {
    let policy = policy(&json!({"origins": {"r": {"on": {"tools": ["transfer"]}, "argument": "/to", "as": "text",
        "from": {"user": true, "results": [{"tool": "contacts", "at": "/name"}]}}}}));
    let args = json!({"to": "Bob Evil", "amount_cents": 1});
    for words in
        [vec!["Bob", "Evil"], vec!["Bob. Evil"], vec!["Bob", " Evil"], vec!["xBob Evil"], vec!["Bob Evilx"], vec![]]
    {
        assert_eq!(said(&ask(&policy, &words, &[], "transfer", &args)), "ask origin_unknown", "{words:?}");
    }
    assert_eq!(said(&ask(&policy, &["to BOB\n\tevil, now"], &[], "transfer", &args)), "allow");
    for (result, expected) in [
        (r#"{"name":"bob  evil"}"#, "allow"),
        (r#"{"name":"Bob Evil Jr"}"#, "ask origin_unknown"),
        (r#"{"name":["Bob","Evil"]}"#, "ask origin_unknown"),
        (r#"{"note":"Bob Evil"}"#, "ask origin_unknown"),
        ("Bob Evil", "ask origin_unknown"),
        (r#"{"name":"Bob Evil""#, "ask origin_unknown"),
    ] {
        let history = [past("contacts", json!({})).result(result)];
        assert_eq!(said(&ask(&policy, &[], &history, "transfer", &args)), expected, "{result}");
    }
}

#[test]
fn texts_too_long_to_search_bring_no_origin() {
    let policy =
        policy(&json!({"origins": {"r": {"on": {"tools": ["transfer"]}, "argument": "/to", "from": {"user": true}}}}));
    let args = json!({"to": "Bob", "amount_cents": 1});
    let long = format!("Bob {}", "x ".repeat(300_000));
    assert_eq!(said(&ask(&policy, &[&long], &[], "transfer", &args)), "ask origin_unknown");
}
