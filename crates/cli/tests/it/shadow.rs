//! `toolgate policy shadow`: rules in shadow decide nothing, and what they would have done is in the log and in the sum.

use reqwest::Method;
use serde_json::json;
use toolgate_tests::world::{bundle, server_tool, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer};

use crate::program::run;

#[tokio::test]
async fn rules_in_shadow_are_summed_up_and_decide_nothing() {
    let one = |text: &str| FakeModel::calls(&[("look", &json!({"text": text}).to_string())]);
    let model = FakeModel::start(vec![one("long"), one("a"), one("a"), one("a"), FakeModel::text("done")]).await;
    let tool = FakeTool::ok().await;
    let look = with(server_tool(&tool, "look", "read"), "/tags", json!(["seen"]));
    let policies = json!({
        "arguments": {"short": {"on": {"tools": ["look"]}, "argument": "/text", "max_len": 3, "mode": "shadow"},
            "asking": {"on": {"tools": ["look"]}, "argument": "/text", "max_len": 3, "mode": "shadow", "effect": "ask"},
            "enforced": {"on": {"tools": ["look"]}, "argument": "/text", "max_len": 100}},
        "cedar": {"tried": {"text": "permit(principal, action, resource) when {context.input has text && context.input.text != \"long\"};", "mode": "shadow"}},
        "repeats": {"warn": 2, "refuse": 3, "end": 4, "mode": "shadow"},
        "evidence": {"checked": {"min": {"seen": 9}, "mode": "shadow"}}
    });
    let bundle = with(bundle(&model.entry(), &json!({"look": look})), "/policies", policies);
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let session = caller.open("default", "go on").await;
    let ended = caller.until_ended(&session, 1).await;
    assert_eq!(ended["run"]["ending"], "done", "{ended:#}");
    caller.verified(&session).await;
    for call in caller.events_of(&session, "call_decided").await {
        assert_eq!(call["decision"], "allow", "{call:#}");
    }
    assert_eq!(tool.journal().len(), 4);

    let lines = caller.request(Method::GET, &format!("/v1/sessions/{session}/events?follow=false"));
    let export = Caller::send(lines.header("accept", "application/x-ndjson")).await.expect(200);
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.ndjson"), dir.path().join("two.ndjson"));
    for file in [&one, &two] {
        std::fs::write(file, &export.text).unwrap();
    }
    let (one, two) = (one.display().to_string(), two.display().to_string());
    let report = |arguments: Vec<String>| {
        tokio::task::spawn_blocking(move || {
            let words: Vec<&str> =
                ["policy", "shadow"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            let output = run(&words);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        })
    };
    let row = |text: &str, rule: &str| -> Vec<u64> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(rule));
        let line = line.expect(rule);
        line.split_whitespace().skip(1).map(|cell| cell.parse().unwrap()).collect()
    };
    let text = report(vec![one.clone(), two]).await.unwrap();
    // Looked at, flagged, would ask, would deny, stricter; both exports hold the same session.
    assert_eq!(row(&text, "short"), [8, 0, 0, 2, 2], "{text}");
    assert_eq!(row(&text, "asking"), [8, 0, 2, 0, 2], "{text}");
    assert_eq!(row(&text, "checked"), [2, 0, 0, 2, 2], "{text}");
    // The second `a` is warned about, the third would be refused.
    assert_eq!(row(&text, "repeats"), [4, 2, 0, 2, 2], "{text}");
    assert_eq!(row(&text, "tried").get(3), Some(&2), "{text}");
    assert!(!text.contains("enforced"), "{text}");
    assert!(text.ends_with("2 logs, 8 calls decided, 2 runs ended\n"), "{text}");

    let text = report(vec!["--list".to_owned(), one.clone()]).await.unwrap();
    let long = caller.events_of(&session, "call_decided").await[0]["call_id"].as_str().unwrap().to_owned();
    assert!(text.contains(&format!(": {long} was allow, would be reject\n")), "{text}");
    assert!(text.contains(&format!(": {long} was allow, would be escalate\n")), "{text}");
    assert!(text.contains(": the end of the run was allow, would be reject\n"), "{text}");
    drop(server);
}

#[test]
fn what_is_no_export_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    std::fs::write(&file, "{}\n").unwrap();
    let output = run(&["policy", "shadow", &file.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("is no export: line 1: "), "{error}");
    assert_eq!(run(&["policy", "shadow"]).status.code(), Some(2));
}
