//! A session from its start to its close: aliases, idempotency keys, further messages, cancelling, narrower bounds, waits,
//! hung-up callers, restarts. What is not here: lists (`listing`), approvals, bad requests.

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

async fn aliases(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let body = json!({"id": "ticket-17", "profile": "default", "prompt": "one", "metadata": {"a": "b"}});
    let first = caller.post("/v1/sessions", &body).await.expect(201);
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(first.headers["location"], format!("/v1/sessions/{id}"));
    assert_eq!(first.json()["alias"], "ticket-17");
    // The same body in another spelling is the same body.
    let reordered = r#"{"prompt":"one", "metadata":{"a":"b"},"profile":"default","id":"ticket-17"}"#;
    let request = caller.request(Method::POST, "/v1/sessions").header("content-type", "application/json");
    let second = Caller::send(request.body(reordered)).await.expect(200);
    assert_eq!(second.json()["id"], id.as_str());
    let other = json!({"id": "ticket-17", "profile": "default", "prompt": "two", "metadata": {"a": "b"}});
    let conflict = caller.post("/v1/sessions", &other).await.expect(409);
    assert_eq!(conflict.code(), "alias_conflict");
    assert!(conflict.json()["detail"].as_str().unwrap().contains(&id), "{}", conflict.text);
    caller.until_ended(&id, 1).await;
    // Still the same once the run is over.
    assert_eq!(caller.post("/v1/sessions", &body).await.expect(200).json()["id"], id.as_str());
    let found = caller.get("/v1/sessions?alias=ticket-17").await.expect(200).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["id"], id.as_str());
    assert_eq!(caller.get("/v1/sessions?alias=ticket-18").await.expect(200).json()["items"], json!([]));
    // One session, one run, one question to the model.
    assert_eq!(model.requests().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn an_alias_starts_one_session_on_sqlite() {
    aliases(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_alias_starts_one_session_on_postgres() {
    aliases(Backend::Postgres).await;
}

async fn idempotency(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let first = keyed(&caller, "/v1/sessions", "k-1", &prompt("one")).await.expect(201);
    assert_eq!(first.headers["idempotency-replayed"], "false");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    caller.until_ended(&id, 1).await;
    let again = keyed(&caller, "/v1/sessions", "\"k-1\"", &prompt("one")).await.expect(201);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.headers["location"], first.headers["location"]);
    assert_eq!(again.text, first.text, "the very same answer");
    let other = keyed(&caller, "/v1/sessions", "k-1", &prompt("two")).await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
    // The key belongs to one operation: the same one for a message is another key.
    let say = format!("/v1/sessions/{id}/messages");
    let said = keyed(&caller, &say, "k-1", &json!({"text": "more"})).await.expect(202);
    assert_eq!(said.headers["idempotency-replayed"], "false");
    caller.until_ended(&id, 2).await;
    let repeated = keyed(&caller, &say, "k-1", &json!({"text": "more"})).await.expect(202);
    assert_eq!(repeated.headers["idempotency-replayed"], "true");
    assert_eq!(caller.session(&id).await["run"]["no"], 2, "the repetition started no run");
    // ... and to one session.
    let second = caller.open("default", "another").await;
    let elsewhere = keyed(&caller, &format!("/v1/sessions/{second}/messages"), "k-1", &json!({"text": "more"})).await;
    assert_eq!(elsewhere.expect(422).code(), "idempotency_key_reused");
    let list = caller.get("/v1/sessions").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_repeats_the_answer_and_not_the_effect_on_sqlite() {
    idempotency(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_idempotency_key_repeats_the_answer_and_not_the_effect_on_postgres() {
    idempotency(Backend::Postgres).await;
}

#[tokio::test]
async fn twins_with_one_key_start_one_session() {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Postgres).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let twin = || {
        let caller = caller.clone();
        async move { keyed(&caller, "/v1/sessions", "twin", &prompt("one")).await }
    };
    let (a, b, c, d) = tokio::join!(twin(), twin(), twin(), twin());
    let mut ids = Vec::new();
    for answer in [a, b, c, d] {
        match answer.status.as_u16() {
            201 => ids.push(answer.json()["id"].clone()),
            409 => {
                assert_eq!(answer.code(), "idempotency_in_progress");
                assert!(answer.headers.contains_key("retry-after"));
            }
            other => panic!("{other}: {}", answer.text),
        }
    }
    assert!(!ids.is_empty());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(twin().await.expect(201).json()["id"], ids[0]);
    assert_eq!(caller.get("/v1/sessions").await.json()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
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
async fn cancelling_leaves_a_running_call_indeterminate_and_never_runs_it_again() {
    let answers = vec![act(), FakeModel::text("after")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let (mut server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    let cancel = format!("/v1/sessions/{id}/cancel");
    let cancelled = caller.post(&cancel, &json!({"reason": "wrong one"})).await.expect(200).json();
    assert_eq!(cancelled["run"]["ending"], "cancelled");
    assert_eq!(cancelled["status"], "idle");
    assert_eq!(caller.post(&cancel, &json!({})).await.expect(409).code(), "no_active_run");
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!(
        (ended.len(), &ended[0]["status"], &ended[0]["cause"]),
        (1, &json!("indeterminate"), &json!("cancelled"))
    );
    let asked = caller.events_of(&id, "cancel_requested").await;
    assert_eq!(asked[0]["content"]["reason"], "wrong one");
    // The tool answers after all, the server restarts, the conversation goes on: the call stays closed.
    tool.release();
    server.restart().await;
    let caller = server.caller();
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "go on"})).await.expect(202);
    let session = caller.until_ended(&id, 2).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!(tool.journal().len(), 1);
    assert_eq!(caller.events_of(&id, "call_ended").await.len(), 1);
    let history = model.requests().last().unwrap()["messages"].to_string();
    assert!(history.contains("indeterminate") && history.contains("may have happened"), "{history}");
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_takes_no_body_at_all() {
    let (model, tool) = (FakeModel::start(vec![look()]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    Caller::send(caller.request(Method::POST, &format!("/v1/sessions/{id}/cancel"))).await.expect(200);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_closed_session_takes_nothing_more_and_keeps_its_log() {
    let (model, tool) = (FakeModel::start(vec![act()]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    let closed =
        caller.post(&format!("/v1/sessions/{id}/close"), &json!({"reason": "enough"})).await.expect(200).json();
    assert_eq!((&closed["status"], &closed["allowed_actions"]), (&json!("closed"), &json!([])));
    for (verb, body) in [("messages", json!({"text": "hello"})), ("cancel", json!({})), ("close", json!({}))] {
        let refused = caller.post(&format!("/v1/sessions/{id}/{verb}"), &body).await.expect(409);
        assert_eq!(refused.code(), "session_closed", "{verb}");
    }
    let events = caller.events(&id).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[kinds.len() - 4..], ["close_requested", "call_ended", "run_ended", "session_closed"]);
    // A stream replays what is there and ends; one that starts at the end says that nothing follows.
    let path = format!("/v1/sessions/{id}/events");
    let stream = caller.request(Method::GET, &path).header("accept", "text/event-stream");
    let stream = Caller::send(stream).await.expect(200);
    assert_eq!(stream.text.matches("\nevent: session_closed\n").count(), 1, "{}", stream.text);
    let head = events.last().unwrap()["seq"].as_u64().unwrap();
    let after = caller.request(Method::GET, &path).header("accept", "text/event-stream").header("last-event-id", head);
    Caller::send(after).await.expect(204);
    caller.verified(&id).await;
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

async fn restart_while_the_model_thinks(backend: Backend) {
    let answers = vec![look(), FakeModel::text("lost with the connection"), FakeModel::text("done")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let mut server = TestServer::start(backend).await;
    server.caller().put_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = server.caller().open("default", "go").await;
    tool.until_ran(1).await;
    model.hold();
    tool.release();
    model.until_asked(2).await;
    server.restart().await;
    model.release();
    let caller = server.caller();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!(tool.journal().len(), 1, "the call that was over is not repeated");
    let kinds: Vec<Value> = caller.events(&id).await.into_iter().map(|event| event["type"].clone()).collect();
    assert!(kinds.contains(&json!("owner_changed")), "{kinds:?}");
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_run_goes_on_after_a_restart_on_sqlite() {
    restart_while_the_model_thinks(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_run_goes_on_after_a_restart_on_postgres() {
    restart_while_the_model_thinks(Backend::Postgres).await;
}

#[tokio::test]
async fn a_graceful_stop_waits_for_the_tool_and_records_its_outcome() {
    let (model, tool) = (FakeModel::start(vec![act(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let (mut server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    let stopping = server.node().app().stopping().clone();
    let late = async {
        stopping.cancelled().await;
        tool.release();
    };
    tokio::join!(server.restart(), late);
    let caller = server.caller();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!(tool.journal().len(), 1);
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!((ended.len(), &ended[0]["status"], &ended[0]["cause"]), (1, &json!("ok"), &json!("reported")));
    caller.verified(&id).await;
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
