//! Four eyes, several approvers, leave for the session, taking back, reminders.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::with;
use toolgate_tests::{Backend, Caller, FakeModel, WAIT};

use super::{Waiting, World, pay};
use crate::channel::Socket;

/// A change of the profile's rules for approvals.
fn rules(approval: Value) -> impl Fn(Value) -> Value {
    move |bundle| with(bundle, "/profiles/default/approval", approval.clone())
}

async fn approver(world: &World, name: &str) -> Caller {
    world.caller.with_scopes(name, &["approvals:write"]).await
}

/// The approval that the session waits for now.
pub(super) async fn next(world: &World, session: &str, earlier: &str) -> Waiting {
    let waits = |session: &Value| {
        session["waiting"]["approvals"].as_array().is_some_and(|all| !all.is_empty() && all[0]["id"] != earlier)
    };
    let session = world.caller.until(session, "another approval", waits).await;
    let text = |field: &str| session["waiting"]["approvals"][0][field].as_str().unwrap().to_owned();
    Waiting { session: session["id"].as_str().unwrap().to_owned(), id: text("id"), digest: text("digest") }
}

#[tokio::test]
async fn whoever_asked_for_the_work_may_deny_it_and_not_approve_it() {
    let answers = vec![pay(r#"{"amount":1}"#), FakeModel::text("ok, not")];
    let world = World::start_on(Backend::Sqlite, answers, rules(json!({}))).await;
    let waiting = world.waiting().await;
    for body in [json!({"decision": "approve"}), json!({"decision": "edit", "arguments": {"amount": 2}})] {
        let refused = waiting.decide(&world.caller, body).await.expect(403);
        assert_eq!(refused.code(), "self_approval");
    }
    assert_eq!(waiting.view(&world.caller).await["status"], "pending");
    waiting.decide(&world.caller, json!({"decision": "deny"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert!(world.paid().is_empty());
    world.server.stop().await;
}

#[tokio::test]
async fn whoever_spoke_later_may_not_approve_either() {
    let answers = vec![FakeModel::text("hello"), pay(r#"{"amount":1}"#), FakeModel::text("paid")];
    let world = World::start_on(Backend::Sqlite, answers, rules(json!({}))).await;
    let scopes = ["sessions:read", "sessions:write", "approvals:write"];
    let (ann, grace) = (world.caller.with_scopes("ann", &scopes).await, approver(&world, "grace").await);
    let id = world.caller.open("default", "hello").await;
    world.caller.until_ended(&id, 1).await;
    let sent = ann.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "pay"})).await;
    assert!(sent.status.is_success(), "{}", sent.text);
    let waiting = next(&world, &id, "").await;
    assert_eq!(waiting.decide(&ann, json!({"decision": "approve"})).await.expect(403).code(), "self_approval");
    waiting.decide(&grace, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&id, 2).await;
    assert_eq!(world.paid().len(), 1);
    world.server.stop().await;
}

#[tokio::test]
async fn two_different_people_must_approve() {
    let answers = vec![pay(r#"{"amount":1}"#), pay(r#"{"amount":2}"#), FakeModel::text("over")];
    let world = World::start_on(Backend::Sqlite, answers, rules(json!({"approvers": 2}))).await;
    let (grace, alan) = (approver(&world, "grace").await, approver(&world, "alan").await);
    let waiting = world.waiting().await;
    let first = waiting.decide(&grace, json!({"decision": "approve"})).await.expect(200).json();
    assert_eq!((&first["status"], &first["decision"]), (&json!("pending"), &Value::Null));
    waiting.decide(&grace, json!({"decision": "approve"})).await.expect(200);
    let view = waiting.view(&alan).await;
    assert_eq!((&view["approvers"], &view["approved_by"]), (&json!(2), &json!(["grace"])));
    assert!(world.paid().is_empty(), "one person approved twice");
    waiting.decide(&alan, json!({"decision": "approve"})).await.expect(200);
    let second = next(&world, &waiting.session, &waiting.id).await;
    assert_eq!(world.paid(), [r#"{"amount":1}"#]);
    let decided = world.caller.events_of(&waiting.session, "approval_decided").await;
    let by: Vec<(&Value, &Value)> = decided.iter().map(|event| (&event["by"], &event["missing"])).collect();
    assert_eq!(by, [(&json!("grace"), &json!(1)), (&json!("alan"), &json!(0))]);
    // One denial is enough.
    second.decide(&grace, json!({"decision": "approve"})).await.expect(200);
    second.decide(&alan, json!({"decision": "deny"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(world.paid().len(), 1);
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

async fn leave_for_the_session(backend: Backend) {
    let answers = vec![
        pay(r#"{"amount":1,"note":"a"}"#),
        pay(r#"{"amount":1,"note":"b"}"#),
        pay(r#"{"amount":2,"note":"b"}"#),
        FakeModel::text("over"),
        pay(r#"{"amount":1,"note":"c"}"#),
        FakeModel::text("over"),
        pay(r#"{"amount":1,"note":"d"}"#),
        FakeModel::text("over"),
    ];
    let mut world = World::start_on(backend, answers, rules(json!({}))).await;
    let grace = approver(&world, "grace").await;
    let waiting = world.waiting().await;
    let refused = waiting.decide(&grace, json!({"decision": "approve", "grant": {"open": ["payee"]}})).await;
    assert_eq!(refused.code(), "grant_invalid");
    let given = waiting.decide(&grace, json!({"decision": "approve", "grant": {"open": ["note"]}})).await.expect(200);
    assert_eq!(given.json()["allowed_decisions"], json!(["revoke"]));
    // Another note is covered; another amount is not.
    let other = next(&world, &waiting.session, &waiting.id).await;
    assert_eq!(world.paid(), [r#"{"amount":1,"note":"a"}"#, r#"{"amount":1,"note":"b"}"#]);
    let decided = world.caller.events_of(&waiting.session, "call_decided").await;
    let detail = decided[2]["content"]["detail"].as_str().unwrap();
    assert!(detail.contains("a human must approve it"), "{detail}");
    other.decide(&grace, json!({"decision": "deny"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    // It holds in the next run, and after a restart.
    world.server.restart().await;
    let (caller, grace) = (world.server.caller(), grace.at(world.server.url()));
    let messages = format!("/v1/sessions/{}/messages", waiting.session);
    caller.post(&messages, &json!({"text": "more"})).await;
    caller.until_ended(&waiting.session, 2).await;
    assert_eq!(world.paid().last().unwrap(), r#"{"amount":1,"note":"c"}"#);
    let decided = caller.events_of(&waiting.session, "call_decided").await;
    let granted: Vec<&Value> = decided.iter().map(|event| &event["granted_by"]).collect();
    assert_eq!(granted, [&Value::Null, &json!(waiting.id), &Value::Null, &json!(waiting.id)]);
    // Taken back, it covers nothing more.
    assert_eq!(waiting.view(&caller).await["allowed_decisions"], json!(["revoke"]), "sent, and more is covered");
    let back = waiting.decide(&grace, json!({"decision": "revoke"})).await.expect(200).json();
    assert_eq!((&back["status"], &back["allowed_decisions"]), (&json!("approved"), &json!([])));
    caller.post(&messages, &json!({"text": "more"})).await;
    caller.until(&waiting.session, "an approval", |session| session["status"] == "waiting_approval").await;
    assert_eq!(world.paid().len(), 3);
    caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn leave_for_the_session_covers_equal_calls_on_sqlite() {
    leave_for_the_session(Backend::Sqlite).await;
}

#[tokio::test]
async fn leave_for_the_session_covers_equal_calls_on_postgres() {
    leave_for_the_session(Backend::Postgres).await;
}

#[tokio::test]
async fn an_approval_can_be_taken_back_while_nothing_was_sent_on_it() {
    let both = FakeModel::calls(&[("look", "{}"), ("pay", r#"{"amount":1}"#)]);
    let world = World::start(vec![both, pay(r#"{"amount":2}"#), FakeModel::text("over")]).await;
    world.tool.hold();
    let id = world.caller.open("default", "pay").await;
    let waiting = next(&world, &id, "").await;
    world.tool.until_ran(1).await;
    assert_eq!(
        waiting.decide(&world.caller, json!({"decision": "revoke"})).await.code(),
        "approval_not_revocable",
        "nothing was approved yet"
    );
    let given = waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    assert_eq!(given.json()["allowed_decisions"], json!(["revoke"]));
    assert_eq!(waiting.view(&world.caller).await["allowed_decisions"], json!(["revoke"]));
    let list = world.caller.get("/v1/approvals").await.json();
    assert_eq!(list["items"][0]["allowed_decisions"], json!([]), "a list loads no sessions");
    waiting.decide(&world.caller, json!({"decision": "revoke"})).await.expect(200);
    waiting.decide(&world.caller, json!({"decision": "revoke"})).await.expect(200);
    let ended = world.caller.until_events(&waiting.session, "call_ended", 1).await;
    assert_eq!((&ended[0]["status"], &ended[0]["cause"]), (&json!("denied"), &json!("approver")));
    assert_eq!(waiting.view(&world.caller).await["status"], "revoked");
    world.tool.release();
    // What was sent cannot be taken back.
    let second = next(&world, &waiting.session, &waiting.id).await;
    assert!(world.paid().is_empty());
    second.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    assert_eq!(second.view(&world.caller).await["allowed_decisions"], json!([]));
    let late = second.decide(&world.caller, json!({"decision": "revoke"})).await;
    assert_eq!((late.status.as_u16(), late.code().as_str()), (409, "approval_not_revocable"));
    assert_eq!(world.paid(), [r#"{"amount":2}"#]);
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}

#[tokio::test]
async fn an_open_approval_is_reminded_of_over_every_stream() {
    let remind = rules(json!({"remind_ms": 1000, "self_approval": true}));
    let world = World::start_on(Backend::Sqlite, vec![pay(r#"{"amount":1}"#), FakeModel::text("paid")], remind).await;
    let waiting = world.waiting().await;
    let mut socket = Socket::hello(&world.server, "phone", json!([{"id": waiting.session, "last_seq": 0}])).await;
    let path = format!("/v1/sessions/{}/events", waiting.session);
    let request = world.caller.request(Method::GET, &path).header("accept", "text/event-stream");
    let mut stream = request.send().await.unwrap();
    let over_socket = async {
        loop {
            let frame = socket.until("StreamEvent").await;
            if frame["event"]["type"] == "approval_reminded" {
                return frame["event"].clone();
            }
        }
    };
    let over_sse = async {
        let mut text = String::new();
        while !text.contains("\nevent: approval_reminded\n") {
            text.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream goes on")));
        }
    };
    let both = async { tokio::join!(over_socket, over_sse).0 };
    let event = tokio::time::timeout(WAIT, both).await.expect("a reminder in time");
    assert_eq!((&event["approval_id"], &event["reminder"]), (&json!(waiting.id), &json!(1)));
    assert_eq!(waiting.view(&world.caller).await["status"], "pending");
    waiting.decide(&world.caller, json!({"decision": "approve"})).await.expect(200);
    world.caller.until_ended(&waiting.session, 1).await;
    world.caller.verified(&waiting.session).await;
    world.server.stop().await;
}
