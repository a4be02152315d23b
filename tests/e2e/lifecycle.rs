//! A session from its start to its close: aliases, idempotency keys, further messages, cancelling, narrower bounds, waits,
//! hung-up callers, restarts. What is not here: lists (`listing`), approvals, bad requests.

mod repeats;
mod stops;

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::{usual, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

fn look() -> Value {
    FakeModel::calls(&[("look", r#"{"text":"a"}"#)])
}

fn act() -> Value {
    FakeModel::calls(&[("act", r#"{"text":"a"}"#)])
}

fn prompt(text: &str) -> Value {
    json!({"profile": "default", "prompt": text})
}

/// POST with an idempotency key.
async fn keyed(caller: &Caller, path: &str, key: &str, body: &Value) -> toolgate_tests::caller::Answer {
    Caller::send(caller.request(Method::POST, path).header("Idempotency-Key", key).json(body)).await
}

#[tokio::test]
async fn a_further_message_starts_the_next_run_with_the_whole_conversation() {
    let answers = vec![look(), FakeModel::text("first"), FakeModel::text("second")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    let id = caller.open("default", "please look").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["status"], "idle");
    assert_eq!(session["allowed_actions"], json!(["add_message", "close"]));
    let said = caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "and now"})).await.expect(202);
    assert_eq!(said.json()["run"]["no"], 2);
    let session = caller.until_ended(&id, 2).await;
    assert_eq!(session["run"]["output"], "second");
    assert_eq!(session["run"]["steps"], 1, "bounds count anew");
    let asked = model.requests();
    let last = asked.last().unwrap()["messages"].to_string();
    for words in ["please look", "first", "and now"] {
        assert!(last.contains(words), "`{words}` is missing in {last}");
    }
    let started = caller.events_of(&id, "run_started").await;
    assert_eq!(started.iter().map(|event| event["run"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_message_while_a_run_is_under_way_is_refused_with_the_state_it_met() {
    let (model, tool) = (FakeModel::start(vec![look(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    let refused = caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "me too"})).await.expect(409);
    assert_eq!(refused.code(), "run_active");
    assert!(refused.json()["detail"].as_str().unwrap().contains("run is under way"), "{}", refused.text);
    let before = caller.session(&id).await["head_seq"].clone();
    tool.release();
    caller.until_ended(&id, 1).await;
    let asked = model.requests().last().unwrap()["messages"].to_string();
    assert!(!asked.contains("me too"), "a refused message is nowhere: {asked}");
    assert!(caller.events_of(&id, "message_received").await.is_empty());
    assert!(before.as_u64() > Some(0));
    server.stop().await;
}

#[tokio::test]
async fn a_session_may_have_narrower_bounds_and_never_wider_ones() {
    let (model, tool) = (FakeModel::start_with(vec![look()], true).await, FakeTool::ok().await);
    let bundle = with(usual(&model, &tool), "/default_harness/max_model_calls", json!(20));
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let limited = |limits: Value| json!({"profile": "default", "prompt": "go", "limits": limits});
    for (name, widest) in
        [("max_steps", 8_u64), ("max_tool_calls", 8), ("max_model_calls", 20), ("deadline_ms", 60_000)]
    {
        for wrong in [0, widest + 1] {
            let refused = caller.post("/v1/sessions", &limited(json!({name: wrong}))).await.expect(422);
            assert_eq!(refused.code(), "limit_not_narrower", "{name}: {wrong}");
            assert!(refused.text.contains(name), "{}", refused.text);
        }
        caller.post("/v1/sessions", &limited(json!({name: widest}))).await.expect(201);
    }
    let asked = json!({"max_steps": 2, "max_tool_calls": 5, "max_model_calls": 6, "deadline_ms": 30_000});
    let started = caller.post("/v1/sessions", &limited(asked.clone())).await.expect(201).json();
    for (name, value) in asked.as_object().unwrap() {
        assert_eq!(started["run"]["limits"][name], *value, "{name}");
    }
    let session = caller.until_ended(started["id"].as_str().unwrap(), 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["steps"]), (&json!("max_steps_exceeded"), &json!(2)));
    server.stop().await;
}

#[tokio::test]
async fn a_narrower_bound_on_tool_calls_is_a_rejection_the_model_hears_of() {
    let both = FakeModel::calls(&[("look", r#"{"text":"1"}"#), ("look", r#"{"text":"2"}"#)]);
    let (model, tool) = (FakeModel::start(vec![both, FakeModel::text("done")]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    let body = json!({"profile": "default", "prompt": "go", "limits": {"max_tool_calls": 1}});
    let id = caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["tool_calls"]), (&json!("done"), &json!(1)));
    assert_eq!(tool.journal().len(), 1);
    let decided = caller.events_of(&id, "call_decided").await;
    assert_eq!(decided[1]["reason"], "budget_exhausted");
    assert!(model.requests()[1]["messages"].to_string().contains("budget_exhausted"));
    server.stop().await;
}

#[tokio::test]
async fn a_session_may_have_an_output_schema_of_its_own() {
    let answers =
        vec![FakeModel::text("just words"), FakeModel::text(r#"{"total":"12"}"#), FakeModel::text(r#"{"total":12}"#)];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    let schema = json!({"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]});
    let body = json!({"profile": "default", "prompt": "add it up", "output_schema": schema});
    let id = caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["output"]), (&json!("done"), &json!({"total": 12})));
    let steps = caller.events_of(&id, "step_ended").await;
    let reasons: Vec<&str> = steps.iter().map(|step| step["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["output_schema_invalid", "output_schema_invalid"]);
    let told = model.requests()[2]["messages"].to_string();
    assert!(told.contains("does not match its schema") && told.contains("total"), "{told}");
    for unusable in [json!({"type": "objekt"}), json!({"$ref": "https://elsewhere.example/schema"})] {
        let body = json!({"profile": "default", "prompt": "go", "output_schema": unusable});
        let refused = caller.post("/v1/sessions", &body).await.expect(422);
        assert_eq!(refused.code(), "output_schema_unusable");
    }
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn prefer_wait_answers_with_the_settled_session() {
    let answers = vec![look(), FakeModel::text("one"), FakeModel::text("two")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    let waiting = |path: &str| caller.request(Method::POST, path).header("Prefer", "respond-async, wait=60");
    let answer = Caller::send(waiting("/v1/sessions").json(&prompt("go"))).await.expect(201);
    assert_eq!(answer.headers["preference-applied"], "wait=60");
    let session = answer.json();
    assert_eq!((&session["status"], &session["run"]["output"]), (&json!("idle"), &json!("one")));
    let path = format!("/v1/sessions/{}/messages", session["id"].as_str().unwrap());
    let session = Caller::send(waiting(&path).json(&json!({"text": "more"}))).await.expect(202).json();
    assert_eq!((&session["run"]["no"], &session["run"]["output"]), (&json!(2), &json!("two")));
    server.stop().await;
}

#[tokio::test]
async fn a_wait_that_is_too_short_answers_with_the_running_session() {
    let (model, tool) = (FakeModel::start(vec![look(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let request = caller.request(Method::POST, "/v1/sessions").header("Prefer", "wait=1").json(&prompt("go"));
    let session = Caller::send(request).await.expect(201).json();
    assert_eq!((&session["status"], &session["run"]["ending"]), (&json!("running"), &Value::Null));
    tool.release();
    caller.until_ended(session["id"].as_str().unwrap(), 1).await;
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_take_the_run_with_it() {
    let (model, tool) = (FakeModel::start(vec![act(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let request =
        caller.request(Method::POST, "/v1/sessions").header("Prefer", "wait=60").header("Idempotency-Key", "k");
    let request = request.json(&prompt("go"));
    tokio::select! {
        answer = request.send() => panic!("answered although the tool is held: {answer:?}"),
        () = tool.until_ran(1) => {}
    }
    // The request is dropped here, and its connection with it.
    tool.release();
    let list = caller.get("/v1/sessions").await.expect(200).json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["output"], "done");
    assert_eq!(tool.journal().len(), 1);
    // Whoever comes back with the key gets the answer that went astray.
    let again = keyed(&caller, "/v1/sessions", "k", &prompt("go")).await.expect(201);
    assert_eq!((&again.json()["id"], again.headers["idempotency-replayed"].as_bytes()), (&json!(id), &b"true"[..]));
    server.stop().await;
}

#[tokio::test]
async fn a_session_of_a_tenant_without_a_bundle_is_refused() {
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    assert_eq!(caller.post("/v1/sessions", &prompt("go")).await.expect(409).code(), "no_bundle");
    server.stop().await;
}

#[tokio::test]
async fn a_session_keeps_the_bundle_it_was_started_under() {
    let answers = vec![FakeModel::text("one"), look(), FakeModel::text("two"), look(), FakeModel::text("three")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let old = usual(&model, &tool);
    let (server, caller) = TestServer::with_bundle(&old).await;
    let id = caller.open("default", "go").await;
    let pinned = caller.until_ended(&id, 1).await["bundle"].clone();
    let new = with(old.clone(), "/profiles/default", json!(["act"]));
    let put = caller.request(Method::PUT, "/v1/bundle").header("if-match", format!("\"{}\"", pinned.as_str().unwrap()));
    Caller::send(put.json(&new)).await.expect(201);
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "look"})).await.expect(202);
    let session = caller.until_ended(&id, 2).await;
    assert_eq!(session["bundle"], pinned);
    assert_eq!(caller.events_of(&id, "call_decided").await[0]["decision"], "allow");
    let fresh = caller.open("default", "go").await;
    let session = caller.until_ended(&fresh, 1).await;
    assert_ne!(session["bundle"], pinned);
    assert_eq!(caller.events_of(&fresh, "call_decided").await[0]["reason"], "tool_not_allowlisted");
    // Both versions can be read; the old one in the very form it was judged in.
    let version = caller.get(&format!("/v1/bundles/{}", pinned.as_str().unwrap())).await.expect(200);
    assert_eq!(version.json(), old);
    caller.verified(&id).await;
    server.stop().await;
}
