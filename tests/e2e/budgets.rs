//! Budgets over REST: of a run, a session and a tenant; what a restart loses counts as spent; a human may raise a bound.
//! FC-C08 is played here. What is not here: how budgets are added up (the core's scripts, the store's contract suite).

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolgate_core::id::TenantId;
use toolgate_tests::world::{bundle, field_case, two_tools, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// What a call of the model costs in millionths of a dollar.
const PRICE: u64 = 80_000;

fn priced(model: &FakeModel, price: u64) -> Value {
    with(model.entry(), "/prices", json!({"call_microusd": price}))
}

fn look() -> Value {
    FakeModel::calls(&[("look", "{}")])
}

/// Opens this many sessions at once and waits for the end of each, one after the other; ids and endings.
async fn all_at_once(caller: &Caller, count: usize) -> Vec<(String, String)> {
    let mut ended = Vec::new();
    for id in join_all((0..count).map(|_| caller.open("default", "go"))).await {
        let session = caller.until_ended(&id, 1).await;
        ended.push((id, session["run"]["ending"].as_str().unwrap().to_owned()));
    }
    ended
}

fn ended_as<'a>(sessions: &'a [(String, String)], ending: &str) -> Vec<&'a str> {
    sessions.iter().filter(|(_, as_)| as_ == ending).map(|(id, _)| id.as_str()).collect()
}

/// What the ledger holds on a counter that counts for ever.
async fn on_counter(server: &TestServer, tenant: &str, counter: &str) -> u64 {
    let usage = server.node().app().store().usage(&TenantId::new(tenant).unwrap(), None, 100).await.unwrap();
    usage.items.iter().find(|usage| usage.counter == counter).map_or(0, |usage| usage.used)
}

/// The types of a session's events, in order.
async fn kinds(caller: &Caller, id: &str) -> Vec<String> {
    let events = caller.events(id).await;
    events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn c08_children_on_one_budget_of_money() {
    let case = field_case("FC-C08");
    let (given, expect) = (&case["given"], &case["expect"]);
    let limit = given["budget"]["money_microunits"].as_u64().unwrap();
    let children = usize::try_from(given["steps"][0]["children"].as_u64().unwrap()).unwrap();
    let (before, model) = (
        FakeModel::start(vec![FakeModel::text("spent")]).await,
        FakeModel::start_with(vec![FakeModel::text("done")], true).await,
    );
    let tool = FakeTool::ok().await;
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.tenant("acme").await;
    let mut setting = bundle(&priced(&model, given["per_model_call"].as_u64().unwrap()), &two_tools(&tool));
    setting["models"]["before"] = priced(&before, given["spent"].as_u64().unwrap());
    setting["profiles"]["before"] = json!({"tools": ["look"], "model": "before"});
    setting["tenant_budget"] = json!({"max_cost_microusd": limit});
    caller.put_bundle(&setting).await;
    let first = caller.open("before", "spend").await;
    assert_eq!(caller.until_ended(&first, 1).await["run"]["ending"], "done");
    assert_eq!(on_counter(&server, "acme", "budget.cost_microusd").await, given["spent"].as_u64().unwrap());

    let sessions = all_at_once(&caller, children).await;
    assert_eq!(Some(model.requests().len() as u64), expect["children_that_call_the_model"].as_u64());
    let (done, spent) = (ended_as(&sessions, "done"), ended_as(&sessions, "budget_exhausted"));
    assert_eq!((done.len(), spent.len()), (1, children - 1));
    let total = on_counter(&server, "acme", "budget.cost_microusd").await;
    assert!(total <= expect["total_spent_at_most"].as_u64().unwrap(), "{total}");
    assert_eq!(total, given["spent"].as_u64().unwrap() + given["per_model_call"].as_u64().unwrap());
    // Reserved before the call, settled after it.
    caller.until_events(done[0], "budget_settled", 1).await;
    let kinds_done = kinds(&caller, done[0]).await;
    let from = kinds_done.iter().position(|kind| kind == "budget_reserved").unwrap();
    let order = ["budget_reserved", "reservation_answered", "ballot_received", "run_ended", "budget_settled"];
    assert_eq!(kinds_done[from..], order);
    for id in spent {
        let answered = caller.events_of(id, "reservation_answered").await;
        assert_eq!((answered.len(), &answered[0]["answer"]), (1, &json!("refused")));
        assert_eq!((&answered[0]["counter"], &answered[0]["limit"]), (&json!("budget.cost_microusd"), &json!(limit)));
        assert!(caller.events_of(id, "ballot_received").await.is_empty());
        caller.verified(id).await;
    }
    caller.verified(done[0]).await;
    server.stop().await;
}

async fn a_hundred_sessions_never_overshoot(backend: Backend) {
    const POSSIBLE: u64 = 37;
    let model = FakeModel::start_with(vec![FakeModel::text("done")], true).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(backend).await;
    let caller = server.tenant("acme").await;
    let setting = bundle(&priced(&model, PRICE), &two_tools(&tool));
    let limit = POSSIBLE * PRICE + PRICE - 1;
    caller.put_bundle(&with(setting, "/tenant_budget", json!({"max_cost_microusd": limit}))).await;
    let sessions = all_at_once(&caller, 100).await;
    let (done, spent) = (ended_as(&sessions, "done"), ended_as(&sessions, "budget_exhausted"));
    assert_eq!((done.len() as u64, spent.len() as u64), (POSSIBLE, 100 - POSSIBLE));
    assert_eq!(model.requests().len() as u64, POSSIBLE, "as many as the budget can pay, and not one more");
    assert_eq!(on_counter(&server, "acme", "budget.cost_microusd").await, POSSIBLE * PRICE);
    server.stop().await;
}

#[tokio::test]
async fn a_hundred_sessions_never_overshoot_on_sqlite() {
    a_hundred_sessions_never_overshoot(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_hundred_sessions_never_overshoot_on_postgres() {
    a_hundred_sessions_never_overshoot(Backend::Postgres).await;
}

#[tokio::test]
async fn a_run_ends_before_it_costs_more_than_it_may() {
    let model = FakeModel::start_with(vec![look()], true).await;
    let tool = FakeTool::ok().await;
    let setting = bundle(&priced(&model, PRICE), &two_tools(&tool));
    let (server, caller) =
        TestServer::with_bundle(&with(setting, "/default_harness/max_cost_microusd", json!(3 * PRICE - 1))).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "budget_exhausted");
    assert!(session["run"]["detail"].as_str().unwrap().contains("max_cost_microusd"), "{session}");
    assert_eq!(model.requests().len(), 2);
    // The next run has a budget of its own.
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "again"})).await;
    assert_eq!(caller.until_ended(&id, 2).await["run"]["model_calls"], 2);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_session_has_one_budget_for_all_its_runs() {
    let model = FakeModel::start(vec![FakeModel::text("one"), look(), FakeModel::text("never")]).await;
    let tool = FakeTool::ok().await;
    let setting = bundle(&model.entry(), &two_tools(&tool));
    let (server, caller) =
        TestServer::with_bundle(&with(setting, "/profiles/default/session_budget", json!({"max_model_calls": 2})))
            .await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "again"})).await;
    let session = caller.until_ended(&id, 2).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["model_calls"]), (&json!("budget_exhausted"), &json!(1)));
    assert_eq!(model.requests().len(), 2);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_a_restart_lost_is_paid() {
    let model = FakeModel::start_with(vec![look()], true).await;
    let tool = FakeTool::ok().await;
    let mut server = TestServer::start(Backend::Sqlite).await;
    let caller = server.tenant("acme").await;
    let mut setting = bundle(&priced(&model, PRICE), &two_tools(&tool));
    setting["default_harness"]["max_cost_microusd"] = json!(2 * PRICE);
    setting["tenant_budget"] = json!({"max_cost_microusd": 100 * PRICE});
    caller.put_bundle(&setting).await;
    model.hold();
    let id = caller.open("default", "go").await;
    model.until_asked(1).await;
    server.restart().await;
    model.until_asked(2).await;
    model.release();
    let caller = caller.at(server.url());
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["model_calls"]), (&json!("budget_exhausted"), &json!(2)));
    assert_eq!(caller.events_of(&id, "ballot_received").await.len(), 1, "one answer, two are paid");
    caller.until_events(&id, "budget_settled", 1).await;
    assert_eq!(on_counter(&server, "acme", "budget.cost_microusd").await, 2 * PRICE, "the tenant pays both as well");
    caller.verified(&id).await;
    server.stop().await;
}

/// A session whose run stands at its one step; the caller who may raise the bound, and the approval.
async fn paused(caller: &Caller, model: &FakeModel, tool: &FakeTool) -> (Caller, String, Value) {
    let mut setting = bundle(&model.entry(), &two_tools(tool));
    setting["default_harness"]["max_steps"] = json!(1);
    setting["default_harness"]["at_limit"] = json!("pause_and_ask");
    setting["profiles"]["default"]["approval"] = json!({});
    caller.put_bundle(&setting).await;
    let boss = caller.with_scopes("boss", &["approvals:write"]).await;
    let id = caller.open("default", "go").await;
    let session = caller.until(&id, "a question", |session| session["status"] == "waiting_approval").await;
    assert_eq!(session["allowed_actions"], json!(["cancel", "close", "decide_approval"]));
    let waiting = session["waiting"]["approvals"][0].as_object().unwrap();
    let view = boss.get(&format!("/v1/approvals/{}", waiting["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!((&view["tool"], &view["digest"]), (&json!("toolgate.raise_limit"), &waiting["digest"]));
    assert_eq!(view["args"], json!({"bound": "max_steps", "from": 1, "to": 2}));
    (boss, id, view)
}

async fn decide(caller: &Caller, view: &Value, mut body: Value) -> toolgate_tests::caller::Answer {
    body["digest"] = view["digest"].clone();
    caller.post(&format!("/v1/approvals/{}/decision", view["id"].as_str().unwrap()), &body).await
}

#[tokio::test]
async fn a_human_may_raise_a_bound() {
    let model = FakeModel::start(vec![look(), look(), FakeModel::text("done")]).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    let (boss, id, view) = paused(&caller, &model, &tool).await;
    let own = decide(&caller, &view, json!({"decision": "approve"})).await.expect(403);
    assert_eq!(own.code(), "self_approval");
    let less = json!({"decision": "edit", "arguments": {"bound": "max_steps", "from": 1, "to": 1}});
    assert_eq!(decide(&boss, &view, less).await.code(), "edit_invalid");
    assert_eq!(model.requests().len(), 1, "nobody is asked while the run is paused");
    let more = json!({"decision": "edit", "arguments": {"bound": "max_steps", "from": 1, "to": 3}});
    decide(&boss, &view, more).await.expect(200);
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["steps"]), (&json!("done"), &json!(3)));
    assert_eq!(session["run"]["limits"]["max_steps"], 3);
    let decided = caller.events_of(&id, "approval_decided").await;
    assert_eq!((decided.len(), &decided[0]["by"]), (1, &json!("boss")));
    caller.verified(&id).await;
    server.stop().await;
}

/// The bound as it was asked for; more than a bundle may name is refused.
async fn raised_as_asked(backend: Backend) {
    let model = FakeModel::start(vec![look(), FakeModel::text("done")]).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    let (boss, id, view) = paused(&caller, &model, &tool).await;
    let far = json!({"decision": "edit", "arguments": {"bound": "max_steps", "from": 1, "to": 201}});
    assert_eq!(decide(&boss, &view, far).await.code(), "edit_invalid");
    decide(&boss, &view, json!({"decision": "approve"})).await.expect(200);
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["limits"]["max_steps"]), (&json!("done"), &json!(2)));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_bound_is_raised_as_asked_on_sqlite() {
    raised_as_asked(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_bound_is_raised_as_asked_on_postgres() {
    raised_as_asked(Backend::Postgres).await;
}

#[tokio::test]
async fn a_bound_that_is_not_raised_ends_the_run() {
    let model = FakeModel::start(vec![look()]).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    let (boss, id, view) = paused(&caller, &model, &tool).await;
    decide(&boss, &view, json!({"decision": "deny", "message": "enough"})).await.expect(200);
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "approval_denied");
    assert!(session["run"]["detail"].as_str().unwrap().contains("enough"), "{session}");
    assert_eq!(model.requests().len(), 1);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn what_was_spent_is_listed_page_by_page() {
    let model = FakeModel::start_with(vec![FakeModel::text("done")], true).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.tenant("acme").await;
    let month: u64 = 31 * 24 * 60 * 60 * 1_000;
    let budget = json!({"max_cost_microusd": 10 * PRICE, "max_model_calls": 10, "window_ms": month});
    caller.put_bundle(&with(bundle(&priced(&model, PRICE), &two_tools(&tool)), "/tenant_budget", budget)).await;
    let nothing = caller.get("/v1/usage").await.expect(200).json();
    assert_eq!((&nothing["items"], &nothing["next_cursor"]), (&json!([]), &Value::Null));
    for _ in 0..2 {
        let id = caller.open("default", "go").await;
        caller.until_ended(&id, 1).await;
        caller.until_events(&id, "budget_settled", 1).await;
    }
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut query = "limit=1".to_owned();
    loop {
        let page = caller.get(&format!("/v1/usage?{query}")).await.expect(200).json();
        for item in page["items"].as_array().unwrap() {
            assert!(item["window_start"].as_str().unwrap().ends_with("T00:00:00.000Z"), "days of UTC: {item}");
            found.push((item["counter"].as_str().unwrap().to_owned(), item["used"].as_u64().unwrap()));
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        query = format!("limit=1&cursor={next}");
    }
    assert_eq!(found, [("budget.cost_microusd".to_owned(), 2 * PRICE), ("budget.model_calls".to_owned(), 2)]);
    // Only whoever may look, and only at their own.
    for scope in ["audit:read", "sessions:read"] {
        caller.with_scopes("reader", &[scope]).await.get("/v1/usage").await.expect(200);
    }
    let refused = caller.with_scopes("other", &["approvals:write"]).await.get("/v1/usage").await.expect(403);
    assert_eq!(refused.code(), "insufficient_scope");
    assert_eq!(server.caller().get("/v1/usage").await.expect(200).json()["items"], json!([]));
    server.stop().await;
}
