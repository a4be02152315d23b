//! Following: order, resumption, slow readers, tenants, repeated frames.

use serde_json::{Value, json};

use super::world::World;
use super::{IDE, cursor, request};
use crate::caller::Scope;
use crate::channel::ChannelSettings;

#[tokio::test]
async fn a_repeated_message_is_applied_once_and_answered_twice() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "talk").await;
    ide.until("FinalOutput").await;
    let message = json!({"type": "Message", "frame_id": "m1", "session_id": session, "text": "more"});
    ide.send(message.clone()).await;
    let first = ide.until("StreamEvent").await;
    assert_eq!((&first["re"], &first["event"]["type"]), (&json!("m1"), &json!("message_received")));
    ide.until("FinalOutput").await;
    ide.cut().await;

    // The answer was lost, as far as the client knows: another connection sends it again.
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    ide.send(message).await;
    let again = ide.next().await;
    assert_eq!((&again["seq"], &again["re"]), (&first["seq"], &json!("m1")));
    ide.send(json!({"type": "Message", "frame_id": "m2", "session_id": session, "text": "and more"})).await;
    let next = ide.next().await;
    assert_eq!((&next["re"], &next["event"]["content"]["text"]), (&json!("m2"), &json!("and more")));
}

#[tokio::test]
async fn one_alias_is_one_session() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let start =
        |prompt: &str| json!({"type": "Request", "frame_id": "f", "id": "job-1", "profile": "talk", "prompt": prompt});
    ide.send(start("go")).await;
    let first = ide.next().await;
    ide.until("FinalOutput").await;
    ide.send(start("go")).await;
    let again = ide.next().await;
    assert_eq!((&again["session_id"], &again["seq"], &again["re"]), (&first["session_id"], &json!(1), &json!("f")));
    ide.send(start("something else")).await;
    assert_eq!(ide.error().await, ("alias_conflict".to_owned(), json!("f")));
}

#[tokio::test]
async fn a_slow_reader_gets_everything_in_order() {
    let world = World::with(ChannelSettings { bulk_queue: 2, ..ChannelSettings::default() }).await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "talk").await;
    ide.until("FinalOutput").await;

    // Room for one message, and nothing is read while the session goes on.
    let mut slow = world.connect(1);
    slow.hello(&key, "slow", &cursor(&session, 0)).await;
    let mut head = 0;
    for n in 0..40 {
        ide.send(json!({"type": "Message", "session_id": session, "text": format!("message {n}")})).await;
        head = ide.until("FinalOutput").await["seq"].as_u64().unwrap();
    }
    assert_eq!(slow.until("Welcome").await["resumed"][0]["from_seq"], 1);
    let mut seqs = Vec::new();
    while seqs.last() != Some(&head) {
        let frame = slow.next().await;
        if frame["type"] == "StreamEvent" {
            seqs.push(frame["seq"].as_u64().unwrap());
        }
    }
    assert_eq!(seqs, (1..=head).collect::<Vec<_>>());
}

#[tokio::test]
async fn cursors_are_honoured_or_refused() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "talk").await;
    let head = ide.until("FinalOutput").await["seq"].as_u64().unwrap();

    let (mut late, welcome) = world.hello(&key, "late", &cursor(&session, head)).await;
    assert_eq!(welcome["resumed"], json!([{"id": session, "from_seq": head + 1}]));
    ide.send(json!({"type": "Message", "session_id": session, "text": "more"})).await;
    // Another window executes, so the refusal comes among the events.
    let first = late.until("StreamEvent").await;
    assert!(first["seq"].as_u64().is_some_and(|seq| seq == head + 1), "{first}");

    let (mut ahead, welcome) = world.hello(&key, "ahead", &cursor(&session, 999)).await;
    assert_eq!((&welcome["resumed"], &welcome["gone"]), (&json!([]), &json!([])));
    assert_eq!(ahead.error().await, ("cursor_invalid".to_owned(), json!(session)));
    // A second hello with the right cursor repairs it.
    ahead.hello(&key, "ahead", &cursor(&session, head)).await;
    assert_eq!(ahead.until("Welcome").await["resumed"], json!([{"id": session, "from_seq": head + 1}]));
    ahead.hello(&key, "somebody-else", &json!([])).await;
    assert_eq!(ahead.error().await.0, "executor_taken");
    assert_eq!(ahead.error().await.0, "invalid_request");
}

#[tokio::test]
async fn another_tenants_session_is_not_there() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    let all = [Scope::SessionsRead, Scope::SessionsWrite, Scope::ClientExecute, Scope::ApprovalsWrite];
    let foreign = world.key("other", &all).await;
    let absent = format!("ses_{}", "0".repeat(32));
    let sessions = json!([{"id": session}, {"id": absent}]);
    let (mut thief, welcome) = world.hello(&foreign, "ide-1", &sessions).await;
    let mut gone: Vec<&str> = welcome["gone"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    gone.sort_unstable();
    let mut expected = vec![session.as_str(), absent.as_str()];
    expected.sort_unstable();
    assert_eq!((gone, &welcome["resumed"]), (expected, &json!([])));
    let frames = [
        super::report(&offer, json!("forged")),
        json!({"type": "CallAck", "session_id": session, "call_id": offer["call_id"], "attempt": 1}),
        json!({"type": "CallProgress", "session_id": session, "call_id": offer["call_id"], "attempt": 1, "note": "x"}),
        json!({"type": "Message", "session_id": session, "text": "x"}),
        json!({"type": "Cancel", "session_id": session}),
        json!({"type": "Approval", "session_id": session, "approval_id": format!("apr_{}", "0".repeat(32)),
               "decision": "deny", "digest": format!("sha256:{}", "0".repeat(64))}),
    ];
    for frame in frames {
        thief.send(frame.clone()).await;
        assert_eq!(thief.error().await.0, "not_found", "{frame}");
    }
    ide.send(super::report(&offer, json!("mine"))).await;
    assert_eq!(ide.until("FinalOutput").await["ending"], "done");
}

#[tokio::test]
async fn every_frame_needs_its_scope() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    let reader = world.key("acme", &[Scope::SessionsRead]).await;
    let (mut reader, _) = world.hello(&reader, "reader", &cursor(&session, 0)).await;
    for frame in [
        json!({"type": "Request", "prompt": "go", "profile": "talk"}),
        json!({"type": "Message", "session_id": session, "text": "x"}),
        json!({"type": "Cancel", "session_id": session}),
        json!({"type": "CallAck", "session_id": session, "call_id": offer["call_id"], "attempt": 1}),
        json!({"type": "CallProgress", "session_id": session, "call_id": offer["call_id"], "attempt": 1, "note": "x"}),
        super::report(&offer, Value::Null),
    ] {
        reader.send(frame.clone()).await;
        assert_eq!(reader.error().await.0, "insufficient_scope", "{frame}");
    }
    // A key that may only execute is offered calls and told nothing else.
    ide.cut().await;
    let runner = world.key("acme", &[Scope::ClientExecute]).await;
    let (mut runner, _) = world.hello(&runner, "ide-1", &cursor(&session, 0)).await;
    let offer = runner.next().await;
    assert_eq!(offer["type"], "ApprovedToolCall", "{offer}");
    runner.send(super::report(&offer, json!(1))).await;
    assert_eq!(runner.next().await["type"], "CallSettled");
    assert_eq!(reader.until("FinalOutput").await["ending"], "done");
}
