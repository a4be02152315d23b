//! Two tenants on one server: what one has, the other can neither see nor touch nor find out. Every route with an id is
//! walked in `bad_input::ids`; forged identities in arguments are in `audit` too.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::{bundle, server_tool, usual, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// Everything that a tenant can list or read without an id, as text.
async fn everything(caller: &Caller) -> String {
    let mut all = String::new();
    for path in ["/v1/sessions", "/v1/approvals", "/v1/api-keys", "/v1/security-events", "/v1/bundle"] {
        all.push_str(&caller.get(path).await.text);
    }
    all
}

async fn nothing_of_the_other(backend: Backend) {
    let answers = vec![FakeModel::calls(&[("act", r#"{"text":"acme's secret"}"#)])];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let act = with(server_tool(&tool, "act", "once"), "/requires_approval", json!(true));
    let server = TestServer::start(backend).await;
    let (acme, rival) = (server.tenant("acme").await, server.tenant("rival").await);
    acme.put_bundle(&bundle(&model.entry(), &json!({ "act": act }))).await;
    let body =
        json!({"id": "acme-ticket", "profile": "default", "prompt": "acme's secret", "metadata": {"acme": "secret"}});
    let id = acme.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let session = acme.until(&id, "an approval", |s| s["status"] == "waiting_approval").await;
    let approval = session["waiting"]["approvals"][0]["id"].as_str().unwrap().to_owned();
    acme.with_scopes("acme-worker", &["sessions:read"]).await.get("/v1/sessions").await.expect(200);

    let seen = everything(&rival).await;
    for secret in ["acme", "secret", &id, &approval, session["bundle"].as_str().unwrap()] {
        assert!(!seen.contains(secret), "`{secret}` in {seen}");
    }
    assert_eq!(rival.get("/v1/sessions?alias=acme-ticket").await.expect(200).json()["items"], json!([]));
    assert_eq!(rival.get("/v1/approvals?status=pending").await.expect(200).json()["items"], json!([]));
    assert_eq!(rival.get("/v1/bundle").await.expect(404).code(), "not_found");
    assert_eq!(
        rival.post("/v1/sessions", &json!({"profile": "default", "prompt": "x"})).await.expect(409).code(),
        "no_bundle"
    );
    // The owner sees it all.
    let own = everything(&acme).await;
    for mine in [&id, &approval, "acme-worker"] {
        assert!(own.contains(mine), "`{mine}` is missing in {own}");
    }
    server.stop().await;
}

#[tokio::test]
async fn lists_hold_nothing_of_the_other_tenant_on_sqlite() {
    nothing_of_the_other(Backend::Sqlite).await;
}

#[tokio::test]
async fn lists_hold_nothing_of_the_other_tenant_on_postgres() {
    nothing_of_the_other(Backend::Postgres).await;
}

async fn names_are_the_tenants_own(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let (acme, rival) = (server.tenant("acme").await, server.tenant("rival").await);
    let same = usual(&model, &tool);
    acme.put_bundle(&same).await;
    rival.put_bundle(&same).await;
    let start = |caller: &Caller| {
        let body = json!({"id": "ticket-1", "profile": "default", "prompt": "go"});
        caller.request(Method::POST, "/v1/sessions").header("idempotency-key", "job-1").json(&body)
    };
    let first = Caller::send(start(&acme)).await.expect(201);
    let second = Caller::send(start(&rival)).await.expect(201);
    assert_eq!(second.headers["idempotency-replayed"], "false", "a key of another tenant is another key");
    assert_ne!(first.json()["id"], second.json()["id"], "an alias of another tenant is another alias");
    for (caller, answer) in [(&acme, &first), (&rival, &second)] {
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        caller.until_ended(&id, 1).await;
        let found = caller.get("/v1/sessions?alias=ticket-1").await.expect(200).json();
        assert_eq!((found["items"].as_array().unwrap().len(), &found["items"][0]["id"]), (1, &json!(id)));
        caller.verified(&id).await;
    }
    // The same bundle has the same digest, and is still each tenant's own: another one of the rival changes nothing here.
    let tag = rival.get("/v1/bundle").await.expect(200).headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(acme.get("/v1/bundle").await.expect(200).headers["etag"], tag.as_str());
    let other = with(same, "/profiles/default", json!(["look"]));
    let put = rival.request(Method::PUT, "/v1/bundle").header("if-match", &tag).json(&other);
    let changed = Caller::send(put).await.expect(201).headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(acme.get("/v1/bundle").await.expect(200).headers["etag"], tag.as_str());
    acme.get(&format!("/v1/bundles/{}", changed.trim_matches('"'))).await.expect(404);
    // A cursor is its tenant's own.
    acme.open("default", "more").await;
    let page = acme.get("/v1/sessions?limit=1").await.expect(200).json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let refused = rival.get(&format!("/v1/sessions?limit=1&cursor={cursor}")).await.expect(400);
    assert_eq!(refused.code(), "cursor_invalid");
    server.stop().await;
}

#[tokio::test]
async fn aliases_keys_bundles_and_cursors_are_the_tenants_own_on_sqlite() {
    names_are_the_tenants_own(Backend::Sqlite).await;
}

#[tokio::test]
async fn aliases_keys_bundles_and_cursors_are_the_tenants_own_on_postgres() {
    names_are_the_tenants_own(Backend::Postgres).await;
}

async fn security_log(caller: &Caller) -> Vec<Value> {
    caller.get("/v1/security-events?limit=200").await.expect(200).json()["items"].as_array().unwrap().clone()
}

async fn probes(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let (acme, rival) = (server.tenant("acme").await, server.tenant("rival").await);
    acme.put_bundle(&usual(&model, &tool)).await;
    let id = acme.open("default", "go").await;
    acme.until_ended(&id, 1).await;
    let before = (acme.events(&id).await, security_log(&acme).await);
    let absent = "ses_018f3c7a000070008000000000000001";
    for session in [id.as_str(), absent] {
        rival.get(&format!("/v1/sessions/{session}")).await.expect(404);
        rival.get(&format!("/v1/sessions/{session}/events")).await.expect(404);
        rival.post(&format!("/v1/sessions/{session}/messages"), &json!({"text": "hello"})).await.expect(404);
        rival.post(&format!("/v1/sessions/{session}/cancel"), &json!({})).await.expect(404);
        rival.post(&format!("/v1/sessions/{session}/close"), &json!({})).await.expect(404);
        rival.post(&format!("/v1/sessions/{session}/verify"), &json!({})).await.expect(404);
    }
    let entries = security_log(&rival).await;
    for session in [id.as_str(), absent] {
        let of: Vec<&Value> = entries.iter().filter(|entry| entry["session_id"] == session).collect();
        assert_eq!(of.len(), 6, "each attempt is noted, whether the id exists or not: {entries:#?}");
        assert!(of.iter().all(|entry| entry["code"] == "unknown_session_id" && entry["actor"] == "admin-of-rival"));
    }
    // The owner's side has neither changed nor heard of it.
    assert_eq!((acme.events(&id).await, security_log(&acme).await), before);
    // However many attempts there are, the log does not grow without bound.
    for _ in 0..40 {
        rival.get(&format!("/v1/sessions/{id}")).await.expect(404);
    }
    // At most two minutes are touched, twenty entries each.
    assert!(security_log(&rival).await.len() <= 40);
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_attempt_lands_in_the_probers_security_log_on_sqlite() {
    probes(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_foreign_attempt_lands_in_the_probers_security_log_on_postgres() {
    probes(Backend::Postgres).await;
}

#[tokio::test]
async fn a_forged_identity_ends_the_run_at_any_depth_and_spelling() {
    for forged in [
        r#"{"tenant":"other"}"#,
        r#"{"text":"a","TENANT-id":"x"}"#,
        r#"{"text":"a","approvedBy":"me"}"#,
        r#"{"a":[[{"b":{"Principal_ID":1}}]]}"#,
        r#"{"\u0061ctor":null}"#,
    ] {
        let both = FakeModel::calls(&[("look", r#"{"text":"fine"}"#), ("look", forged), ("act", "{}")]);
        let (model, tool) = (FakeModel::start(vec![both, FakeModel::text("sorry")]).await, FakeTool::ok().await);
        let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
        let id = caller.open("default", "go").await;
        let session = caller.until_ended(&id, 1).await;
        assert_eq!(session["run"]["ending"], "cross_tenant_denied", "{forged}");
        assert!(tool.journal().is_empty(), "{forged}: what was not sent yet is not sent");
        let entries = security_log(&caller).await;
        let found = entries.iter().filter(|entry| entry["code"] == "cross_tenant_denied");
        assert_eq!(found.filter(|entry| entry["session_id"] == id.as_str()).count(), 1, "{forged}");
        // The conversation can go on, with one result for each of the three calls.
        caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "do not do that"})).await.expect(202);
        assert_eq!(caller.until_ended(&id, 2).await["run"]["output"], "sorry");
        let messages = model.requests()[1]["messages"].as_array().unwrap().clone();
        assert_eq!(messages.iter().filter(|message| message["role"] == "tool").count(), 3, "{forged}");
        assert_eq!(tool.journal().len(), 0, "{forged}");
        caller.verified(&id).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn what_only_looks_like_identity_is_left_alone() {
    // Values are data, and other names are other names.
    let fine = r#"{"text":"tenant_id=other, approved: yes"}"#;
    let answers = vec![FakeModel::calls(&[("look", fine)]), FakeModel::text("done")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    assert_eq!(tool.journal()[0].body, fine);
    server.stop().await;
}

#[tokio::test]
async fn a_bundle_may_name_further_identity_keys() {
    let answers = vec![FakeModel::calls(&[("look", r#"{"text":"a","Customer-No":"7"}"#)])];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let bundle = with(usual(&model, &tool), "/identity_keys", json!(["customer_no"]));
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "cross_tenant_denied");
    server.stop().await;
}
