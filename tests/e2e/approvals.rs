//! Calls that wait for a human: approve, deny, edit, expire; who may, what binds, what a restart keeps. What is not here:
//! approvals over the channel.

mod binding;
mod codes;
mod field;
mod rules;
mod time;

use serde_json::{Value, json};
use toolgate_tests::caller::Answer;
use toolgate_tests::world::{bundle, server_tool, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// `pay` needs an approval, `look` does not.
fn tools(tool: &FakeTool) -> Value {
    let pay = json!({
        "description": "Pays.", "venue": "server", "risk": "high", "requires_approval": true,
        "executor": tool.executor("pay"),
        "parameters": {"type": "object", "required": ["amount"], "properties": {
            "amount": {"type": "integer", "maximum": 1000}, "note": {"type": "string"}}}
    });
    json!({"pay": pay, "look": server_tool(tool, "look", "read")})
}

fn pay(args: &str) -> Value {
    FakeModel::calls(&[("pay", args)])
}

struct World {
    server: TestServer,
    caller: Caller,
    model: FakeModel,
    tool: FakeTool,
}

impl World {
    async fn start(answers: Vec<Value>) -> Self {
        Self::start_on(Backend::Sqlite, answers, |bundle| bundle).await
    }

    async fn start_on(backend: Backend, answers: Vec<Value>, change: impl Fn(Value) -> Value) -> Self {
        let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
        let server = TestServer::start(backend).await;
        let caller = server.caller();
        caller.put_bundle(&change(bundle(&model.entry(), &tools(&tool)))).await;
        Self { server, caller, model, tool }
    }

    /// Starts a session and waits until it waits for an approval; ids of session and approval, and the digest.
    async fn waiting(&self) -> Waiting {
        let id = self.caller.open("default", "pay").await;
        let session = self.caller.until(&id, "an approval", |s| s["status"] == "waiting_approval").await;
        let approval = &session["waiting"]["approvals"][0];
        let text = |field: &str| approval[field].as_str().unwrap().to_owned();
        Waiting { session: id, id: text("id"), digest: text("digest") }
    }

    fn paid(&self) -> Vec<String> {
        self.tool.journal().into_iter().filter(|ran| ran.tool == "pay").map(|ran| ran.body).collect()
    }
}

struct Waiting {
    session: String,
    id: String,
    digest: String,
}

impl Waiting {
    async fn decide(&self, caller: &Caller, body: Value) -> Answer {
        let body = with(body, "/digest", json!(self.digest));
        caller.post(&format!("/v1/approvals/{}/decision", self.id), &body).await
    }

    async fn view(&self, caller: &Caller) -> Value {
        caller.get(&format!("/v1/approvals/{}", self.id)).await.expect(200).json()
    }
}

async fn approved(backend: Backend) {
    let answers = vec![pay(r#"{ "note":"rent", "amount": 1e2 }"#), FakeModel::text("paid")];
    let world = World::start_on(backend, answers, |bundle| bundle).await;
    let approver = world.caller.with_scopes("grace", &["approvals:write"]).await;
    let waiting = world.waiting().await;
    let view = waiting.view(&approver).await;
    assert_eq!(view["args"], json!({"amount": 100, "note": "rent"}));
    assert_eq!((&view["tool"], &view["risk"], &view["venue"]), (&json!("pay"), &json!("high"), &json!("server")));
    assert_eq!((&view["status"], &view["redacted"]), (&json!("pending"), &json!(false)));
    assert_eq!(view["allowed_decisions"], json!(["approve", "deny", "edit"]));
    assert!(world.paid().is_empty(), "nothing runs before somebody decides");
    let decision = waiting.decide(&approver, json!({"decision": "approve"})).await.expect(200).json();
    assert_eq!((&decision["decision"], &decision["settled_by"]), (&json!("approve"), &json!("grace")));
    let session = world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!(world.paid(), [r#"{"amount":100,"note":"rent"}"#], "the very bytes that were shown");
    let view = waiting.view(&approver).await;
    assert_eq!((&view["status"], &view["allowed_decisions"]), (&json!("approved"), &json!([])));
    let decided = world.caller.events_of(&waiting.session, "approval_decided").await;
    assert_eq!((&decided[0]["by"], &decided[0]["digest"]), (&json!("grace"), &json!(waiting.digest)));
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn an_approved_call_runs_exactly_as_shown_on_sqlite() {
    approved(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_approved_call_runs_exactly_as_shown_on_postgres() {
    approved(Backend::Postgres).await;
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_hears_why() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("ok, not")]).await;
    let waiting = world.waiting().await;
    let body = json!({"decision": "deny", "message": "over budget this month"});
    let decision = waiting.decide(&world.caller, body).await.expect(200).json();
    assert_eq!((&decision["decision"], &decision["status"]), (&json!("deny"), &json!("denied")));
    let session = world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert!(world.paid().is_empty());
    let ended = world.caller.events_of(&waiting.session, "call_ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["dispatched"]), (&json!("denied"), &json!(false)));
    let told = world.model.requests()[1]["messages"].to_string();
    assert!(told.contains("approval_denied") && told.contains("over budget this month"), "{told}");
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_denial_may_end_the_run() {
    let end = |bundle| {
        let profile = json!({"tools": ["pay", "look"], "on_reject": {"approval_denied": "end"}});
        with(bundle, "/profiles/default", profile)
    };
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#)], end).await;
    let waiting = world.waiting().await;
    waiting.decide(&world.caller, json!({"decision": "deny"})).await.expect(200);
    let session = world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(session["run"]["ending"], "approval_denied");
    assert!(world.paid().is_empty());
    world.server.stop().await;
}

#[tokio::test]
async fn an_edit_is_a_new_linked_call_with_the_approvers_arguments() {
    let world = World::start(vec![pay(r#"{"amount":900}"#), FakeModel::text("paid")]).await;
    let waiting = world.waiting().await;
    let body = json!({"decision": "edit", "arguments": {"amount": 90}});
    assert_eq!(waiting.decide(&world.caller, body).await.expect(200).json()["decision"], "edit");
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid(), [r#"{"amount":90}"#]);
    let decided = world.caller.events_of(&waiting.session, "call_decided").await;
    let ended = world.caller.events_of(&waiting.session, "call_ended").await;
    assert_eq!(decided[1]["edited_from"], decided[0]["call_id"]);
    assert_eq!((&ended[0]["status"], &ended[0]["replaced_by"]), (&json!("denied"), &decided[1]["call_id"]));
    assert_eq!((&ended[1]["call_id"], &ended[1]["status"]), (&decided[1]["call_id"], &json!("ok")));
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

/// An approver's arguments must fit the contract like anybody's, and the approver hears of it at once.
#[tokio::test]
async fn an_edit_that_does_not_fit_is_refused_and_the_approval_stays_open() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("ok")]).await;
    let waiting = world.waiting().await;
    let head = world.caller.session(&waiting.session).await["head_seq"].clone();
    let body = json!({"decision": "edit", "arguments": {"amount": 5000}});
    let refused = waiting.decide(&world.caller, body).await.expect(422).json();
    assert_eq!(refused["code"], "edit_invalid");
    assert!(refused["detail"].as_str().unwrap().contains("`/amount`"), "{refused:#}");
    assert_eq!(world.caller.session(&waiting.session).await["head_seq"], head, "nothing is recorded");
    let body = json!({"decision": "edit", "arguments": {"amount": 2}});
    waiting.decide(&world.caller, body).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid().len(), 1);
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

/// What the policies say of an approver's arguments is a decision like any other.
#[tokio::test]
async fn an_edit_goes_through_the_pipeline_again() {
    let small = json!({"arguments": {"small": {"on": {"tools": ["pay"]}, "argument": "/amount", "max": 10}}});
    let ruled = |bundle| with(bundle, "/policies", small.clone());
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#), FakeModel::text("ok")], ruled).await;
    let waiting = world.waiting().await;
    let body = json!({"decision": "edit", "arguments": {"amount": 50}});
    waiting.decide(&world.caller, body).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert!(world.paid().is_empty(), "an approver's arguments pass the policies like anybody's");
    let decided = world.caller.events_of(&waiting.session, "call_decided").await;
    assert_eq!((&decided[1]["decision"], &decided[1]["reason"]), (&json!("reject"), &json!("argument_rule")));
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn an_edit_that_forges_identity_ends_the_run() {
    let world = World::start(vec![pay(r#"{"amount":1}"#)]).await;
    let waiting = world.waiting().await;
    let body = json!({"decision": "edit", "arguments": {"amount": 1, "note": "x", "Tenant-ID": "other"}});
    waiting.decide(&world.caller, body).await.expect(200);
    let session = world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(session["run"]["ending"], "cross_tenant_denied");
    assert!(world.paid().is_empty());
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_profile_may_end_the_run_instead_of_waiting() {
    let end =
        |bundle| with(bundle, "/profiles/default", json!({"tools": ["pay", "look"], "approval": {"mode": "end"}}));
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#)], end).await;
    let id = world.caller.open("default", "pay").await;
    let session = world.caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "needs_human_approval");
    assert!(world.paid().is_empty());
    assert_eq!(world.caller.get("/v1/approvals").await.expect(200).json()["items"], json!([]));
    world.caller.verified(&id).await;
    world.server.stop().await;
}

#[tokio::test]
async fn other_calls_of_the_step_run_while_one_waits() {
    let both = FakeModel::calls(&[("pay", r#"{"amount":1}"#), ("look", r#"{"text":"a"}"#)]);
    let world = World::start(vec![both, FakeModel::text("done")]).await;
    let waiting = world.waiting().await;
    let ended = world.caller.until_events(&waiting.session, "call_ended", 1).await;
    assert_eq!(ended[0]["status"], "ok");
    assert_eq!(world.tool.journal().iter().map(|ran| ran.tool.as_str()).collect::<Vec<_>>(), ["look"]);
    assert_eq!(world.model.requests().len(), 1, "the step is not over");
    waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid().len(), 1);
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

async fn lists(backend: Backend) {
    let answers = (1..=5).map(|amount| pay(&json!({"amount": amount}).to_string())).collect();
    let world = World::start_on(backend, answers, |bundle| bundle).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(world.waiting().await);
    }
    waiting[0].decide(&world.caller, json!({"decision": "deny"})).await.expect(200);
    let caller = &world.caller;
    let read = |query: String| async move { caller.get(&format!("/v1/approvals?{query}")).await.expect(200).json() };
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let newest_first: Vec<String> = waiting.iter().rev().map(|waiting| waiting.id.clone()).collect();
    assert_eq!(ids(&read(String::new()).await), newest_first);
    assert_eq!(ids(&read("status=denied".to_owned()).await), [waiting[0].id.clone()]);
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = read(format!("status=pending&limit=3{cursor}")).await;
        found.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
        let other = caller.get(&format!("/v1/approvals?status=denied&limit=3{cursor}")).await.expect(400);
        assert_eq!(other.code(), "cursor_mismatch");
    }
    assert_eq!(found, newest_first[..4]);
    for item in read("status=pending".to_owned()).await["items"].as_array().unwrap() {
        assert!(item.get("args").is_none(), "lists show no content: {item}");
    }
    assert_eq!(caller.get("/v1/approvals?status=open").await.expect(400).code(), "invalid_parameter");
    world.server.stop().await;
}

#[tokio::test]
async fn approvals_of_all_sessions_are_listed_page_by_page_on_sqlite() {
    lists(Backend::Sqlite).await;
}

#[tokio::test]
async fn approvals_of_all_sessions_are_listed_page_by_page_on_postgres() {
    lists(Backend::Postgres).await;
}
