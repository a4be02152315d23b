//! Pieces of answers over connections that take nothing: pieces get lost, events never, and nobody waits. What is not here:
//! what pieces look like (the end-to-end tests).

use std::fmt::Write as _;

use serde_json::json;
use toolgate_proposers::testing::{FakeAnswer, FakeProvider};

use super::world::World;
use super::{IDE, request};
use crate::caller::Scope;
use crate::channel::ChannelSettings;

/// How many pieces the answer has: many more than any queue on the way.
const PIECES: usize = 2_000;

/// A stream of so many pieces.
fn answer() -> FakeAnswer {
    let mut body = String::new();
    for n in 0..PIECES {
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": format!("{n} ")}}]});
        let _ = write!(body, "data: {chunk}\n\n");
    }
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let _ = write!(body, "data: {end}\n\ndata: [DONE]\n\n");
    FakeAnswer::raw(200, "text/event-stream", body)
}

#[tokio::test]
async fn a_slow_reader_loses_pieces_and_no_event_and_slows_nobody() {
    let provider = FakeProvider::build().answer(answer()).start().await.unwrap();
    let settings = ChannelSettings { bulk_queue: 8, ..ChannelSettings::default() };
    let world = World::streaming(settings, &provider.base_url()).await;
    let key = world.key("acme", &IDE).await;
    // Room for one message, and nothing is read while the session goes on.
    let mut slow = world.connect(1);
    slow.send(json!({"type": "Hello", "protocol": 1, "client_id": "slow", "token": key, "deltas": true})).await;
    assert_eq!(slow.next().await["type"], "Welcome");
    slow.send(json!({"type": "Request", "id": "job", "profile": "streamed", "prompt": "go"})).await;
    let session = slow.until("StreamEvent").await["session_id"].as_str().unwrap().to_owned();
    let (mut other, _) = world.hello(&key, "other", &json!([{"id": session, "last_seq": 0}])).await;
    let head = other.until("FinalOutput").await["seq"].as_u64().unwrap();

    let (mut seqs, mut pieces) = (vec![1], Vec::new());
    while seqs.last() != Some(&head) {
        let frame = slow.next().await;
        match frame["type"].as_str().unwrap() {
            "StreamEvent" => seqs.push(frame["seq"].as_u64().unwrap()),
            "ModelDelta" => pieces.push(frame["n"].as_u64().unwrap()),
            _ => {}
        }
    }
    assert_eq!(seqs, (1..=head).collect::<Vec<_>>());
    assert!(pieces.is_sorted() && pieces.len() < PIECES, "{} pieces", pieces.len());
    assert_eq!(provider.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_key_that_may_only_execute_is_shown_no_piece() {
    let world = World::new().await;
    let (key, runner) = (world.key("acme", &IDE).await, world.key("acme", &[Scope::ClientExecute]).await);
    let hello = |client: &str, token: &str, session: &str| {
        json!({"type": "Hello", "protocol": 1, "client_id": client, "token": token, "deltas": true,
               "sessions": [{"id": session, "last_seq": 0}]})
    };
    let is_watched = || world.app.sessions().deps().deltas.is_watched();
    let (mut ide, _) = world.hello(&key, "ide", &json!([])).await;
    let session = request(&mut ide, "client").await;
    ide.until("ApprovedToolCall").await;
    ide.cut().await;
    // The same instance, so that the call is its own.
    let mut running = world.connect(64);
    running.send(hello("ide", &runner, &session)).await;
    running.until("ApprovedToolCall").await;
    let (other, _) = world.hello(&key, "other", &json!([])).await;
    other.send(json!({"type": "Cancel", "session_id": session})).await;
    // It comes from the task that would also show pieces.
    running.until("CallSettled").await;
    assert!(!is_watched());
    let mut watching = world.connect(64);
    watching.send(hello("watcher", &key, &session)).await;
    watching.until("StreamEvent").await;
    assert!(is_watched());
    watching.cut().await;
    assert!(!is_watched());
}
