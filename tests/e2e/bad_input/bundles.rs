//! Bundles with faults, all named with place and rule, and writes that do not know what they replace.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::caller::Answer;
use toolgate_tests::world::{bundle, two_tools, usual, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

async fn put(caller: &Caller, condition: Option<(&str, &str)>, bundle: &Value) -> Answer {
    let request = caller.request(Method::PUT, "/v1/bundle").json(bundle);
    Caller::send(match condition {
        Some((name, value)) => request.header(name, value),
        None => request,
    })
    .await
}

#[tokio::test]
async fn each_fault_is_named_with_its_place_and_rule() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    let good = usual(&model, &tool);
    let profile = |more: Value| {
        let mut profile = json!({"tools": ["look"]});
        profile.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        profile
    };
    let faults: Vec<(&str, Value, &str, &str)> = vec![
        ("/version", json!(2), "/version", "version"),
        ("/colour", json!("red"), "/colour", "shape"),
        ("/tools/look/colour", json!("red"), "/tools/look/colour", "shape"),
        ("/tools/Bad Name", json!({}), "", "shape"),
        ("/tools/look/class", json!("sometimes"), "/tools/look/class", "shape"),
        ("/tools/look/timeout_ms", json!(0), "/tools/look/timeout_ms", "range"),
        ("/tools/look/max_output_bytes", json!(8_388_609), "/tools/look/max_output_bytes", "range"),
        ("/tools/look/executor", json!(null), "/tools/look/executor", "executor"),
        ("/tools/look/executor", json!({"http": {"url": "ftp://x"}}), "/tools/look/executor/http/url", "url"),
        ("/tools/look/parameters", json!({"type": "array"}), "/tools/look/parameters/type", "schema"),
        (
            "/tools/look/parameters",
            json!({"properties": {"a": {"type": "nothing"}}}),
            "/tools/look/parameters",
            "schema",
        ),
        ("/tools/look/parameters", json!({"properties": {"tenant_id": {}}}), "/tools/look/parameters", "identity_key"),
        ("/profiles/default", json!(["look", "nothing"]), "/profiles/default/tools/1", "tool_exists"),
        ("/profiles/default", json!(["look", "look"]), "/profiles/default/tools/1", "duplicate"),
        ("/profiles/default", profile(json!({"model": "other"})), "/profiles/default/model", "model_exists"),
        (
            "/profiles/default",
            profile(json!({"trace_requirements": {"x": 1}})),
            "/profiles/default/trace_requirements/x",
            "reachable",
        ),
        (
            "/profiles/default",
            profile(json!({"on_reject": {"cross_tenant_denied": "feedback"}})),
            "/profiles/default/on_reject/cross_tenant_denied",
            "always_ends",
        ),
        (
            "/profiles/default",
            profile(json!({"consensus": {"n": 3, "k": 4}})),
            "/profiles/default/consensus/k",
            "range",
        ),
        ("/default_harness/max_steps", json!(0), "/default_harness/max_steps", "range"),
        ("/default_harness", json!(null), "/profiles/default", "bounds"),
        ("/default_model", json!("other"), "/default_model", "model_exists"),
        ("/models/m/base_url", json!("nowhere"), "/models/m/base_url", "url"),
        ("/profiles", json!({}), "/profiles", "profile_exists"),
        (
            "/classification",
            json!({"rules": {"a": {"profile": "none"}}}),
            "/classification/rules/a/profile",
            "profile_exists",
        ),
    ];
    for (place, value, pointer, rule) in faults {
        let refused = put(&caller, None, &with(good.clone(), place, value.clone())).await.expect(422);
        assert_eq!(refused.code(), "bundle_invalid", "{place} = {value}");
        let named: Vec<(String, String)> = refused.json()["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| (error["pointer"].as_str().unwrap().to_owned(), error["code"].as_str().unwrap().to_owned()))
            .collect();
        let found = named.iter().any(|(at, code)| code == rule && at.starts_with(pointer));
        assert!(found, "{place} = {value}: {named:?} has no `{rule}` at {pointer}");
    }
    assert_eq!(caller.get("/v1/bundle").await.expect(404).code(), "not_found", "nothing was stored");
    server.stop().await;
}

#[tokio::test]
async fn a_schema_is_no_deeper_than_any_other_input() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Sqlite).await;
    let schema = (0..64).fold(json!({"type": "string"}), |inner, _| json!({ "items": inner }));
    let deep = with(usual(&model, &tool), "/tools/look/parameters", json!({"properties": {"a": schema}}));
    let refused = put(&server.caller(), None, &deep).await.expect(400);
    assert!(refused.code() == "malformed" && refused.text.contains("deeper than 64"), "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn all_faults_are_named_at_once() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Sqlite).await;
    let bad = with(usual(&model, &tool), "/tools/look/timeout_ms", json!(0));
    let bad = with(with(bad, "/default_harness/max_steps", json!(0)), "/profiles/default", json!(["nothing"]));
    let refused = put(&server.caller(), None, &bad).await.expect(422);
    assert!(refused.json()["errors"].as_array().unwrap().len() >= 3, "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn an_example_with_another_decision_is_a_fault() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Sqlite).await;
    let examples = json!([{"propose": {"tool": "act", "args": {}}, "expect": "allow"}]);
    let bad = with(usual(&model, &tool), "/profiles/default", json!({"tools": ["look"], "examples": examples}));
    let refused = put(&server.caller(), None, &bad).await.expect(422);
    assert!(refused.text.contains("/profiles/default/examples/0"), "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn a_write_says_what_it_replaces() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Postgres).await;
    let caller = server.caller();
    let first = usual(&model, &tool);
    let second = with(first.clone(), "/profiles/other", json!(["look"]));
    assert_eq!(put(&caller, Some(("if-match", "*")), &first).await.expect(412).code(), "precondition_failed");
    let made = put(&caller, Some(("if-none-match", "*")), &first).await.expect(201);
    let tag = made.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(made.headers["location"], format!("/v1/bundles/{}", tag.trim_matches('"')));
    assert_eq!(put(&caller, None, &second).await.expect(428).code(), "precondition_required");
    assert_eq!(put(&caller, Some(("if-none-match", "*")), &second).await.expect(412).code(), "precondition_failed");
    let other = format!("\"sha256:{}\"", "0".repeat(64));
    put(&caller, Some(("if-match", &other)), &second).await.expect(412);
    for unreadable in ["sha256:abc", "\"sha256:abc\"", "W/\"x\"", "\"a\", \"b\"", ""] {
        let refused = put(&caller, Some(("if-match", unreadable)), &second).await.expect(400);
        assert_eq!(refused.code(), "malformed", "{unreadable}");
    }
    assert_eq!(caller.get("/v1/bundle").await.expect(200).headers["etag"], tag.as_str());
    let changed = put(&caller, Some(("if-match", &tag)), &second).await.expect(201);
    // The same write again: the tag it names is gone.
    put(&caller, Some(("if-match", &tag)), &second).await.expect(412);
    // The earlier version comes back: it was there before.
    let back = put(&caller, Some(("if-match", changed.headers["etag"].to_str().unwrap())), &first).await.expect(200);
    assert_eq!(back.headers["etag"], tag.as_str());
    let unchanged = caller.request(Method::GET, "/v1/bundle").header("if-none-match", &tag);
    Caller::send(unchanged).await.expect(304);
    server.stop().await;
}

#[tokio::test]
async fn of_two_writers_over_one_version_one_wins() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &two_tools(&tool))).await;
    let current = caller.get("/v1/bundle").await.expect(200);
    let tag = current.headers["etag"].to_str().unwrap();
    let version = |name: &str| with(current.json(), &format!("/profiles/{name}"), json!(["look"]));
    let (a, b) = (version("a"), version("b"));
    let condition = Some(("if-match", tag));
    let (a, b) = tokio::join!(put(&caller, condition, &a), put(&caller, condition, &b));
    let mut statuses = [a.status.as_u16(), b.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 412]);
    server.stop().await;
}
