//! What is cancelled, closed, or met by a stop of the server.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::usual;
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

use super::{act, look};

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
async fn a_cancel_takes_no_body_and_keeps_what_the_model_said() {
    let mut talking = look();
    talking["choices"][0]["message"]["content"] = json!("I will look first.");
    let (model, tool) = (FakeModel::start(vec![talking]).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    let cancelled = Caller::send(caller.request(Method::POST, &format!("/v1/sessions/{id}/cancel"))).await.expect(200);
    // Answers to writes are kept beside the log and hold nothing that was said; the session does.
    assert_eq!(cancelled.json()["run"]["last_text"], Value::Null);
    assert_eq!(caller.session(&id).await["run"]["last_text"], "I will look first.");
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
