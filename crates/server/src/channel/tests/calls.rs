//! Calls that a client runs: offered, reported, repeated, refused.

use serde_json::json;

use super::world::World;
use super::{IDE, cursor, report, request};
use crate::caller::Scope;

#[tokio::test]
async fn a_call_is_offered_reported_and_settled() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, welcome) = world.hello(&key, "ide-1", &json!([])).await;
    assert_eq!((&welcome["heartbeat_ms"], &welcome["max_frame_bytes"]), (&json!(20_000), &json!(262_144)));
    let session = request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    assert_eq!(offer["session_id"], session.as_str());
    assert_eq!(
        (&offer["tool"], &offer["attempt"], &offer["max_output_bytes"]),
        (&json!("terminal"), &json!(1), &json!(64))
    );
    assert_eq!(offer["args"].to_string(), r#"{"n":9007199254740993}"#);
    assert!(offer["expires_in_ms"].as_u64().is_some_and(|left| left > 0 && left <= 30_000));
    ide.send(json!({"type": "CallAck", "session_id": session, "call_id": offer["call_id"], "attempt": 1})).await;
    ide.send(report(&offer, json!("made"))).await;
    let settled = ide.until("CallSettled").await;
    assert_eq!((&settled["call_id"], settled.get("end")), (&offer["call_id"], None));
    let last = ide.until("FinalOutput").await;
    assert_eq!((&last["ending"], &last["run"]), (&json!("done"), &json!(1)));
    assert_eq!(last["output"].to_string(), r#"{"built":9007199254740993}"#);

    // The same report again is answered like the first, another one is refused.
    ide.send(report(&offer, json!("made"))).await;
    assert_eq!(ide.until("CallSettled").await["seq"], settled["seq"]);
    ide.send(report(&offer, json!("something else"))).await;
    assert_eq!(ide.error().await, ("outcome_conflict".to_owned(), offer["call_id"].clone()));
}

#[tokio::test]
async fn a_lost_connection_loses_nothing_and_repeats_nothing() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    ide.cut().await;
    assert_eq!(world.channel.connections(), 0);

    let (mut ide, welcome) = world.hello(&key, "ide-1", &cursor(&session, 1)).await;
    assert_eq!(welcome["resumed"], json!([{"id": session, "from_seq": 2}]));
    let mut seqs = Vec::new();
    let mut again = None;
    loop {
        let frame = ide.next().await;
        match frame["type"].as_str().unwrap() {
            "StreamEvent" => seqs.push(frame["seq"].as_u64().unwrap()),
            "ApprovedToolCall" => {
                ide.send(report(&frame, json!("made"))).await;
                again = Some(frame);
            }
            "FinalOutput" => break,
            "CallSettled" => {}
            other => panic!("{other}: {frame}"),
        }
    }
    let again = again.unwrap();
    for field in ["call_id", "attempt", "fence", "args_hash"] {
        assert_eq!(again[field], offer[field]);
    }
    let expected: Vec<u64> = (2..).take(seqs.len()).collect();
    assert_eq!(seqs, expected);
}

#[tokio::test]
async fn a_second_client_watches_and_cannot_report() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut a, _) = world.hello(&key, "window-a", &json!([])).await;
    let session = request(&mut a, "client").await;
    let offer = a.until("ApprovedToolCall").await;
    let (mut b, _) = world.hello(&key, "window-b", &cursor(&session, 0)).await;
    assert_eq!(b.error().await, ("executor_taken".to_owned(), json!(session)));
    b.send(report(&offer, json!("from b"))).await;
    assert_eq!(b.error().await, ("call_not_dispatched".to_owned(), offer["call_id"].clone()));
    let note = json!({"type": "CallProgress", "session_id": session, "call_id": offer["call_id"], "attempt": 1, "note": "half"});
    a.send(note.clone()).await;
    assert_eq!(b.until("CallProgress").await, note);
    a.send(report(&offer, json!("from a"))).await;
    a.until("CallSettled").await;
    assert_eq!(b.until("FinalOutput").await["ending"], "done");
}

#[tokio::test]
async fn an_observer_is_never_offered_anything() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let mut watcher = world.connect(64);
    watcher.send(json!({"type": "Hello", "protocol": 1, "client_id": "w", "token": key, "observe": true})).await;
    watcher.until("Welcome").await;
    let session = request(&mut watcher, "client").await;
    let (mut ide, _) = world.hello(&key, "ide-1", &cursor(&session, 0)).await;
    let offer = ide.until("ApprovedToolCall").await;
    ide.send(report(&offer, json!("made"))).await;
    loop {
        let frame = watcher.next().await;
        assert_ne!(frame["type"], "ApprovedToolCall");
        if frame["type"] == "FinalOutput" {
            break;
        }
    }
}

#[tokio::test]
async fn an_output_over_the_limit_is_refused_and_may_be_reported_again() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    ide.send(report(&offer, json!("x".repeat(100)))).await;
    assert_eq!(ide.error().await, ("payload_too_large".to_owned(), offer["call_id"].clone()));
    let mut failed = report(&offer, json!(null));
    failed["status"] = json!("failed");
    failed["detail"] = json!("the output was too large");
    ide.send(failed).await;
    ide.until("CallSettled").await;
}

#[tokio::test]
async fn a_call_that_ends_otherwise_is_settled_with_its_end() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "client").await;
    let offer = ide.until("ApprovedToolCall").await;
    ide.send(json!({"type": "Cancel", "frame_id": "stop", "session_id": session, "reason": "enough"})).await;
    let settled = ide.until("CallSettled").await;
    assert_eq!((&settled["call_id"], &settled["end"]), (&offer["call_id"], &json!("indeterminate")));
    assert_eq!(ide.until("FinalOutput").await["ending"], "cancelled");
    ide.send(report(&offer, json!("late"))).await;
    assert_eq!(ide.error().await.0, "late_outcome");
    ide.send(json!({"type": "CallAck", "session_id": session, "call_id": offer["call_id"], "attempt": 1})).await;
    assert_eq!(ide.error().await.1, offer["call_id"]);
}

#[tokio::test]
async fn an_approval_is_decided_once_and_only_as_shown() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let approver = world.key("acme", &[Scope::SessionsRead, Scope::ApprovalsWrite]).await;
    let (mut ide, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut ide, "careful").await;
    let (mut human, _) = world.hello(&approver, "console", &cursor(&session, 0)).await;
    let asked = loop {
        let frame = human.until("StreamEvent").await;
        if frame["event"]["type"] == "call_decided" {
            break frame["event"]["approval"].clone();
        }
    };
    let answer = |frame_id: &str, decision: &str, digest: &serde_json::Value| {
        json!({"type": "Approval", "frame_id": frame_id, "session_id": session, "approval_id": asked["id"],
               "decision": decision, "digest": digest})
    };
    human.send(answer("a", "approve", &json!(format!("sha256:{}", "0".repeat(64))))).await;
    assert_eq!(human.error().await, ("approval_digest_mismatch".to_owned(), json!("a")));
    ide.send(answer("own", "approve", &asked["digest"])).await;
    assert_eq!(ide.error().await, ("insufficient_scope".to_owned(), json!("own")));
    human.send(answer("b", "approve", &asked["digest"])).await;
    let taken = loop {
        let frame = human.until("StreamEvent").await;
        if frame["re"] == "b" {
            break frame;
        }
    };
    assert_eq!(taken["event"]["type"], "approval_decided");
    let offer = ide.until("ApprovedToolCall").await;
    assert_eq!(offer["tool"], "careful");
    human.send(answer("c", "deny", &asked["digest"])).await;
    assert_eq!(human.error().await, ("approval_used".to_owned(), json!("c")));
}
