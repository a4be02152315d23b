//! Admission hooks over HTTP: what they may do, that what they cannot answer is denied, that a restart asks again.
//! FC-E05 is played here. What is not here: the order of hooks and what an answer leads to (the core's scripts).

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Value, json};
use toolgate_core::json::Json;
use toolgate_tests::fake_hook::{FakeHook, Question};
use toolgate_tests::world::{bundle, field_case, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

fn transfer(tool: &FakeTool, needs_approval: bool) -> Value {
    json!({"transfer": {
        "description": "Moves money.", "venue": "server", "risk": "high", "tags": ["money"],
        "requires_approval": needs_approval, "executor": tool.executor("transfer"),
        "parameters": {"type": "object", "required": ["to", "amount_cents"], "properties": {
            "to": {"type": "string"}, "amount_cents": {"type": "integer"}}}
    }})
}

fn ask(args: &Value) -> Value {
    FakeModel::calls(&[("transfer", &args.to_string())])
}

/// A hook's rewriting of the amount to at most this much.
fn at_most(most: u64) -> impl Fn(&Value) -> Value + Send + Sync + 'static {
    move |args| {
        let amount = args["amount_cents"].as_u64().unwrap_or(u64::MAX).min(most);
        json!({"decision": "rewrite", "reason": "capped", "arguments": with(args.clone(), "/amount_cents", json!(amount))})
    }
}

async fn e05_what_was_approved_runs_whatever_the_hook_says_later(backend: Backend) {
    let case = field_case("FC-E05");
    let call = &case["given"]["steps"][0]["calls"][0];
    let shown = &case["expect"]["request_shows"]["amount_cents"];
    let executed = &case["expect"]["executed"][0][1];
    let model = FakeModel::start(vec![ask(&call["args"]), FakeModel::text("moved")]).await;
    let (tool, hook) = (FakeTool::ok().await, FakeHook::start(at_most(500)).await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    let setting = bundle(&model.entry(), &transfer(&tool, true));
    caller.put_bundle(&with(setting, "/admission", json!([hook.entry("cap", "mutating", &["transfer"])]))).await;

    let id = caller.open("default", "pay").await;
    let session = caller.until(&id, "an approval", |session| session["status"] == "waiting_approval").await;
    let waiting = &session["waiting"]["approvals"][0];
    let path = format!("/v1/approvals/{}", waiting["id"].as_str().unwrap());
    let view = caller.get(&path).await.expect(200).json();
    assert_eq!(&view["args"]["amount_cents"], shown, "the approver sees what would run");
    assert!(tool.journal().is_empty());
    hook.change(at_most(1));
    let body = json!({"decision": "approve", "digest": waiting["digest"]});
    caller.post(&format!("{path}/decision"), &body).await.expect(200);
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");

    let journal = tool.journal();
    assert_eq!(journal.len(), 1);
    let ran = Json::parse(&journal[0].body).unwrap();
    assert_eq!(&ran.value(), executed);
    assert_eq!(hook.asked().len(), 1, "nobody asks the hook again about what a human has approved");
    // Original, effective, rewriter.
    let decided = caller.events_of(&id, "call_decided").await;
    assert_eq!(decided.len(), 2);
    assert_eq!(decided[0]["content"]["args"], call["args"]);
    assert_eq!(&decided[1]["content"]["args"], executed);
    assert_eq!((&decided[1]["edited_from"], &decided[1]["rewritten_by"]), (&decided[0]["call_id"], &json!("cap")));
    let answered = caller.events_of(&id, "admission_answered").await;
    assert_eq!((&answered[0]["hook"], &answered[0]["verdict"]), (&json!("cap"), &json!("rewrite")));
    assert_eq!(answered[0]["content"]["reason"], "capped");
    // The hash approved is the hash executed.
    assert_eq!(view["args_hash"], ran.hash().to_string());
    assert_eq!(view["args_hash"], decided[1]["content"]["args_hash"]);
    let approved = caller.events_of(&id, "approval_decided").await;
    assert_eq!((&approved[0]["call_id"], &approved[0]["digest"]), (&decided[1]["call_id"], &view["digest"]));
    assert_eq!(journal[0].call_id, decided[1]["call_id"]);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn e05_what_was_approved_runs_whatever_the_hook_says_later_on_sqlite() {
    e05_what_was_approved_runs_whatever_the_hook_says_later(Backend::Sqlite).await;
}

#[tokio::test]
async fn e05_what_was_approved_runs_whatever_the_hook_says_later_on_postgres() {
    e05_what_was_approved_runs_whatever_the_hook_says_later(Backend::Postgres).await;
}

/// A session under this hook that asks for one transfer; it, its caller, and whether the tool ran.
async fn one_transfer(caller: &Caller, hook: Value) -> (String, FakeModel, FakeTool) {
    let model = FakeModel::start(vec![ask(&json!({"to": "a", "amount_cents": 9})), FakeModel::text("over")]).await;
    let tool = FakeTool::ok().await;
    caller.put_bundle(&with(bundle(&model.entry(), &transfer(&tool, false)), "/admission", json!([hook]))).await;
    let id = caller.open("default", "pay").await;
    caller.until_ended(&id, 1).await;
    caller.verified(&id).await;
    (id, model, tool)
}

#[tokio::test]
async fn a_hook_is_told_whose_call_it_is_and_exactly_what_would_run() {
    let server = TestServer::start(Backend::Sqlite).await;
    let (caller, hook) = (server.tenant("acme").await, FakeHook::allowing().await);
    let (id, _, tool) = one_transfer(&caller, hook.entry("look", "validating", &["transfer"])).await;
    assert_eq!(tool.journal().len(), 1);
    let asked = hook.asked();
    assert_eq!(asked.len(), 1);
    let question = &asked[0].body;
    let session = caller.session(&id).await;
    for (field, value) in [
        ("/version", json!(1)),
        ("/hook", json!("look")),
        ("/tenant", json!("acme")),
        ("/actor", json!("admin-of-acme")),
        ("/session_id", json!(id)),
        ("/run", json!(1)),
        ("/profile", json!("default")),
        ("/bundle", session["bundle"].clone()),
        ("/call_id", json!(tool.journal()[0].call_id)),
        ("/attempt", json!(1)),
        ("/tool/id", json!("transfer")),
        ("/tool/tags", json!(["money"])),
        ("/decision", json!("allow")),
        ("/arguments", json!({"to": "a", "amount_cents": 9})),
    ] {
        assert_eq!(question.pointer(field), Some(&value), "{field}");
    }
    assert_eq!(asked[0].idempotency_key, format!("{}-look-1", tool.journal()[0].call_id));
    server.stop().await;
}

#[tokio::test]
async fn a_denial_reaches_the_model_and_nothing_runs() {
    let server = TestServer::start(Backend::Sqlite).await;
    let (caller, hook) =
        (server.caller(), FakeHook::start(|_| json!({"decision": "deny", "reason": "not on a Sunday"})).await);
    let (id, model, tool) = one_transfer(&caller, hook.entry("calendar", "validating", &["transfer"])).await;
    assert!(tool.journal().is_empty());
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["cause"]), (&json!("rejected"), &json!("admission")));
    assert_eq!((&ended[0]["reason"], &ended[0]["dispatched"]), (&json!("admission_denied"), &json!(false)));
    let told = model.requests()[1]["messages"].to_string();
    assert!(told.contains("admission_denied") && told.contains("not on a Sunday"), "{told}");
    server.stop().await;
}

/// What a hook responds to a question.
type Answer = Box<dyn Fn(&Question) -> Response + Send + Sync>;

#[tokio::test]
async fn what_is_no_answer_is_a_denial() {
    let server = TestServer::start(Backend::Sqlite).await;
    let elsewhere = FakeHook::allowing().await;
    let target = elsewhere.url.clone();
    let allow = || axum::Json(json!({"decision": "allow"})).into_response();
    let long = json!({"decision": "allow", "reason": "x".repeat(2 << 20)}).to_string();
    let answers: Vec<(&str, Answer, &str)> = vec![
        ("status", Box::new(move |_| (StatusCode::INTERNAL_SERVER_ERROR, allow()).into_response()), "answered 500"),
        ("created", Box::new(move |_| (StatusCode::CREATED, allow()).into_response()), "answered 201"),
        ("garbage", Box::new(|_| "sure, go ahead".into_response()), "no JSON"),
        ("form", Box::new(|_| axum::Json(json!({"decision": "allow", "ok": 1})).into_response()), "another form"),
        ("long", Box::new(move |_| long.clone().into_response()), "more than 1048576 bytes"),
        ("redirect", Box::new(move |_| Redirect::temporary(&target).into_response()), "answered 307"),
    ];
    for (name, answer, why) in answers {
        let hook = FakeHook::responding(answer).await;
        denied(&server, name, hook.entry("check", "validating", &["transfer"]), why).await;
        assert_eq!(hook.asked().len(), 1, "{name}: one question, one answer");
    }
    assert!(elsewhere.asked().is_empty(), "a redirect was followed");
    let silent = FakeHook::allowing().await;
    silent.hold();
    let soon = with(silent.entry("check", "validating", &["transfer"]), "/timeout_ms", json!(100));
    denied(&server, "silent", soon, "in time").await;
    for (name, url, why) in
        [("absent", "http://127.0.0.1:1/", ""), ("forbidden", "http://169.254.169.254/latest", "not allowed here")]
    {
        let hook = json!({"name": "check", "kind": "mutating", "on": {"all": true}, "url": url});
        denied(&server, name, hook, why).await;
    }
    let hook =
        with(elsewhere.entry("check", "validating", &["transfer"]), "/bearer_env", json!("TOOLGATE_SECRET_NOBODY_SET"));
    denied(&server, "secret", hook, "TOOLGATE_SECRET_NOBODY_SET is not set").await;
    assert!(elsewhere.asked().is_empty(), "asked without its secret");
    server.stop().await;
}

/// A call under this hook is denied as one that gave no usable answer, for this reason.
async fn denied(server: &TestServer, tenant: &str, hook: Value, why: &str) {
    let caller = server.tenant(tenant).await;
    let (id, model, tool) = one_transfer(&caller, hook).await;
    assert!(tool.journal().is_empty(), "{tenant}: it ran");
    let answered = caller.events_of(&id, "admission_answered").await;
    assert_eq!(answered.len(), 1, "{tenant}");
    assert_eq!(answered[0]["verdict"], "failed", "{tenant}: {}", answered[0]);
    let reason = answered[0]["content"]["reason"].as_str().unwrap();
    assert!(reason.contains(why), "{tenant}: {reason}");
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!(
        (&ended[0]["status"], &ended[0]["reason"]),
        (&json!("rejected"), &json!("admission_denied")),
        "{tenant}"
    );
    assert!(model.requests()[1]["messages"].to_string().contains("no usable answer"), "{tenant}");
}

async fn a_restart_asks_again(backend: Backend) {
    let model = FakeModel::start(vec![ask(&json!({"to": "a", "amount_cents": 900})), FakeModel::text("moved")]).await;
    let (tool, hook) = (FakeTool::ok().await, FakeHook::start(at_most(500)).await);
    let mut server = TestServer::start(backend).await;
    let setting = bundle(&model.entry(), &transfer(&tool, false));
    let hooks = json!([hook.entry("cap", "mutating", &["transfer"])]);
    server.caller().put_bundle(&with(setting, "/admission", hooks)).await;
    hook.hold();
    let id = server.caller().open("default", "pay").await;
    hook.until_asked(1).await;
    server.restart().await;
    hook.until_asked(2).await;
    assert!(tool.journal().is_empty(), "nothing runs before the hook has answered");
    hook.release();
    let caller = server.caller();
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    let bodies: Vec<String> = tool.journal().into_iter().map(|ran| ran.body).collect();
    assert_eq!(bodies, [r#"{"amount_cents":500,"to":"a"}"#]);
    let (first, second) = (&hook.asked()[0], &hook.asked()[1]);
    assert_eq!(first.body["call_id"], second.body["call_id"]);
    assert_eq!((&first.body["attempt"], &second.body["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(hook.asked().len(), 2);
    assert_eq!(caller.events_of(&id, "admission_answered").await.len(), 1);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_restart_asks_a_hook_again_on_sqlite() {
    a_restart_asks_again(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_restart_asks_a_hook_again_on_postgres() {
    a_restart_asks_again(Backend::Postgres).await;
}
