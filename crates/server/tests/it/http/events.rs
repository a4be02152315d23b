//! Events in three forms: pages with long poll, SSE and NDJSON that replay and go on.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use toolgate_server::app::HttpLimits;
use tower::ServiceExt as _;

use super::world::{Caller, WAIT, World, id};

/// Reads a stream piece by piece.
pub(super) struct Stream {
    body: axum::body::BodyDataStream,
    text: String,
}

impl Stream {
    pub(super) async fn open(world: &World, caller: &Caller, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = caller.request(Method::GET, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request: Request<Body> = request.body(Body::empty()).unwrap();
        let response = tokio::time::timeout(WAIT, world.router().oneshot(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// Reads on until the text has this many pieces that satisfy the condition.
    pub(super) async fn until(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> &str {
        let read = async {
            while !holds(&self.text) {
                let piece =
                    self.body.next().await.unwrap_or_else(|| panic!("the stream ended before {what}: {}", self.text));
                self.text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
            }
        };
        tokio::time::timeout(WAIT, read).await.unwrap_or_else(|_| panic!("waited for {what}"));
        &self.text
    }

    pub(super) async fn end(mut self) -> String {
        let read = async {
            while let Some(piece) = self.body.next().await {
                self.text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
            }
        };
        tokio::time::timeout(WAIT, read).await.expect("the stream ends");
        self.text
    }
}

/// The `id`s of an SSE text, each checked against its data.
pub(super) fn ids(text: &str) -> Vec<u64> {
    text.split("\n\n")
        .filter(|frame| frame.starts_with("id: "))
        .map(|frame| {
            let mut lines = frame.lines();
            let seq: u64 = lines.next().unwrap().strip_prefix("id: ").unwrap().parse().unwrap();
            let kind = lines.next().unwrap().strip_prefix("event: ").unwrap();
            let data: Value = serde_json::from_str(lines.next().unwrap().strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!((lines.next(), data["seq"].as_u64(), data["type"].as_str()), (None, Some(seq), Some(kind)));
            seq
        })
        .collect()
}

#[tokio::test]
async fn pages_follow_each_other_without_gap() {
    let (_, caller) = World::start().await;
    let session = caller.settled("server").await;
    let (path, head) = (format!("/v1/sessions/{}/events", id(&session)), session["head_seq"].as_u64().unwrap());
    let mut seqs = Vec::new();
    let mut after = 0;
    loop {
        let page = caller.get(&format!("{path}?after_seq={after}&limit=3")).await.expect(200).json();
        assert_eq!(page["head_seq"], head);
        let items = page["items"].as_array().unwrap().clone();
        if items.is_empty() {
            assert_eq!(page["last_seq"], after);
            break;
        }
        assert!(items.len() <= 3);
        seqs.extend(items.iter().map(|event| event["seq"].as_u64().unwrap()));
        after = page["last_seq"].as_u64().unwrap();
    }
    assert_eq!(seqs, (1..=head).collect::<Vec<_>>());
    let events = caller.get(&path).await.json();
    let first = &events["items"][0];
    assert_eq!(
        (&first["type"], &first["session_id"], &first["content"]["prompt"]),
        (&json!("session_opened"), &session["id"], &json!("go"))
    );
    let call = events["items"].as_array().unwrap().iter().find(|e| e["type"] == "call_decided").unwrap();
    assert_eq!(
        (&call["decision"], &call["content"]["args"], &call["run"]),
        (&json!("allow"), &json!({"a": 1, "b": 2}), &json!(1))
    );
    assert!(call["call_id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(events["items"].as_array().unwrap().last().unwrap()["content"]["output"], "three");
}

#[tokio::test]
async fn a_long_poll_answers_when_something_happens() {
    let (_, caller) = World::start().await;
    let session = caller.settled("client").await;
    let (sid, head) = (id(&session), session["head_seq"].as_u64().unwrap());
    let poll = {
        let caller = caller.clone();
        let path = format!("/v1/sessions/{sid}/events?after_seq={head}&wait=15");
        tokio::spawn(async move { caller.get(&path).await })
    };
    caller.post(&format!("/v1/sessions/{sid}/cancel"), &json!({})).await.expect(200);
    let page = tokio::time::timeout(WAIT, poll).await.unwrap().unwrap().expect(200).json();
    assert_eq!(page["items"][0]["type"], "cancel_requested");
    // Without anything new it answers empty when the time is over.
    let last = caller.get(&format!("/v1/sessions/{sid}")).await.json()["head_seq"].as_u64().unwrap();
    let empty = caller.get(&format!("/v1/sessions/{sid}/events?after_seq={last}&wait=1")).await.expect(200).json();
    assert_eq!((&empty["items"], &empty["last_seq"]), (&json!([]), &json!(last)));
}

/// Those who have what came before get the rest from memory, each text made once for all; late ones read the log.
#[tokio::test]
async fn all_followers_get_what_the_log_has_whenever_they_came() {
    let (world, caller) = World::start().await;
    let session = caller.settled("client").await;
    let (sid, head) = (id(&session), session["head_seq"].as_u64().unwrap());
    let path = format!("/v1/sessions/{sid}/events");
    let sse = [("accept", "text/event-stream")];
    let lines = [("accept", "application/x-ndjson")];
    let mut followers = Vec::new();
    for from in 0..=head {
        let from_there = format!("{path}?after_seq={from}");
        let mut stream = Stream::open(&world, &caller, &from_there, &sse).await;
        if from < head {
            stream.until("the replay", |text| ids(text).last() == Some(&head)).await;
        }
        followers.push((from, stream));
    }
    let mut plain = Vec::new();
    for _ in 0..3 {
        let mut stream = Stream::open(&world, &caller, &path, &lines).await;
        stream.until("the replay", |text| text.lines().count() as u64 == head).await;
        plain.push(stream);
    }
    caller.post(&format!("/v1/sessions/{sid}/cancel"), &json!({})).await.expect(200);
    followers.push((0, Stream::open(&world, &caller, &path, &sse).await));
    caller.post(&format!("/v1/sessions/{sid}/messages"), &json!({"text": "again"})).await.expect(202);
    followers.push((head, Stream::open(&world, &caller, &format!("{path}?after_seq={head}"), &sse).await));
    caller.post(&format!("/v1/sessions/{sid}/close"), &json!({})).await.expect(200);

    let page = caller.get(&format!("{path}?limit=200")).await.expect(200).json();
    let last = page["head_seq"].as_u64().unwrap();
    assert!(last > head + 3, "{page}");
    for (from, stream) in followers {
        assert_eq!(ids(&stream.end().await), (from + 1..=last).collect::<Vec<_>>(), "from {from}");
    }
    for stream in plain {
        let events: Vec<Value> = stream.end().await.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events, *page["items"].as_array().unwrap());
    }
}

#[tokio::test]
async fn a_stream_replays_goes_on_and_ends_with_the_session() {
    let (world, caller) = World::start().await;
    let session = caller.settled("client").await;
    let (sid, head) = (id(&session), session["head_seq"].as_u64().unwrap());
    let path = format!("/v1/sessions/{sid}/events");
    let mut stream = Stream::open(&world, &caller, &path, &[("accept", "text/event-stream")]).await;
    let text = stream.until("the replay", |text| ids(text).last() == Some(&head)).await;
    assert!(text.starts_with("retry: 2000\n\n"), "{text}");
    caller.post(&format!("/v1/sessions/{sid}/close"), &json!({})).await.expect(200);
    let seqs = ids(&stream.end().await);
    let last = caller.get(&format!("/v1/sessions/{sid}")).await.json()["head_seq"].as_u64().unwrap();
    assert!(last > head);
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>());
    // Resumed in the middle; the header wins over the query.
    let resumed = Stream::open(
        &world,
        &caller,
        &format!("{path}?after_seq=1"),
        &[("accept", "text/event-stream"), ("last-event-id", "3")],
    )
    .await;
    assert_eq!(ids(&resumed.end().await), (4..=last).collect::<Vec<_>>());
    // Nothing left: an EventSource is told to stop.
    for accept in ["text/event-stream", "application/x-ndjson"] {
        let request = caller.request(Method::GET, &format!("{path}?after_seq={last}")).header("accept", accept);
        caller.send(request.body(Body::empty()).unwrap()).await.expect(204);
    }
    caller.get(&format!("{path}?after_seq={last}")).await.expect(200);
}

#[tokio::test]
async fn an_idle_session_is_not_over() {
    let (world, caller) = World::start().await;
    let session = caller.settled("server").await;
    let (sid, head) = (id(&session), session["head_seq"].as_u64().unwrap());
    let path = format!("/v1/sessions/{sid}/events?after_seq={head}");
    let mut stream = Stream::open(&world, &caller, &path, &[("accept", "text/event-stream")]).await;
    caller.post(&format!("/v1/sessions/{sid}/messages"), &json!({"text": "more"})).await.expect(202);
    let text = stream.until("the next run's end", |text| text.contains("event: run_ended")).await;
    assert_eq!(ids(text).first(), Some(&(head + 1)));
}

#[tokio::test]
async fn lines_hold_one_event_each_and_may_end_at_the_head() {
    let (world, caller) = World::start().await;
    let session = caller.settled("server").await;
    let path = format!("/v1/sessions/{}/events?follow=false", id(&session));
    let text = Stream::open(&world, &caller, &path, &[("accept", "application/x-ndjson")]).await.end().await;
    let seqs: Vec<u64> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=session["head_seq"].as_u64().unwrap()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stream_says_that_it_lives_and_that_the_server_stops() {
    let limits = HttpLimits { keep_alive: Duration::from_millis(50), ..HttpLimits::default() };
    let world = World::bare(limits).await;
    let caller = world.caller("acme").await;
    caller.put("/v1/bundle", &super::world::bundle()).await.expect(201);
    let session = caller.settled("client").await;
    let path = format!("/v1/sessions/{}/events", id(&session));
    let mut stream = Stream::open(&world, &caller, &path, &[("accept", "text/event-stream")]).await;
    stream.until("two signs of life", |text| text.matches(": keep-alive\n\n").count() >= 2).await;
    world.app.stopping().cancel();
    let text = stream.end().await;
    assert!(text.ends_with("event: closing\ndata: {\"reconnect_ms\":2000}\n\n"), "{text}");
}

#[tokio::test]
async fn a_revoked_key_loses_its_open_streams() {
    let (world, admin) = World::start().await;
    let reader = world.scoped("acme", &[toolgate_server::caller::Scope::SessionsRead], None, None).await;
    let session = admin.settled("client").await;
    let path = format!("/v1/sessions/{}/events", id(&session));
    let stream = Stream::open(&world, &reader, &path, &[("accept", "text/event-stream")]).await;
    let delete = admin.request(Method::DELETE, &format!("/v1/api-keys/{}", reader.id)).body(Body::empty()).unwrap();
    admin.send(delete).await.expect(204);
    let text = stream.end().await;
    assert_eq!(ids(&text).last(), session["head_seq"].as_u64().as_ref());
}

#[tokio::test]
async fn streams_have_places_and_slow_readers_lose_theirs() {
    let limits = HttpLimits { streams: 1, slow_reader: Duration::from_millis(100), ..HttpLimits::default() };
    let world = World::bare(limits).await;
    let caller = world.caller("acme").await;
    caller.put("/v1/bundle", &super::world::bundle()).await.expect(201);
    let session = caller.settled("server").await;
    let sid = id(&session);
    // More events than the queue holds, so that a reader who takes nothing stands in the way.
    for _ in 0..40 {
        caller.post(&format!("/v1/sessions/{sid}/cancel"), &json!({})).await.problem(409, "no_active_run");
        let body = json!({"text": "more"});
        caller.post_with(&format!("/v1/sessions/{sid}/messages"), &[("prefer", "wait=15")], &body).await.expect(202);
    }
    let path = format!("/v1/sessions/{sid}/events");
    let slow = Stream::open(&world, &caller, &path, &[("accept", "text/event-stream")]).await;
    let request =
        || caller.request(Method::GET, &path).header("accept", "text/event-stream").body(Body::empty()).unwrap();
    let full = world.router().oneshot(request()).await.unwrap();
    assert_eq!(full.status(), 429);
    assert!(full.headers().contains_key("retry-after"));
    // The slow one is cut off by itself; then there is a place again.
    let freed = async {
        loop {
            let answer = world.router().oneshot(request()).await.unwrap();
            if answer.status() == 200 {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, freed).await.expect("the slow reader's place is free again");
    let got = ids(&slow.end().await);
    assert_eq!(got, (1..=got.len() as u64).collect::<Vec<_>>(), "what it got has no gap");
    assert!((got.len() as u64) < caller.get(&format!("/v1/sessions/{sid}")).await.json()["head_seq"].as_u64().unwrap());
}

#[tokio::test]
async fn the_form_is_chosen_by_accept() {
    let (_, caller) = World::start().await;
    let path = format!("/v1/sessions/{}/events?follow=false", id(&caller.settled("server").await));
    for (accept, media) in [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/html, application/x-ndjson;q=0.9, application/json;q=0.5", "application/x-ndjson"),
        ("text/event-stream", "text/event-stream"),
        ("application/json;q=0, text/event-stream;q=0.1", "text/event-stream"),
    ] {
        let request = caller.request(Method::GET, &path).header("accept", accept);
        let answer = caller.send(request.body(Body::empty()).unwrap()).await.expect(200);
        assert_eq!(answer.header("content-type"), media, "{accept}");
    }
    let request = caller.request(Method::GET, &path).header("accept", "text/html");
    caller.send(request.body(Body::empty()).unwrap()).await.problem(406, "not_acceptable");
    let request = caller.request(Method::GET, &path).header("last-event-id", "x").header("accept", "text/event-stream");
    caller.send(request.body(Body::empty()).unwrap()).await.problem(400, "malformed");
}

#[tokio::test]
async fn calls_are_listed_with_their_outcome() {
    let (_, caller) = World::start().await;
    let done = caller.settled("server").await;
    let calls = caller.get(&format!("/v1/sessions/{}/calls", id(&done))).await.expect(200).json();
    let call = &calls["items"][0];
    assert_eq!((&call["tool"], &call["state"], &call["status"]), (&json!("add"), &json!("ended"), &json!("ok")));
    assert_eq!(
        (&call["args"], &call["venue"], &call["attempt"]),
        (&json!({"a": 1, "b": 2}), &json!("server"), &json!(1))
    );
    assert!(call["args_hash"].as_str().unwrap().starts_with("sha256:") && call["fence"].is_u64());
    assert!(calls["next_after_seq"].is_null());
    let waiting = caller.settled("client").await;
    let calls = caller.get(&format!("/v1/sessions/{}/calls", id(&waiting))).await.expect(200).json();
    assert_eq!((&calls["items"][0]["state"], &calls["items"][0]["status"]), (&json!("queued"), &Value::Null));
}
