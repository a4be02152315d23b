//! Pieces of answers in a stream that nobody reads: pieces get lost, events never, and the run goes on. What is not here: what
//! pieces look like (the end-to-end tests).

use std::fmt::Write as _;

use serde_json::{Value, json};
use toolgate_proposers::testing::{FakeAnswer, FakeProvider};

use super::events::{Stream, ids};
use super::world::{World, bundle, id};

/// How many pieces the answer has: many more than any queue on the way.
const PIECES: usize = 2_000;

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
async fn a_stream_that_nobody_reads_loses_pieces_and_no_event() {
    let provider = FakeProvider::build().answer(answer()).answer(answer()).start().await.unwrap();
    let (world, caller) = World::start().await;
    // Tools that redact would keep all pieces back.
    let mut bundle = bundle();
    bundle["tools"].as_object_mut().unwrap().remove("login");
    bundle["profiles"].as_object_mut().unwrap().remove("login");
    bundle["models"]["client"] =
        json!({"provider": "openai", "base_url": provider.base_url(), "model": "fake", "stream": true});
    let put = [("if-match", "*")];
    caller.text(axum::http::Method::PUT, "/v1/bundle", &put, &bundle.to_string()).await.expect(201);
    let opened = caller.settled("client").await;
    let session = id(&opened);
    let path = format!("/v1/sessions/{session}/events?after_seq={}&deltas=true", opened["head_seq"]);
    let (sse, lines) = (
        Stream::open(&world, &caller, &path, &[("accept", "text/event-stream")]).await,
        Stream::open(&world, &caller, &path, &[("accept", "application/x-ndjson")]).await,
    );
    let more = json!({"text": "once more"});
    caller.post_with(&format!("/v1/sessions/{session}/messages"), &[("prefer", "wait=15")], &more).await.expect(202);
    caller.post(&format!("/v1/sessions/{session}/close"), &json!({})).await;
    let (sse, lines) = (sse.end().await, lines.end().await);
    let head = caller.get(&format!("/v1/sessions/{session}")).await.expect(200).json()["head_seq"].as_u64().unwrap();
    let expected: Vec<u64> = (opened["head_seq"].as_u64().unwrap() + 1..=head).collect();
    assert_eq!(ids(&sse), expected);
    let values: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let seqs: Vec<u64> = values.iter().filter_map(|value| value["seq"].as_u64()).collect();
    assert_eq!(seqs, expected);
    let pieces: Vec<u64> = values.iter().filter_map(|value| value["n"].as_u64()).collect();
    let shown = sse.matches("event: model_delta").count();
    for count in [pieces.len(), shown] {
        assert!(0 < count && count < PIECES, "{count} pieces");
    }
    assert!(pieces.is_sorted());
}

#[tokio::test]
async fn a_page_has_no_pieces() {
    let (_, caller) = World::start().await;
    let path = format!("/v1/sessions/{}/events?deltas=true", id(&caller.settled("server").await));
    let problem = caller.get(&path).await.problem(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/deltas");
    caller.get(&path.replace("true", "false")).await.expect(200);
}
