//! Pieces of answers while models give them, as SSE, NDJSON and frames: for those who ask, in order before the answer is
//! recorded, attempts and ballots told apart, never in the log. What is not here: slow readers, which need a connection
//! without buffers (the server's own tests).

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Caller, FakeTool, TestServer, WAIT, Wild, WildModel};

use super::channel::Socket;

/// A model whose streams the test lets go on, and a server that asks it.
async fn start(behaviours: Vec<Wild>, retries: u32) -> (TestServer, Caller) {
    let model = WildModel::start(behaviours).await;
    let entry = with(model.entry(), "/stream", json!(true));
    let entry = with(with(entry, "/retries", json!(retries)), "/timeout_ms", json!(30_000));
    let tool = FakeTool::ok().await;
    TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await
}

/// An open stream, read line by line.
struct Lines {
    body: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<Vec<u8>>>>>,
    read: String,
}

impl Lines {
    async fn open(caller: &Caller, session: &str, query: &str, accept: &str) -> Self {
        let path = format!("/v1/sessions/{session}/events{query}");
        let request = caller.request(reqwest::Method::GET, &path).header("accept", accept);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec()));
        Self { body: Box::pin(body), read: String::new() }
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some((line, rest)) = self.read.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.read = rest;
                return line;
            }
            let piece = tokio::time::timeout(WAIT, self.body.next()).await.expect("a line in time");
            self.read.push_str(&String::from_utf8(piece.expect("the stream goes on").unwrap()).unwrap());
        }
    }

    /// The lines of the next server-sent event that holds something.
    async fn frame(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.line().await.as_str() {
                "" if lines.iter().any(|line: &String| line.starts_with("data: ")) => return lines,
                "" => lines.clear(),
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// The next event or piece of an SSE stream; a piece has no id.
    async fn event(&mut self) -> Value {
        let lines = self.frame().await;
        let value: Value = serde_json::from_str(lines.last().unwrap().strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(lines.iter().any(|line| line.starts_with("id: ")), value.get("seq").is_some(), "{lines:?}");
        assert!(lines.contains(&format!("event: {}", value["type"].as_str().unwrap())), "{lines:?}");
        value
    }

    async fn until(&mut self, kind: &str) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let event = self.event().await;
            if event["type"] == kind {
                return (event, before);
            }
            before.push(event);
        }
    }
}

fn piece(session: &str, retry: u64, n: u64, shown: &Value) -> Value {
    let mut piece = json!({"type": "model_delta", "session_id": session, "run": 1, "step": 1, "round": 1, "ballot": 1,
                           "attempt": 1, "retry": retry, "n": n});
    piece.as_object_mut().unwrap().extend(shown.as_object().unwrap().clone());
    piece
}

fn text(session: &str, retry: u64, n: u64, text: &str) -> Value {
    piece(session, retry, n, &json!({"kind": "text", "text": text}))
}

#[tokio::test]
async fn pieces_come_while_the_model_speaks_and_before_the_answer_is_recorded() {
    let go = Arc::new(Semaphore::new(0));
    let (server, caller) = start(vec![Wild::stream(&["It is ", "late"], true, &go)], 0).await;
    let id = caller.open("default", "go").await;
    let mut stream = Lines::open(&caller, &id, "?deltas=true", "text/event-stream").await;
    let mut plain = Lines::open(&caller, &id, "", "text/event-stream").await;
    stream.until("run_started").await;
    plain.until("run_started").await;
    go.add_permits(1);
    let (first, _) = stream.until("model_delta").await;
    assert_eq!(first, text(&id, 0, 1, "It is "));
    assert_eq!(caller.events_of(&id, "ballot_received").await, Vec::<Value>::new(), "the model still speaks");
    go.add_permits(2);
    let (ballot, before) = stream.until("ballot_received").await;
    assert_eq!(before, [text(&id, 0, 2, "late")]);
    assert_eq!(ballot["content"]["text"], "It is late");
    stream.until("run_ended").await;
    let (_, before) = plain.until("run_ended").await;
    assert!(before.iter().all(|event| event["type"] != "model_delta"), "nobody asked for pieces here: {before:?}");
    // They are gone: not in the log, and not shown to whoever comes later.
    let path = "?deltas=true&follow=false";
    let mut late = Lines::open(&caller, &id, path, "text/event-stream").await;
    let (_, before) = late.until("run_ended").await;
    assert!(before.iter().all(|event| event["seq"].is_u64()), "{before:?}");
    assert!(caller.events(&id).await.iter().all(|event| event["type"] != "model_delta"));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_broken_stream_is_marked_and_its_pieces_stay_apart() {
    let go = Arc::new(Semaphore::new(0));
    let behaviours = vec![Wild::stream(&["Let me"], false, &go), Wild::stream(&["All done"], true, &go)];
    let (server, caller) = start(behaviours, 1).await;
    let id = caller.open("default", "go").await;
    let mut stream = Lines::open(&caller, &id, "?deltas=true", "application/x-ndjson").await;
    let mut seen = Vec::new();
    loop {
        let line = stream.line().await;
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        match event["type"].as_str().unwrap() {
            "run_started" => go.add_permits(4),
            "model_delta" => seen.push(event),
            "run_ended" => break,
            _ => {}
        }
    }
    let discarded = piece(&id, 0, 2, &json!({"kind": "discarded"}));
    assert_eq!(seen, [text(&id, 0, 1, "Let me"), discarded, text(&id, 1, 1, "All done")]);
    let ballots = caller.events_of(&id, "ballot_received").await;
    assert_eq!((ballots.len(), &ballots[0]["content"]["text"]), (1, &json!("All done")));
    server.stop().await;
}

#[tokio::test]
async fn frames_go_to_clients_that_ask_and_each_ballot_has_its_number() {
    let go = Arc::new(Semaphore::new(0));
    let tool = FakeTool::ok().await;
    let mut models = Vec::new();
    for words in ["one", "two", "one"] {
        models.push(WildModel::start(vec![Wild::stream(&[words], true, &go)]).await);
    }
    let entry = |model: &WildModel| with(with(model.entry(), "/stream", json!(true)), "/timeout_ms", json!(30_000));
    let mut bundle = bundle(&entry(&models[0]), &two_tools(&tool));
    for (name, model) in ["m", "n", "o"].iter().zip(&models) {
        bundle["models"][name] = entry(model);
    }
    let consensus = json!({"n": 3, "k": 2, "models": ["m", "n", "o"], "decide": "all"});
    let profile = json!({"tools": ["look"], "consensus": consensus});
    let (server, caller) = TestServer::with_bundle(&with(bundle, "/profiles/default", profile)).await;
    let id = caller.open("default", "go").await;
    let sessions = json!([{"id": id, "last_seq": 0}]);
    let hello = json!({"type": "Hello", "protocol": 1, "client_id": "w", "observe": true, "deltas": true, "sessions": sessions});
    let mut watcher = Socket::greet(&server, hello.clone()).await;
    let mut plain = Socket::hello(&server, "p", sessions).await;
    // Another wish needs another connection.
    let mut other = hello;
    other["deltas"] = json!(false);
    watcher.send(other).await;
    assert_eq!(watcher.until("Error").await["code"], "invalid_request");
    go.add_permits(6);
    let (mut seen, mut ballots) = (Vec::new(), Vec::new());
    loop {
        let frame = watcher.next().await;
        match frame["type"].as_str().unwrap() {
            "ModelDelta" => {
                assert!(!ballots.contains(&frame["ballot"]), "a piece after its ballot: {frame}");
                seen.push((frame["ballot"].as_u64().unwrap(), frame["text"].clone()));
            }
            "StreamEvent" if frame["event"]["type"] == "ballot_received" => {
                ballots.push(frame["event"]["ballot"].clone())
            }
            "FinalOutput" => break,
            _ => {}
        }
    }
    seen.sort_by_key(|(ballot, _)| *ballot);
    assert_eq!(seen, [(1, json!("one")), (2, json!("two")), (3, json!("one"))]);
    loop {
        let frame = plain.next().await;
        assert_ne!(frame["type"], "ModelDelta");
        if frame["type"] == "FinalOutput" {
            break;
        }
    }
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_shown_to_other_tenants_or_of_secrets() {
    let go = Arc::new(Semaphore::new(0));
    let tool = FakeTool::ok().await;
    let model = WildModel::start(vec![Wild::stream(&["the pin is 1234"], true, &go)]).await;
    let entry = with(with(model.entry(), "/stream", json!(true)), "/timeout_ms", json!(30_000));
    let secretive = with(two_tools(&tool), "/act/redact", json!(["/text"]));
    let (server, caller) = TestServer::with_bundle(&bundle(&entry, &secretive)).await;
    let id = caller.open("default", "go").await;
    let sessions = json!([{"id": id, "last_seq": 0}]);
    let hello = |client: &str| json!({"type": "Hello", "protocol": 1, "client_id": client, "deltas": true, "sessions": sessions});
    let mut watcher = Socket::greet(&server, hello("w")).await;
    let foreign = server.tenant("other").await;
    let refused = foreign.get(&format!("/v1/sessions/{id}/events?deltas=true")).await;
    assert_eq!(refused.status, 422, "a page has no pieces: {}", refused.text);
    let request = foreign.request(reqwest::Method::GET, &format!("/v1/sessions/{id}/events?deltas=true"));
    assert_eq!(Caller::send(request.header("accept", "text/event-stream")).await.status, 404);
    go.add_permits(2);
    let mut shown = Vec::new();
    loop {
        let frame = watcher.next().await;
        match frame["type"].as_str().unwrap() {
            "ModelDelta" => shown.push((frame["kind"].clone(), frame.get("text").cloned())),
            "FinalOutput" => break,
            _ => {}
        }
    }
    assert_eq!(shown, [(json!("withheld"), None)]);
    server.stop().await;
}
