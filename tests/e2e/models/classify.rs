//! Which profile a session gets: by a label that was given, by a model that was asked, or by the default rule.

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer, Wild, WildModel};

/// `billing` may look and must have looked twice; `general` may do nothing.
fn classified(worker: &FakeModel, tool: &FakeTool, classifier: Option<Value>, default: bool) -> Value {
    let mut bundle = bundle(&worker.entry(), &two_tools(tool));
    bundle["profiles"] = json!({
        "billing": {"tools": ["look"], "trace_requirements": {"seen": 1}},
        "general": {"tools": []}
    });
    bundle["tools"]["look"]["tags"] = json!(["seen"]);
    let mut classification = json!({"rules": {
        "refund": {"profile": "billing", "trace_requirements": {"seen": 2}},
        "chat": {"profile": "general"}
    }});
    if default {
        classification["default"] = json!({"profile": "general"});
    }
    if let Some(entry) = classifier {
        bundle["models"]["classifier"] = entry;
        classification["model"] = json!("classifier");
    }
    with(bundle, "/classification", classification)
}

fn look(text: &str) -> Value {
    FakeModel::calls(&[("look", &json!({"text": text}).to_string())])
}

fn worker() -> Vec<Value> {
    vec![look("1"), FakeModel::text("too early"), look("2"), FakeModel::text("refunded")]
}

fn says(text: &str) -> Value {
    FakeModel::text(text)
}

async fn opened(caller: &Caller, body: Value) -> String {
    let answer = caller.post("/v1/sessions", &with(body, "/prompt", json!("I want my money back"))).await.expect(201);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_given_label_picks_profile_and_evidence() {
    let (model, tool) = (FakeModel::start(worker()).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&classified(&model, &tool, None, false)).await;
    let id = opened(&caller, json!({"label": "refund"})).await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["profile"], &session["label"]), (&json!("billing"), &json!("refund")));
    assert_eq!((&session["run"]["ending"], &session["run"]["steps"]), (&json!("done"), &json!(4)));
    assert_eq!(caller.events_of(&id, "profile_chosen").await[0]["trace_requirements"], json!({"seen": 2}));
    assert_eq!(caller.events_of(&id, "step_ended").await[0]["deficits"], json!({"seen": {"have": 1, "need": 2}}));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn labels_and_profiles_that_do_not_fit_are_refused() {
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&classified(&model, &tool, None, false)).await;
    for (body, status, code) in [
        (json!({"label": "cooking"}), 422, "unknown_label"),
        (json!({"profile": "admin"}), 422, "unknown_profile"),
        (json!({}), 422, "profile_required"),
        (json!({"label": "refund", "profile": "general"}), 403, "profile_not_permitted"),
    ] {
        let refused = caller.post("/v1/sessions", &with(body, "/prompt", json!("go"))).await.expect(status);
        assert_eq!(refused.code(), code);
    }
    assert_eq!(caller.get("/v1/sessions").await.json()["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_model_finds_the_label() {
    let answer = r#"{"label":"refund","confidence":0.91,"reasoning":"asks for money back"}"#;
    let (classifier, model) = (FakeModel::start(vec![says(answer)]).await, FakeModel::start(worker()).await);
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&classified(&model, &tool, Some(classifier.entry()), false)).await;
    let id = opened(&caller, json!({})).await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["profile"], &session["run"]["output"]), (&json!("billing"), &json!("refunded")));
    let received = caller.events_of(&id, "classification_received").await;
    let content = &received[0]["content"];
    assert_eq!((&content["label"], &content["confidence_milli"]), (&json!("refund"), &json!(910)));
    let asked = classifier.requests()[0].to_string();
    assert!(asked.contains("refund") && asked.contains("chat") && asked.contains("money back"), "{asked}");
    caller.verified(&id).await;
    server.stop().await;
}

/// Runs a session whose classifier behaves like this; the session and what was recorded.
async fn classified_by(behaviour: Wild, default: bool) -> (Value, Value) {
    let (wild, model) = (WildModel::start(vec![behaviour]).await, FakeModel::start(vec![says("hello")]).await);
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&classified(&model, &tool, Some(wild.entry()), default)).await;
    let id = opened(&caller, json!({})).await;
    let session = caller.until_ended(&id, 1).await;
    let received = caller.events_of(&id, "classification_received").await;
    assert_eq!(received.len(), 1);
    caller.verified(&id).await;
    server.stop().await;
    (session, received[0]["content"].clone())
}

fn bad_classifiers() -> Vec<Wild> {
    let text = |text: &str| Wild::completion(&FakeModel::text(text));
    vec![
        text("I think this is a refund."),
        text(r#"{"label":"cooking"}"#),
        text(r#"{"label":"refund","confidence":7}"#),
        text(r#"["refund"]"#),
        text(""),
        Wild::response("500 Oops", "text/html", b"<html>"),
        Wild::Hang(Vec::new()),
        Wild::Bytes(Vec::new()),
    ]
}

#[tokio::test]
async fn a_classifier_that_fails_ends_the_run_and_widens_nothing() {
    for behaviour in bad_classifiers() {
        let (session, content) = classified_by(behaviour.clone(), false).await;
        assert_eq!(session["run"]["ending"], "classification_failed", "{behaviour:?}");
        assert_eq!(session["profile"], Value::Null);
        assert!(content["label"].is_null() && content["failure"].is_string(), "{behaviour:?}: {content}");
    }
}

#[tokio::test]
async fn a_classifier_that_fails_leads_to_the_default_rule() {
    for behaviour in bad_classifiers() {
        let (session, content) = classified_by(behaviour.clone(), true).await;
        assert_eq!((&session["profile"], &session["label"]), (&json!("general"), &Value::Null), "{behaviour:?}");
        assert_eq!(session["run"]["ending"], "done");
        assert!(content["failure"].is_string());
    }
}

#[tokio::test]
async fn a_classifier_never_leads_beyond_the_credential() {
    let classifier = FakeModel::start_with(vec![says(r#"{"label":"refund"}"#)], true).await;
    let (model, tool) = (FakeModel::start(Vec::new()).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&classified(&model, &tool, Some(classifier.entry()), true)).await;
    let scopes = ["sessions:read", "sessions:write", "audit:read"];
    let narrow = json!({"actor": "kiosk", "scopes": scopes, "profiles": ["general"]});
    let (_, kiosk) = caller.made(&narrow).await;
    let id = opened(&kiosk, json!({})).await;
    let session = kiosk.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["profile"]), (&json!("classification_failed"), &Value::Null));
    for body in [json!({"label": "refund"}), json!({"profile": "billing"})] {
        let refused = kiosk.post("/v1/sessions", &with(body, "/prompt", json!("go"))).await.expect(403);
        assert_eq!(refused.code(), "profile_not_permitted");
    }
    assert!(model.requests().is_empty() && tool.journal().is_empty());
    server.stop().await;
}
