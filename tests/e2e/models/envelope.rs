//! An endpoint without tool calls, driven through the text envelope.

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{FakeModel, FakeTool, TestServer};

fn call(args: &Value) -> Value {
    FakeModel::text(&json!({"type": "tool_call", "calls": [{"id": "1", "name": "look", "args": args}]}).to_string())
}

#[tokio::test]
async fn a_plain_text_endpoint_works_through_the_envelope() {
    let answers = vec![
        FakeModel::text("Sure, let me look that up for you!"),
        call(&json!({"text": 5})),
        call(&json!({"text": "a"})),
        FakeModel::text(r#"{"type":"final_answer","output":{"found":true}}"#),
    ];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let entry = with(model.entry(), "/calls", json!("envelope"));
    let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
    let id = caller.open("default", "find a").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["output"]), (&json!("done"), &json!({"found": true})));
    assert_eq!(tool.journal().iter().map(|ran| ran.body.as_str()).collect::<Vec<_>>(), [r#"{"text":"a"}"#]);
    let requests = model.requests();
    for request in &requests {
        assert!(request.get("tools").is_none() && request.get("tool_choice").is_none(), "{request}");
        for message in request["messages"].as_array().unwrap() {
            assert!(message["role"] != "tool" && message.get("tool_calls").is_none(), "{message}");
        }
    }
    let first = requests[0]["messages"].to_string();
    assert!(first.contains("look") && first.contains("final_answer") && first.contains("find a"), "{first}");
    let told = |at: usize| requests[at]["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert!(told(1).contains("envelope"), "repair is asked for: {}", told(1));
    assert!(told(2).contains("schema_invalid") && told(2).contains("/text"), "{}", told(2));
    assert!(told(3).contains(r#""status":"ok""#) && told(3).contains(r#"{"ok":true}"#), "{}", told(3));
    let reasons: Vec<Value> =
        caller.events_of(&id, "ballot_received").await.into_iter().map(|ballot| ballot["verdict"].clone()).collect();
    assert_eq!(reasons, ["malformed", "calls", "calls", "done"]);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn text_that_never_becomes_an_envelope_ends_the_run() {
    let answers = vec![FakeModel::text("I would rather talk about the weather.")];
    let (model, tool) = (FakeModel::start_with(answers, true).await, FakeTool::ok().await);
    let entry = with(model.entry(), "/calls", json!("envelope"));
    let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "max_parse_failures_exceeded");
    assert_eq!(session["run"]["model_calls"], 3);
    caller.verified(&id).await;
    server.stop().await;
}
