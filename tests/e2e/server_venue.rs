//! Calls that the server runs: what the tool is sent, what is kept of its answer, what is said when none came.

use serde_json::{Value, json};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// A bundle whose model calls `tool` once and is done; `changes` go over the tool's contract.
fn bundle(executor: &Value, changes: Value) -> Value {
    let mut tool = json!({"description": "Works.", "venue": "server", "executor": executor,
        "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    for (key, value) in changes.as_object().unwrap() {
        tool[key] = value.clone();
    }
    json!({
        "version": 1,
        "tools": {"work": tool},
        "models": {"m": {"provider": "scripted", "script": [
            {"calls": [{"tool": "work", "args": {"n": 18_446_744_073_709_551_615_u64}}]}, {"done": "over"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {"default": {"tools": ["work"]}}
    })
}

/// How the one call of a session under this bundle ended, as its event shows it.
async fn outcome(bundle: &Value) -> Value {
    let (server, caller) = TestServer::with_bundle(bundle).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done", "{session:#}");
    caller.verified(&id).await;
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!(ended.len(), 1);
    server.stop().await;
    ended[0].clone()
}

#[tokio::test]
async fn the_tool_gets_the_judged_bytes_and_the_call_id_as_key() {
    let tool = FakeTool::ok().await;
    let outcome = outcome(&bundle(&tool.executor("work"), json!({}))).await;
    assert_eq!(outcome["status"], "ok");
    let journal = tool.journal();
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].body, r#"{"n":18446744073709551615}"#);
    assert_eq!(journal[0].idempotency_key, journal[0].call_id);
    assert!(journal[0].call_id.starts_with("call_"));
}

#[tokio::test]
async fn the_tool_is_told_who_asks_and_arguments_cannot_forge_it() {
    let tool = FakeTool::ok().await;
    // Names that only look like the headers are arguments like any other, where the contract has them.
    let forged = json!({"toolgate-tenant": "evil", "toolgate-actor": "root", "toolgate-session": "ses_0",
        "headers": {"toolgate-tenant": "evil"}, "n": "1\r\ntoolgate-actor: root"});
    let mut bundle = bundle(&tool.executor("work"), json!({"parameters": {"additionalProperties": true}}));
    bundle["models"]["m"]["script"][0]["calls"][0]["args"] = forged.clone();
    let server = TestServer::start(Backend::Sqlite).await;
    let owner = server.tenant("acme").await;
    owner.put_bundle(&bundle).await;
    let ann = owner.with_scopes("ann@example.org;role=\"admin\"", &["sessions:read", "sessions:write"]).await;
    let id = ann.open("default", "go").await;
    assert_eq!(ann.until_ended(&id, 1).await["run"]["ending"], "done");
    let journal = tool.journal();
    assert_eq!(journal.len(), 1);
    assert_eq!(serde_json::from_str::<Value>(&journal[0].body).unwrap(), forged);
    for (name, value) in [
        ("toolgate-tenant", "acme"),
        ("toolgate-actor", "ann@example.org;role=\"admin\""),
        ("toolgate-session", id.as_str()),
    ] {
        let sent: Vec<&[u8]> = journal[0].headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        assert_eq!(sent, [value.as_bytes()], "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_failure_of_the_tool_is_told_with_its_words() {
    let tool = FakeTool::start(|_| (422, b"no such row".to_vec())).await;
    let outcome = outcome(&bundle(&tool.executor("work"), json!({}))).await;
    assert_eq!(
        (&outcome["status"], &outcome["content"]["outcome_detail"]),
        (&json!("failed"), &json!("the tool answered 422"))
    );
    assert!(outcome["content"]["output"].to_string().contains("no such row"), "{outcome}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = FakeTool::ok().await;
    let tool = FakeTool::start(|_| (307, Vec::new())).await;
    let outcome = outcome(&bundle(&tool.executor("work"), json!({}))).await;
    assert_eq!(outcome["content"]["outcome_detail"], "the tool answered 307");
    assert!(elsewhere.journal().is_empty());
}

#[tokio::test]
async fn output_is_cut_at_the_tools_limit() {
    let tool = FakeTool::start(|_| (200, b"x".repeat(5_000))).await;
    let outcome = outcome(&bundle(&tool.executor("work"), json!({"max_output_bytes": 100}))).await;
    assert_eq!((&outcome["status"], &outcome["content"]["output"]["truncated_from"]), (&json!("ok"), &json!(5_000)));
}

#[tokio::test]
async fn silence_is_a_time_out_that_may_have_happened() {
    let tool = FakeTool::ok().await;
    tool.hold();
    let mut bundle = bundle(&tool.executor("work"), json!({"timeout_ms": 200}));
    bundle["profiles"]["default"]["on_indeterminate"] = json!("feedback");
    let outcome = outcome(&bundle).await;
    assert_eq!(outcome["status"], "timed_out");
    assert!(
        outcome["content"]["outcome_detail"].as_str().is_some_and(|detail| detail.contains("may have happened")),
        "{outcome}"
    );
    assert_eq!(tool.journal().len(), 1, "a call that may have happened was sent again");
}

#[tokio::test]
async fn what_cannot_be_reached_was_not_sent() {
    for executor in [
        json!({"http": {"url": "http://127.0.0.1:1/"}}),
        // Never allowed, not even where private addresses are.
        json!({"http": {"url": "http://169.254.169.254/latest"}}),
        json!({"http": {"url": "http://127.0.0.1:1/", "bearer_env": "TOOLGATE_SECRET_THAT_NOBODY_SET"}}),
    ] {
        let outcome = outcome(&bundle(&executor, json!({}))).await;
        assert_eq!(outcome["status"], "failed");
        assert!(
            outcome["content"]["outcome_detail"].as_str().is_some_and(|detail| detail.contains("nothing was sent")),
            "{outcome}"
        );
    }
}

#[tokio::test]
async fn a_builtin_runs_inside() {
    let outcome = outcome(&bundle(&json!({"builtin": "echo"}), json!({}))).await;
    assert_eq!(outcome["status"], "ok");
    assert!(outcome["content"]["output"].to_string().contains("18446744073709551615"), "{outcome}");
}

/// A session that has called `work` once, of this class, and whose model thinks about the outcome.
async fn thinking(backend: Backend, class: &str) -> (TestServer, Caller, FakeModel, String) {
    let tool = FakeTool::ok().await;
    let model = FakeModel::start(vec![FakeModel::calls(&[("work", r#"{"n":1}"#)]), FakeModel::text("over")]).await;
    let mut bundle = bundle(&tool.executor("work"), json!({"class": class}));
    bundle["models"]["m"] = model.entry();
    let server = TestServer::start(backend).await;
    let caller = server.tenant("acme").await;
    caller.put_bundle(&bundle).await;
    tool.hold();
    let id = caller.open("default", "go").await;
    tool.until_ran(1).await;
    model.hold();
    tool.release();
    model.until_asked(2).await;
    (server, caller, model, id)
}

#[tokio::test]
async fn what_a_once_call_did_is_recorded_before_the_model_is_told() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let (server, caller, model, id) = thinking(backend, "once").await;
        assert_eq!(caller.events_of(&id, "call_ended").await.len(), 1);
        model.release();
        assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
        caller.verified(&id).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn an_outcome_that_may_wait_is_recorded_while_the_model_thinks() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        for class in ["read", "idempotent"] {
            let (server, caller, model, id) = thinking(backend, class).await;
            // The events are read from the log, so that this asks for the durable ones.
            caller.until_events(&id, "call_ended", 1).await;
            let session = caller.session(&id).await;
            assert_eq!(session["status"], "running", "{session:#}");
            model.release();
            assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
            caller.verified(&id).await;
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn whoever_asks_is_told_of_an_outcome_only_when_it_is_recorded() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let (server, caller, model, id) = thinking(backend, "read").await;
        let session = caller.session(&id).await;
        let shown = session["head_seq"].as_u64().unwrap();
        let events = caller.events(&id).await;
        assert!(events.len() as u64 >= shown, "shown up to {shown}, {} recorded", events.len());
        model.release();
        caller.until_ended(&id, 1).await;
        caller.verified(&id).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_stop_leaves_no_outcome_behind_that_may_wait() {
    let (mut server, caller, _model, id) = thinking(Backend::Sqlite, "read").await;
    server.restart().await;
    let caller = caller.at(server.url());
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!(ended.len(), 1, "{ended:#?}");
    server.stop().await;
}
