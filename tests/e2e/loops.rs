//! Whole sessions over REST: a server tool over HTTP, evidence, rejection, follow-up, both databases.

use serde_json::{Value, json};
use toolgate_tests::{Backend, FakeModel, FakeTool, TestServer};

fn bundle(model: &FakeModel, tool: &FakeTool) -> Value {
    json!({
        "version": 1,
        "models": {"m": model.entry()},
        "default_model": "m",
        "default_harness": {"max_steps": 6, "max_tool_calls": 6, "deadline_ms": 60000},
        "tools": {
            "search": {"description": "Searches.", "venue": "server", "class": "read", "tags": ["read"],
                "executor": tool.executor("search"),
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}
        },
        "profiles": {"default": {"tools": ["search"], "trace_requirements": {"read": 1}}}
    })
}

async fn governed_session(backend: Backend) {
    let model = FakeModel::start(vec![
        FakeModel::calls(&[("drop_table", "{}")]),
        FakeModel::text("done without looking"),
        FakeModel::calls(&[("search", r#"{"query":"a"}"#)]),
        FakeModel::text("found it"),
    ])
    .await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&bundle(&model, &tool)).await;
    let id = caller.open("default", "find a").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!(session["run"]["output"], "found it");
    assert_eq!(session["run"]["steps"], 4);
    let decided = caller.events_of(&id, "call_decided").await;
    assert_eq!(decided[0]["decision"], "reject");
    assert_eq!(decided[0]["reason"], "unknown_tool");
    assert_eq!(decided[1]["decision"], "allow");
    let journal = tool.journal();
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].body, r#"{"query":"a"}"#);
    assert_eq!(journal[0].call_id, decided[1]["call_id"].as_str().unwrap());
    let requests = model.requests();
    let told = requests[2]["messages"].to_string();
    assert!(told.contains("evidence") && told.contains("read"), "the model is told what is missing: {told}");
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_governed_session_on_sqlite() {
    governed_session(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_governed_session_on_postgres() {
    governed_session(Backend::Postgres).await;
}
