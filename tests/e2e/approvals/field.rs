//! Failures of approvals that people reported in public: FC-C14, FC-C15, FC-E06, FC-E10.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate_tests::caller::Answer;
use toolgate_tests::world::{bundle, field_case, server_tool, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer};

/// A case's own step.
fn step<'a>(case: &'a Value, what: &str) -> &'a Value {
    let steps = case["given"]["steps"].as_array().unwrap();
    steps.iter().find(|step| step["do"] == what).unwrap()
}

/// The model's answer that asks for the calls of a step, with further ones.
fn answer(step: &Value, further: &[(&str, &str)]) -> Value {
    let calls = step["calls"].as_array().unwrap();
    let mut texts: Vec<(String, String)> = Vec::new();
    for call in calls {
        texts.push((call["tool"].as_str().unwrap().to_owned(), call["args"].to_string()));
    }
    let own = texts.iter().map(|(tool, args)| (tool.as_str(), args.as_str()));
    FakeModel::calls(&own.chain(further.iter().copied()).collect::<Vec<_>>())
}

/// The cases' `transfer`, `write_file` and `run_command`; the first and the last wait for a human who did not ask for the work.
fn setting(model: &FakeModel, tool: &FakeTool) -> Value {
    let string = json!({"type": "string"});
    let takes = |name: &str, properties: Value| {
        with(server_tool(tool, name, "once"), "/parameters", json!({"type": "object", "properties": properties}))
    };
    let asked = |definition: Value| with(definition, "/requires_approval", json!(true));
    let tools = json!({
        "transfer": asked(takes("transfer", json!({"to": string, "amount_cents": {"type": "integer"}}))),
        "write_file": takes("write_file", json!({"path": string, "content": string})),
        "run_command": asked(takes("run_command", json!({"command": string}))),
    });
    with(bundle(&model.entry(), &tools), "/profiles/default/approval", json!({}))
}

/// The open approvals of a session, in the order of its calls.
async fn waiting(caller: &Caller, id: &str, count: usize) -> Vec<Value> {
    let enough = |session: &Value| session["waiting"]["approvals"].as_array().is_some_and(|all| all.len() == count);
    let session = caller.until(id, "approvals", enough).await;
    session["waiting"]["approvals"].as_array().unwrap().clone()
}

async fn decide(caller: &Caller, approval: &Value, decision: &str) -> Answer {
    let body = json!({"decision": decision, "digest": approval["digest"]});
    caller.post(&format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap()), &body).await
}

fn executed(tool: &FakeTool) -> Vec<Value> {
    let ran = tool.journal().into_iter();
    ran.map(|ran| json!([ran.tool, serde_json::from_str::<Value>(&ran.body).unwrap()])).collect()
}

#[tokio::test]
async fn c14_a_pending_approval_survives_a_restart_and_is_used_once() {
    let case = field_case("FC-C14");
    let model = FakeModel::start(vec![answer(step(&case, "calls"), &[]), FakeModel::text("moved")]).await;
    let tool = FakeTool::ok().await;
    let (mut server, caller) = TestServer::with_bundle(&setting(&model, &tool)).await;
    let reviewer = caller.with_scopes("grace", &["approvals:write"]).await;
    let id = caller.open("default", "move it").await;
    let approval = waiting(&caller, &id, 1).await.remove(0);
    server.restart().await;
    let (caller, reviewer) = (server.caller(), reviewer.at(server.url()));
    assert_eq!(caller.session(&id).await["status"], "waiting_approval");
    let pending = reviewer.get("/v1/approvals?status=pending").await.expect(200).json();
    let calls: Vec<&Value> = pending["items"].as_array().unwrap().iter().map(|item| &item["call_id"]).collect();
    assert_eq!(calls, [&approval["call_id"]]);
    let first = decide(&reviewer, &approval, "approve").await.expect(200).json();
    assert_eq!(decide(&reviewer, &approval, "approve").await.expect(200).json(), first, "the recorded answer");
    caller.until_ended(&id, 1).await;
    assert_eq!(decide(&reviewer, &approval, "approve").await.expect(200).json(), first);
    assert_eq!(Some(tool.journal().len() as u64), case["expect"]["executions"].as_u64());
    let asked = caller.events_of(&id, "call_decided").await;
    let decided = caller.events_of(&id, "approval_decided").await;
    assert_eq!(asked[0]["approval"]["id"], approval["id"]);
    assert_eq!((decided.len(), &decided[0]["by"]), (1, &json!("grace")));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn c15_equal_calls_have_approvals_of_their_own() {
    let case = field_case("FC-C15");
    let model = FakeModel::start(vec![answer(step(&case, "calls"), &[]), FakeModel::text("moved")]).await;
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&setting(&model, &tool)).await;
    let reviewer = caller.with_scopes("grace", &["approvals:write"]).await;
    let id = caller.open("default", "move it").await;
    let approvals = waiting(&caller, &id, 3).await;
    let ids: BTreeSet<&str> = approvals.iter().map(|approval| approval["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    for (approval, decision) in approvals.iter().zip(["deny", "approve", "approve"]) {
        decide(&reviewer, approval, decision).await.expect(200);
    }
    caller.until_ended(&id, 1).await;
    assert_eq!(json!(executed(&tool)), case["expect"]["executed"]);
    let ended = caller.events_of(&id, "call_ended").await;
    let outcome = |approval: &Value| {
        let status = &ended.iter().find(|event| event["call_id"] == approval["call_id"]).unwrap()["status"];
        if status == "ok" { json!("success") } else { status.clone() }
    };
    for (name, approval) in ["c1", "c2", "c3"].iter().zip(&approvals) {
        assert_eq!(outcome(approval), case["expect"]["outcomes"][name], "{name}");
    }
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn e06_what_a_file_holds_is_not_covered_and_the_approver_is_told() {
    let case = field_case("FC-E06");
    assert!(case["expect"]["if_not_supported"].as_str().unwrap().contains("file content is not covered"));
    let model = FakeModel::start(vec![answer(step(&case, "calls"), &[]), FakeModel::text("ran")]).await;
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&setting(&model, &tool)).await;
    let id = caller.open("default", "run it").await;
    let approval = waiting(&caller, &id, 1).await.remove(0);
    let view = caller.get(&format!("/v1/approvals/{}", approval["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!(view["tool"], "run_command");
    let covers = view["covers"].as_str().unwrap();
    assert!(covers.contains("exactly these arguments") && covers.contains("not the content of files"), "{covers}");
    server.stop().await;
}

#[tokio::test]
async fn e10_nobody_approves_their_own_work() {
    let case = field_case("FC-E10");
    let proposed = step(&case, "calls")["calls"][0].clone();
    let own = (proposed["tool"].as_str().unwrap(), proposed["args"].to_string());
    let transfer = json!({"calls": [{"tool": "transfer", "args": {"to": "a", "amount_cents": 9}}]});
    let first = answer(&transfer, &[(own.0, &own.1)]);
    let model = FakeModel::start(vec![first, FakeModel::text("moved")]).await;
    let tool = FakeTool::ok().await;
    let (server, owner) = TestServer::with_bundle(&setting(&model, &tool)).await;
    let agent = owner.with_scopes("agent", &["sessions:read", "sessions:write"]).await;
    let client = owner.with_scopes("ide", &["sessions:read", "client:execute"]).await;
    let granted = owner.with_scopes("agent", &["sessions:read", "approvals:write"]).await;
    let reviewer = owner.with_scopes("reviewer", &["approvals:write"]).await;
    let id = agent.open("default", "move it").await;
    let approval = waiting(&agent, &id, 1).await.remove(0);
    for caller in [&agent, &client] {
        assert_eq!(decide(caller, &approval, "approve").await.expect(403).code(), "insufficient_scope");
    }
    assert_eq!(decide(&granted, &approval, "approve").await.expect(403).code(), "self_approval");
    // A claimed name is no field of a decision.
    let boss = step(&case, "approve")["claimed_approver"].clone();
    let claimed = json!({"decision": "approve", "digest": approval["digest"], "by": boss});
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    for caller in [&granted, &reviewer] {
        assert_eq!(caller.post(&path, &claimed).await.expect(422).code(), "invalid_request");
    }
    // A call that would approve is a call of a tool that nobody has.
    let decided = owner.events_of(&id, "call_decided").await;
    assert_eq!((&decided[1]["decision"], &decided[1]["reason"]), (&json!("reject"), &json!("unknown_tool")));
    assert!(tool.journal().is_empty());
    decide(&reviewer, &approval, "approve").await.expect(200);
    owner.until_ended(&id, 1).await;
    assert_eq!(tool.journal().len(), 1);
    let events = owner.events_of(&id, "approval_decided").await;
    assert_eq!((events.len(), &events[0]["by"]), (1, &json!("reviewer")));
    owner.verified(&id).await;
    server.stop().await;
}
