//! `toolgate explain`: the same text from a server and from an export, byte for byte, for every way a call can be decided.
//! What is not here: who may ask (`tests/e2e/explain.rs`).

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::{bundle, server_tool, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer};

use crate::program::run;

/// Tools that the policies of `policies` judge, one for each kind of rejection.
const RULED: [&str; 7] = ["listed", "argued", "ordered", "rated", "summed", "sourced", "cedared"];

fn tools(tool: &FakeTool) -> Value {
    let mut tools = json!({"look": server_tool(tool, "look", "read")});
    for name in RULED {
        tools[name] = server_tool(tool, name, "read");
    }
    tools["pay"] = with(server_tool(tool, "pay", "once"), "/requires_approval", json!(true));
    tools["keyed"] = with(server_tool(tool, "keyed", "once"), "/idempotency_key", json!("text"));
    tools["login"] = with(server_tool(tool, "login", "read"), "/redact", json!(["/text"]));
    tools
}

fn policies() -> Value {
    let on = |tool: &str| json!({"tools": [tool]});
    json!({
        "lists": {"never": {"on": on("listed")}},
        "arguments": {"short": {"on": on("argued"), "argument": "/text", "max_len": 3},
            "tried": {"on": on("look"), "argument": "/text", "max_len": 1, "mode": "shadow"}},
        "sequences": {"after_login": {"on": on("ordered"), "only_after": on("pay")}},
        "rates": {"slow": {"on": on("rated"), "max": 1, "window_ms": 600_000}},
        "totals": {"once": {"on": on("summed"), "max_count": 1, "scope": "run"}},
        "origins": {"asked": {"on": on("sourced"), "argument": "/text", "from": {"user": true}, "effect": "deny"}},
        "cedar": {"main": {"text":
            "permit(principal, action, resource);\nforbid(principal, action == Action::\"cedared\", resource);"}}
    })
}

async fn approval(caller: &Caller, session: &str, body: Value) {
    let shown = caller.until(session, "an approval", |s| s["status"] == "waiting_approval").await;
    let approval = &shown["waiting"]["approvals"][0];
    let body = with(body, "/digest", approval["digest"].clone());
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    caller.post(&path, &body).await.expect(200);
}

async fn until_open(caller: &Caller, session: &str, calls: usize) {
    caller.until_events(session, "call_decided", calls).await;
}

/// Runs the program on a thread of its own: the server it asks lives in this one.
async fn program(arguments: Vec<String>) -> (bool, String, String) {
    let output = tokio::task::spawn_blocking(move || run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    let output = output.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The one text that both ways give, and the API too.
async fn explained(caller: &Caller, session: &str, call: &str, export: &str) -> String {
    let online = words(&["explain", "--url", caller.url(), "--key", caller.key(), "--session", session, call]);
    let (good, online, error) = program(online).await;
    assert!(good, "{error}");
    let (good, offline, error) = program(words(&["explain", "--log", export, call])).await;
    assert!(good, "{error}");
    assert_eq!(online, offline);
    let request = caller.request(Method::GET, &format!("/v1/sessions/{session}/calls/{call}/explain"));
    let answer = Caller::send(request.header("accept", "text/plain")).await.expect(200);
    assert_eq!(answer.text, offline);
    assert!(offline.ends_with('\n') && !offline.contains("\n\n"));
    offline
}

#[tokio::test]
async fn a_server_and_an_export_explain_every_decision_alike() {
    let one = |tool: &str, text: &str| FakeModel::calls(&[(tool, &json!({"text": text}).to_string())]);
    let forged = "x\ncause: none at all\u{202e}";
    let model = FakeModel::start(vec![
        one("look", "bb"),
        FakeModel::calls(&[
            ("listed", "{}"),
            ("argued", r#"{"text":"four"}"#),
            ("ordered", "{}"),
            ("rated", "{}"),
            ("rated", "{}"),
            ("summed", "{}"),
            ("summed", "{}"),
            ("sourced", r#"{"text":"secret plan"}"#),
            ("cedared", "{}"),
            (forged, "{}"),
            ("look", "{ no"),
            ("look", r#"{"wrong":1}"#),
        ]),
        one("pay", "10"),
        one("pay", "900"),
        one("keyed", "k1"),
        one("keyed", "k1"),
        one("login", "hunter2"),
        FakeModel::text("done"),
    ])
    .await;
    let tool = FakeTool::ok().await;
    let base = bundle(&model.entry(), &tools(&tool));
    let base = with(with(base, "/policies", policies()), "/default_harness/max_tool_calls", json!(40));
    let (server, caller) = TestServer::with_bundle(&base).await;
    let approver = caller.with_scopes("grace", &["approvals:write", "sessions:read"]).await;
    let session = caller.open("default", "go on").await;
    until_open(&caller, &session, 14).await;
    approval(&approver, &session, json!({"decision": "approve"})).await;
    until_open(&caller, &session, 15).await;
    approval(&approver, &session, json!({"decision": "edit", "arguments": {"text": "90"}})).await;
    caller.until_ended(&session, 1).await;
    caller.verified(&session).await;

    let lines = caller.request(Method::GET, &format!("/v1/sessions/{session}/events?follow=false"));
    let export = Caller::send(lines.header("accept", "application/x-ndjson")).await.expect(200);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("export.ndjson").display().to_string();
    std::fs::write(&file, &export.text).unwrap();

    let calls = caller.events_of(&session, "call_decided").await;
    let mut texts = Vec::new();
    for call in &calls {
        texts.push(explained(&caller, &session, call["call_id"].as_str().unwrap(), &file).await);
    }
    let has = |index: usize, parts: &[&str]| {
        for part in parts {
            assert!(texts[index].contains(part), "{index} lacks {part:?}:\n{}", texts[index]);
        }
    };
    has(
        0,
        &[
            "decision: allow, ",
            "rule: tried (shadow, not enforced) deny argument_rule; looked at ",
            "cause: every layer let it pass\n",
            "\ndispatch: attempt 1 to server",
            "\nend: ok, reported by server",
            ", schema engine jsonschema",
            "\nlayer: schema passed; looked at call.args, tool.parameters\n",
            "\nrun: ended done\n",
            "\nbundle: sha256:",
            "\nprofile: default\n",
        ],
    );
    let rejected = [
        (1, "denylisted", "never"),
        (2, "argument_rule", "short"),
        (3, "sequence_rule", "after_login"),
        (5, "rate_limited", "slow"),
        (7, "cumulative_limit", "once"),
        (8, "origin_unknown", "asked"),
    ];
    for (index, reason, rule) in rejected {
        has(
            index,
            &[
                &format!("decision: reject {reason}, "),
                &format!(", by the policy rule `{rule}` ("),
                "\nlayer: policy decided;",
                &format!("\nrule: {rule} deny "),
                "\nchange: ",
                "\nend: rejected, decision,",
            ],
        );
    }
    has(9, &["decision: reject policy_denied", "\ncedar: deciding main", "\ncedar version: policies "]);
    has(10, &["decision: reject unknown_tool", r"tool: `x\u{a}cause: none at all\u{202e}`, which does not exist"]);
    has(11, &["decision: reject malformed", "\narguments: cannot be read\n"]);
    has(12, &["decision: reject schema_invalid", "\nlayer: schema decided;"]);
    has(
        13,
        &[
            "decision: escalate needs_human_approval",
            "\nanswer: approve by grace, at ",
            "\napproval: apr_",
            "\ndispatch: attempt 1 to server",
            "\nend: ok, reported",
        ],
    );
    let (before, after) = (calls[14]["call_id"].as_str().unwrap(), calls[15]["call_id"].as_str().unwrap());
    has(14, &["\nanswer: edit by grace, at ", &format!("\nedited into: {after}\n"), "\nend: denied, approver,"]);
    has(15, &["decision: allow, ", &format!("\nedited from: {before}\n"), "\narguments by: edit by grace, at "]);
    has(
        17,
        &["decision: reject idempotent_replay", &format!("\nreplay of: {}\n", calls[16]["call_id"].as_str().unwrap())],
    );
    has(18, &["\narguments: {\"text\":\"[redacted]\"}\n", ", shown redacted\n"]);
    assert!(!texts.concat().contains("hunter2"));
    server.stop().await;

    let unknown = format!("call_{}", "0".repeat(32));
    let (good, _, error) = program(words(&["explain", "--log", &file, &unknown])).await;
    assert!(!good && error.contains("unknown_call"), "{error}");
    let cut = export.text.split_once('\n').unwrap().1;
    std::fs::write(&file, cut).unwrap();
    let (good, text, error) = program(words(&["explain", "--log", &file, before])).await;
    assert!(!good && text.is_empty() && error.contains("line 1: sequence 2 follows 0"), "{error}");
    let (good, _, error) = program(words(&["explain", before])).await;
    assert!(!good && error.contains("--session"), "{error}");
}
