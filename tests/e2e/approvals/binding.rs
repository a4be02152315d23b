//! Who may decide, what a decision is bound to, and that it is used once.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;
use toolgate_tests::{Backend, Caller, FakeModel};

use super::{World, pay};

#[tokio::test]
async fn decisions_that_make_no_sense_are_refused_and_change_nothing() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")]).await;
    let waiting = world.waiting().await;
    for (body, pointer) in [
        (json!({"decision": "edit"}), "/arguments"),
        (json!({"decision": "edit", "arguments": [1]}), "/arguments"),
        (json!({"decision": "approve", "arguments": {"amount": 2}}), "/arguments"),
        (json!({"decision": "approve", "message": "fine"}), "/message"),
        (json!({"decision": "deny", "message": "x".repeat(2_001)}), "/message"),
        (json!({"decision": "maybe"}), "/decision"),
        (json!({"decision": "approve", "by": "somebody else"}), "/by"),
    ] {
        let refused = waiting.decide(&world.caller, body.clone()).await.expect(422);
        assert_eq!(refused.code(), "invalid_request", "{body}");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{body}: {}", refused.text);
    }
    let path = format!("/v1/approvals/{}/decision", waiting.id);
    world.caller.post(&path, &json!({"decision": "approve"})).await.expect(422);
    world.caller.post(&path, &json!({"decision": "approve", "digest": "sha256:abc"})).await.expect(422);
    assert_eq!(waiting.view(&world.caller).await["status"], "pending");
    assert!(world.paid().is_empty());
    waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_decision_about_other_bytes_is_refused() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")]).await;
    let waiting = world.waiting().await;
    let other = format!("sha256:{}", "ab".repeat(32));
    let path = format!("/v1/approvals/{}/decision", waiting.id);
    for decision in ["approve", "deny"] {
        let refused = world.caller.post(&path, &json!({"decision": decision, "digest": other})).await.expect(409);
        assert_eq!(refused.code(), "approval_digest_mismatch");
    }
    assert_eq!(waiting.view(&world.caller).await["status"], "pending");
    assert!(world.paid().is_empty());
    waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid().len(), 1);
    world.server.stop().await;
}

#[tokio::test]
async fn the_second_answer_gets_the_recorded_one() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")]).await;
    let (grace, alan) = (
        world.caller.with_scopes("grace", &["approvals:write"]).await,
        world.caller.with_scopes("alan", &["approvals:write"]).await,
    );
    let waiting = world.waiting().await;
    waiting.decide(&grace, json!({"decision": "approve"})).await.expect(200);
    for body in [json!({"decision": "deny"}), json!({"decision": "edit", "arguments": {"amount": 7}})] {
        let answer = waiting.decide(&alan, body).await.expect(200).json();
        assert_eq!((&answer["decision"], &answer["settled_by"]), (&json!("approve"), &json!("grace")));
    }
    world.caller.until_ended(&waiting.session, 1).await;
    let late = waiting.decide(&alan, json!({"decision": "deny"})).await.expect(200).json();
    assert_eq!(late["decision"], "approve");
    assert_eq!(world.paid(), [r#"{"amount":1}"#]);
    assert_eq!(world.caller.events_of(&waiting.session, "approval_decided").await.len(), 1);
    world.server.stop().await;
}

#[tokio::test]
async fn of_approvers_at_the_same_moment_one_decides_and_all_hear_the_same() {
    let world =
        World::start_on(Backend::Postgres, vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")], |bundle| bundle)
            .await;
    let waiting = world.waiting().await;
    let (a, b, c) = tokio::join!(
        waiting.decide(&world.caller, json!({"decision": "deny"})),
        waiting.decide(&world.caller, json!({"decision": "approve"})),
        waiting.decide(&world.caller, json!({"decision": "edit", "arguments": {"amount": 2}})),
    );
    let heard: BTreeSet<String> =
        [a, b, c].into_iter().map(|answer| answer.expect(200).json()["decision"].to_string()).collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.caller.events_of(&waiting.session, "approval_decided").await.len(), 1);
    let expected: &[&str] = match heard.first().unwrap().as_str() {
        "\"approve\"" => &[r#"{"amount":1}"#],
        "\"edit\"" => &[r#"{"amount":2}"#],
        _ => &[],
    };
    assert_eq!(world.paid(), expected);
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_repeated_decision_with_its_key_gets_its_answer() {
    let world = World::start(vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")]).await;
    let waiting = world.waiting().await;
    let path = format!("/v1/approvals/{}/decision", waiting.id);
    let body = json!({"decision": "approve", "digest": waiting.digest});
    let request = || world.caller.request(Method::POST, &path).header("idempotency-key", "yes-1").json(&body);
    let first = Caller::send(request()).await.expect(200);
    let again = Caller::send(request()).await.expect(200);
    assert_eq!((first.text, again.headers["idempotency-replayed"].as_bytes()), (again.text, &b"true"[..]));
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid().len(), 1);
    world.server.stop().await;
}

#[tokio::test]
async fn deciding_needs_the_scope() {
    let world = World::start(vec![pay(r#"{"amount":1}"#)]).await;
    let waiting = world.waiting().await;
    let reader = world.caller.with_scopes("reader", &["sessions:read", "audit:read"]).await;
    let writer = world.caller.with_scopes("writer", &["sessions:write", "client:execute", "registry:write"]).await;
    let refused = waiting.decide(&reader, json!({"decision": "approve"})).await.expect(403);
    assert_eq!(refused.code(), "insufficient_scope");
    assert!(refused.text.contains("approvals:write"), "{}", refused.text);
    waiting.decide(&writer, json!({"decision": "approve"})).await.expect(403);
    assert_eq!(waiting.view(&reader).await["status"], "pending");
    writer.get(&format!("/v1/approvals/{}", waiting.id)).await.expect(403);
    writer.get("/v1/approvals").await.expect(403);
    assert!(world.paid().is_empty());
    world.server.stop().await;
}

#[tokio::test]
async fn arguments_that_look_like_something_else_are_shown_escaped_too() {
    let world = World::start(vec![pay("{\"amount\":1,\"note\":\"to \u{202e}nala\"}")]).await;
    let waiting = world.waiting().await;
    let view = waiting.view(&world.caller).await;
    assert_eq!(view["args"]["note"], "to \u{202e}nala");
    assert_eq!(view["args_escaped"], "{\"amount\":1,\"note\":\"to \\u202enala\"}");
    world.server.stop().await;
}
