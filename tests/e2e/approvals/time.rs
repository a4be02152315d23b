//! Approvals that outlive a restart, lapse, or end with their run.

use serde_json::json;
use toolgate_tests::world::with;
use toolgate_tests::{Backend, FakeModel};

use super::{World, pay};

#[tokio::test]
async fn an_approval_that_nobody_decides_expires() {
    let soon = |bundle| {
        let profile = json!({"tools": ["pay", "look"], "approval": {"expires_ms": 1000, "self_approval": true}});
        with(bundle, "/profiles/default", profile)
    };
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#), FakeModel::text("gave up")], soon).await;
    let waiting = world.waiting().await;
    let session = world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(session["run"]["output"], "gave up");
    assert!(world.paid().is_empty());
    let ended = world.caller.events_of(&waiting.session, "call_ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["cause"]), (&json!("expired"), &json!("approval_expired")));
    assert!(world.model.requests()[1]["messages"].to_string().contains("approval_expired"));
    let late = waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(410);
    assert_eq!(late.code(), "approval_expired");
    assert_eq!(waiting.view(&world.caller).await["status"], "expired");
    assert!(world.paid().is_empty());
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

async fn restart_keeps_it(backend: Backend) {
    let answers = vec![pay(r#"{"amount":3}"#), FakeModel::text("paid")];
    let mut world = World::start_on(backend, answers, |bundle| bundle).await;
    let waiting = world.waiting().await;
    let before = waiting.view(&world.caller).await;
    world.server.restart().await;
    let caller = world.server.caller();
    assert_eq!(waiting.view(&caller).await, before);
    assert_eq!(caller.session(&waiting.session).await["status"], "waiting_approval");
    waiting.decide(&caller, json!({"decision": "approve"})).await.expect(200);
    caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid(), [r#"{"amount":3}"#]);
    assert_eq!(world.model.requests().len(), 2, "the model is not asked again for what it has said");
    caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_the_pending_approval_on_sqlite() {
    restart_keeps_it(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_restart_keeps_the_pending_approval_on_postgres() {
    restart_keeps_it(Backend::Postgres).await;
}

#[tokio::test]
async fn an_approval_that_lapses_while_the_server_is_down_has_expired() {
    let soon = |bundle| {
        let profile = json!({"tools": ["pay", "look"], "approval": {"expires_ms": 1000}});
        with(bundle, "/profiles/default", profile)
    };
    let mut world =
        World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#), FakeModel::text("gave up")], soon).await;
    let waiting = world.waiting().await;
    world.server.restart().await;
    let caller = world.server.caller();
    caller.until_ended(&waiting.session, 1).await;
    assert_eq!(waiting.decide(&caller, json!({"decision": "approve"})).await.expect(410).code(), "approval_expired");
    assert!(world.paid().is_empty());
    caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn a_cancelled_run_takes_its_approval_with_it() {
    let world = World::start(vec![pay(r#"{"amount":1}"#)]).await;
    let waiting = world.waiting().await;
    world.caller.post(&format!("/v1/sessions/{}/cancel", waiting.session), &json!({})).await.expect(200);
    assert_eq!(waiting.view(&world.caller).await["status"], "cancelled");
    let late = waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(409);
    assert_eq!(late.code(), "approval_closed");
    let ended = world.caller.events_of(&waiting.session, "call_ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["dispatched"]), (&json!("cancelled"), &json!(false)));
    assert!(world.paid().is_empty());
    world.server.stop().await;
}
