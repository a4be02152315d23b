//! Each reason why a decision does not hold has a code of its own, over REST and over the channel.

use serde_json::{Value, json};
use toolgate_tests::world::with;
use toolgate_tests::{Backend, FakeModel};

use super::rules::next;
use super::{Waiting, World, pay};
use crate::channel::Socket;

/// Asks for the same decision over REST and over the channel; both must refuse it with this code.
async fn refused(world: &World, socket: &mut Socket, waiting: &Waiting, body: Value, code: &str) {
    let body = if body["digest"].is_null() { with(body, "/digest", json!(waiting.digest)) } else { body };
    let answer = world.caller.post(&format!("/v1/approvals/{}/decision", waiting.id), &body).await;
    assert!(answer.status.is_client_error(), "{code}: {}", answer.text);
    assert_eq!(answer.code(), code);
    refused_over_channel(socket, waiting, body, code).await;
}

async fn refused_over_channel(socket: &mut Socket, waiting: &Waiting, body: Value, code: &str) {
    let mut frame = body;
    frame["type"] = json!("Approval");
    frame["frame_id"] = json!(code);
    frame["session_id"] = json!(waiting.session);
    frame["approval_id"] = json!(waiting.id);
    socket.send(frame).await;
    let error = socket.until("Error").await;
    assert_eq!((&error["code"], &error["re"]), (&json!(code), &json!(code)), "{error}");
}

#[tokio::test]
async fn each_refusal_has_its_own_code() {
    let held = FakeModel::calls(&[("look", "{}"), ("pay", r#"{"amount":1}"#)]);
    let world = World::start(vec![held, FakeModel::text("over")]).await;
    // One call is under way all the time, so that what is approved is not sent.
    world.tool.hold();
    let id = world.caller.open("default", "pay").await;
    let waiting = next(&world, &id, "").await;
    let mut socket = Socket::hello(&world.server, "desk", json!([])).await;
    let approve = || json!({"decision": "approve"});
    // One byte of the digest changed.
    let mut other = waiting.digest.clone();
    let last = if other.pop() == Some('0') { '1' } else { '0' };
    other.push(last);
    let changed = with(approve(), "/digest", json!(other));
    refused(&world, &mut socket, &waiting, changed, "approval_digest_mismatch").await;
    let elsewhere = with(approve(), "/bundle", json!(format!("sha256:{}", "ab".repeat(32))));
    refused(&world, &mut socket, &waiting, elsewhere, "approval_bundle_mismatch").await;
    assert_eq!(waiting.view(&world.caller).await["status"], "pending");
    let session = world.caller.session(&waiting.session).await;
    waiting.decide(&world.caller, with(approve(), "/bundle", session["bundle"].clone())).await.expect(200);
    // Over REST the second answer gets the recorded one; over the channel it is told that there is one.
    let second = waiting.decide(&world.caller, json!({"decision": "deny"})).await.expect(200).json();
    assert_eq!((&second["decision"], &second["settled_by"]), (&json!("approve"), &json!("admin")));
    refused_over_channel(&mut socket, &waiting, json!({"decision": "deny", "digest": waiting.digest}), "approval_used")
        .await;
    waiting.decide(&world.caller, json!({"decision": "revoke"})).await.expect(200);
    refused(&world, &mut socket, &waiting, approve(), "approval_revoked").await;
    world.tool.release();
    world.caller.until_ended(&waiting.session, 1).await;
    assert!(world.paid().is_empty());
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn what_has_lapsed_has_its_own_code() {
    let soon = |bundle| with(bundle, "/profiles/default/approval", json!({"expires_ms": 1000, "self_approval": true}));
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#), FakeModel::text("over")], soon).await;
    let waiting = world.waiting().await;
    let mut socket = Socket::hello(&world.server, "desk", json!([])).await;
    world.caller.until_ended(&waiting.session, 1).await;
    refused(&world, &mut socket, &waiting, json!({"decision": "approve"}), "approval_expired").await;
    assert!(world.paid().is_empty());
    world.server.stop().await;
}
