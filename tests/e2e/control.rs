//! A session's own wishes over REST: that a human is asked about more, that nothing is executed. What is not here: what
//! the modes mean for each call (the core's scripts).

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer};

fn both() -> Value {
    FakeModel::calls(&[("look", "{}"), ("act", "{}")])
}

async fn open(caller: &Caller, wishes: Value) -> String {
    let body = with(with(wishes, "/profile", json!("default")), "/prompt", json!("go"));
    caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_dry_run_decides_and_records_and_executes_nothing() {
    let answers =
        vec![FakeModel::calls(&[("look", "{}"), ("look", r#"{"text":5}"#), ("act", "{}")]), FakeModel::text("seen")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let tools = with(two_tools(&tool), "/act/requires_approval", json!(true));
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &tools)).await;
    let id = open(&caller, json!({"dry_run": true})).await;
    let session = caller.until(&id, "an approval", |session| session["status"] == "waiting_approval").await;
    let approval = &session["waiting"]["approvals"][0];
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    caller.post(&path, &json!({"decision": "approve", "digest": approval["digest"]})).await.expect(200);
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    assert!(tool.journal().is_empty(), "a dry run has no effects");
    let decided = caller.events_of(&id, "call_decided").await;
    let decisions: Vec<&Value> = decided.iter().map(|event| &event["decision"]).collect();
    assert_eq!(decisions, ["allow", "reject", "escalate"]);
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!(ended.len(), 2);
    for event in ended {
        assert_eq!((&event["status"], &event["dispatched"]), (&json!("dry_run"), &json!(false)));
    }
    assert_eq!(caller.events_of(&id, "session_opened").await[0]["dry_run"], true);
    assert!(model.requests()[1]["messages"].to_string().contains("dry run"));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_profile_may_say_that_nothing_is_executed() {
    let (model, tool) = (FakeModel::start(vec![both(), FakeModel::text("seen")]).await, FakeTool::ok().await);
    let setting = with(bundle(&model.entry(), &two_tools(&tool)), "/profiles/default/dry_run", json!(true));
    let (server, caller) = TestServer::with_bundle(&setting).await;
    // A session cannot take it back.
    let id = open(&caller, json!({"dry_run": false})).await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    assert!(tool.journal().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_session_may_have_a_human_asked_about_every_call() {
    let (model, tool) = (FakeModel::start(vec![both(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &two_tools(&tool))).await;
    let id = open(&caller, json!({"control": "all"})).await;
    let all = |session: &Value| session["waiting"]["approvals"].as_array().is_some_and(|all| all.len() == 2);
    let session = caller.until(&id, "two approvals", all).await;
    assert!(tool.journal().is_empty());
    assert_eq!(caller.events_of(&id, "session_opened").await[0]["control"], "all");
    for approval in session["waiting"]["approvals"].as_array().unwrap() {
        let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
        caller.post(&path, &json!({"decision": "approve", "digest": approval["digest"]})).await.expect(200);
    }
    caller.until_ended(&id, 1).await;
    assert_eq!(tool.journal().len(), 2);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_session_cannot_have_a_human_asked_about_fewer_calls() {
    let (model, tool) = (FakeModel::start(vec![both(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let tools = with(two_tools(&tool), "/act/risk", json!("high"));
    let setting = with(bundle(&model.entry(), &tools), "/profiles/default/control", json!("risky"));
    let (server, caller) = TestServer::with_bundle(&setting).await;
    let body = json!({"profile": "default", "prompt": "go", "control": "none"});
    let refused = caller.post("/v1/sessions", &body).await;
    assert!(refused.status.is_client_error(), "{}", refused.text);
    assert_eq!(refused.code(), "control_not_stricter");
    let id = open(&caller, json!({})).await;
    let session = caller.until(&id, "an approval", |session| session["status"] == "waiting_approval").await;
    assert_eq!(session["waiting"]["approvals"][0]["tool"], "act", "only the risky one waits");
    caller.until_events(&id, "call_ended", 1).await;
    assert_eq!(tool.journal().len(), 1);
    server.stop().await;
}
