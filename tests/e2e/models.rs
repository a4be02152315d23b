//! Model endpoints that fail, that vote, that classify, and plain-text ones: always a recorded reason and an ending. What
//! is not here: odd answers of endpoints that work (`field_cases`).

mod classify;
mod consensus;
mod context;
mod envelope;
mod last_turn;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer, Wild, WildModel};

/// Runs a session over a model that behaves like this; the session and its ballots.
async fn run_with(behaviours: Vec<Wild>) -> (Value, Vec<Value>) {
    let (model, tool) = (WildModel::start(behaviours).await, FakeTool::ok().await);
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &two_tools(&tool))).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    let ballots = caller.events_of(&id, "ballot_received").await;
    assert!(tool.journal().is_empty());
    assert_eq!(session["status"], "idle", "a failed run leaves a session that can go on");
    caller.verified(&id).await;
    server.stop().await;
    (session, ballots)
}

/// The run ends as `provider_failed` with one ballot that says why.
async fn fails_as(what: &str, behaviour: Wild, reason: &str) {
    let (session, ballots) = run_with(vec![behaviour]).await;
    assert_eq!(session["run"]["ending"], "provider_failed", "{what}: {session:#}");
    assert_eq!(ballots.len(), 1, "{what}");
    assert_eq!((&ballots[0]["verdict"], &ballots[0]["reason"]), (&json!("failed"), &json!(reason)), "{what}");
    let detail = session["run"]["detail"].as_str().unwrap_or_default();
    assert!(!detail.is_empty() && detail.len() <= 2_000, "{what}: {detail:?}");
}

#[tokio::test]
async fn answers_that_are_no_completions_are_a_recorded_failure() {
    let html = b"<html><body><h1>502 Bad Gateway</h1></body></html>";
    for (what, content_type, body) in [
        ("HTML", "text/html", &html[..]),
        ("HTML as JSON", "application/json", html),
        ("bytes", "application/octet-stream", &[0, 255, 254, 0, 13, 10]),
        ("nothing", "application/json", b""),
        ("half a document", "application/json", br#"{"choices":[{"index":0,"mess"#),
        ("another document", "application/json", br#"{"hello":"world"}"#),
        ("an array", "application/json", b"[]"),
        ("a bare text", "application/json", br#""done""#),
        ("no choices", "application/json", br#"{"choices":[]}"#),
        ("no message", "application/json", br#"{"choices":[{"index":0,"finish_reason":"stop"}]}"#),
    ] {
        fails_as(what, Wild::response("200 OK", content_type, body), "not_a_completion").await;
    }
}

#[tokio::test]
async fn an_answer_that_is_nested_too_deep_is_unreadable() {
    let deep = Wild::response("200 OK", "application/json", "[".repeat(100_000).as_bytes());
    let (session, ballots) = run_with(vec![deep]).await;
    assert_eq!(session["run"]["ending"], "max_parse_failures_exceeded");
    assert!(ballots.iter().all(|ballot| ballot["reason"] == "too_deep"), "{ballots:#?}");
}

#[tokio::test]
async fn error_statuses_are_a_recorded_failure() {
    for (status, reason) in [
        ("500 Internal Server Error", "server_error"),
        ("503 Service Unavailable", "server_error"),
        ("429 Too Many Requests", "rate_limited"),
        ("400 Bad Request", "request_refused"),
        ("401 Unauthorized", "unauthorized"),
        ("404 Not Found", "request_refused"),
    ] {
        fails_as(status, Wild::response(status, "application/json", br#"{"error":{"message":"no"}}"#), reason).await;
    }
    // A redirect is not followed: the key would go along.
    let elsewhere = WildModel::start(vec![Wild::completion(&FakeModel::text("hello from elsewhere"))]).await;
    let target = format!("{}/chat/completions", elsewhere.entry()["base_url"].as_str().unwrap());
    let redirect = Wild::with_headers("307 Temporary Redirect", &[("location", &target)], b"");
    fails_as("a redirect", redirect, "not_a_completion").await;
    assert!(elsewhere.heads().is_empty());
}

#[tokio::test]
async fn broken_connections_are_a_recorded_failure() {
    fails_as("closes without a word", Wild::Bytes(Vec::new()), "transport").await;
    fails_as("closes in the head", Wild::Bytes(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), "transport").await;
    let short =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"choices\":[".to_vec();
    fails_as("closes in the body", Wild::Bytes(short), "transport").await;
    fails_as("speaks another protocol", Wild::Bytes(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), "transport").await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_costs_its_time_out() {
    fails_as("says nothing", Wild::Hang(Vec::new()), "timed_out").await;
    let half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{".to_vec();
    fails_as("stops in the body", Wild::Hang(half), "timed_out").await;
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let announced =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n".to_vec();
    fails_as("announces too much", Wild::Hang(announced), "too_large").await;
    let body = vec![b' '; 3 << 20];
    let mut endless =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    endless.extend(format!("{:x}\r\n", body.len()).bytes());
    endless.extend(body);
    fails_as("sends too much", Wild::Hang(endless), "too_large").await;
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_a_recorded_failure() {
    let tool = FakeTool::ok().await;
    let nobody = {
        // Bound and closed again: nobody listens here now.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let entry = json!({"provider": "openai", "base_url": format!("http://{nobody}/v1"), "model": "m", "retries": 0});
    let missing = with(json!({"models": {"m": entry.clone()}}), "/models/m/api_key_env", json!("TOOLGATE_SECRET_NONE"));
    for (entry, reason) in [(entry, "transport"), (missing["models"]["m"].clone(), "misconfigured")] {
        let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
        let id = caller.open("default", "go").await;
        assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "provider_failed");
        assert_eq!(caller.events_of(&id, "ballot_received").await[0]["reason"], reason);
        server.stop().await;
    }
}

#[tokio::test]
async fn only_what_may_pass_is_tried_again() {
    let tool = FakeTool::ok().await;
    let refused = Wild::response("400 Bad Request", "application/json", br#"{"error":{"message":"too many tools"}}"#);
    let soon = [("retry-after", "0"), ("content-type", "application/json")];
    let busy = Wild::with_headers("503 Service Unavailable", &soon, b"{}");
    let good = Wild::completion(&FakeModel::text("hello"));
    for (behaviours, ending, asked) in [
        (vec![refused], "provider_failed", 1),
        (vec![busy.clone(), busy.clone(), good], "done", 3),
        (vec![busy], "provider_failed", 4),
    ] {
        let model = WildModel::start(behaviours).await;
        let entry = with(with(model.entry(), "/retries", json!(3)), "/timeout_ms", json!(20_000));
        let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
        let id = caller.open("default", "go").await;
        let session = caller.until_ended(&id, 1).await;
        assert_eq!((&session["run"]["ending"], model.heads().len()), (&json!(ending), asked));
        assert_eq!(session["run"]["model_calls"], 1, "retries are the adapter's own");
        server.stop().await;
    }
}

#[tokio::test]
async fn the_next_message_goes_on_after_a_failure() {
    let good = Wild::completion(&FakeModel::text("back again"));
    let model = WildModel::start(vec![Wild::Bytes(b"nonsense".to_vec()), good]).await;
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &two_tools(&tool))).await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({"text": "once more"})).await.expect(202);
    let session = caller.until_ended(&id, 2).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["output"]), (&json!("done"), &json!("back again")));
    caller.verified(&id).await;
    server.stop().await;
}

/// Watches what the whole process logs for a text.
#[derive(Clone)]
struct LogWatch {
    text: String,
    written: Arc<AtomicUsize>,
    found: Arc<Mutex<Vec<String>>>,
}

impl Write for LogWatch {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written.fetch_add(1, Ordering::Relaxed);
        let line = String::from_utf8_lossy(bytes);
        if line.contains(&self.text) {
            self.found.lock().unwrap().push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything that a caller can read of a session.
async fn readable(caller: &Caller, id: &str) -> String {
    let mut all = String::new();
    for path in ["", "/events", "/calls"] {
        all.push_str(&caller.get(&format!("/v1/sessions/{id}{path}")).await.expect(200).text);
    }
    let lines = caller.request(reqwest::Method::GET, &format!("/v1/sessions/{id}/events?follow=false"));
    all.push_str(&Caller::send(lines.header("accept", "text/event-stream")).await.expect(200).text);
    all.push_str(&caller.get("/v1/sessions").await.expect(200).text);
    all
}

#[tokio::test]
async fn an_echoed_key_stands_nowhere() {
    // `.cargo/config.toml` sets this one; a test cannot set variables of its process itself.
    const VARIABLE: &str = "TOOLGATE_SECRET_TEST";
    let key = std::env::var(VARIABLE).unwrap();
    let watch = LogWatch { text: key.clone(), written: Arc::default(), found: Arc::default() };
    let writer = watch.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(log.finish()).unwrap();
    let says = |key: &str| json!({"error": {"message": format!("Incorrect API key provided: {key}"), "code": key}});
    let escaped = says(&key).to_string().replace('/', "\\/");
    let behaviours = [
        Wild::response("401 Unauthorized", "application/json", says(&key).to_string().as_bytes()),
        Wild::response("401 Unauthorized", "application/json", escaped.as_bytes()),
        Wild::response("500 Oops", &format!("text/{key}"), format!("<p>Bearer {key}</p>").as_bytes()),
        Wild::response("200 OK", "text/plain", key.as_bytes()),
        Wild::completion(&FakeModel::text(&format!("your key is {key}"))),
        Wild::completion(&FakeModel::calls(&[("look", &json!({"text": key}).to_string())])),
    ];
    let tool = FakeTool::ok().await;
    for behaviour in behaviours {
        let model = WildModel::start(vec![behaviour]).await;
        let entry = with(model.entry(), "/api_key_env", json!(VARIABLE));
        let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
        let id = caller.open("default", "go").await;
        caller.until_ended(&id, 1).await;
        assert!(model.heads()[0].contains(&format!("Bearer {key}")), "the endpoint did get the key");
        let shown = readable(&caller, &id).await;
        assert!(!shown.contains(&key) && !shown.contains(&key.replace('/', "\\/")), "{shown}");
        server.stop().await;
    }
    assert!(tool.journal().iter().all(|ran| !ran.body.contains(&key)), "{:?}", tool.journal());
    assert!(watch.written.load(Ordering::Relaxed) > 0, "nothing was logged");
    assert_eq!(*watch.found.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_failing_model_of_one_session_leaves_the_others_alone() {
    let (wild, good) = (
        WildModel::start(vec![Wild::Hang(Vec::new())]).await,
        FakeModel::start_with(vec![FakeModel::text("fine")], true).await,
    );
    let tool = FakeTool::ok().await;
    let base = with(bundle(&good.entry(), &two_tools(&tool)), "/models/wild", wild.entry());
    let bundle = with(base, "/profiles/wild", json!({"tools": ["look"], "model": "wild"}));
    let server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    caller.put_bundle(&bundle).await;
    let hanging = caller.open("wild", "go").await;
    for _ in 0..5 {
        let id = caller.open("default", "go").await;
        assert_eq!(caller.until_ended(&id, 1).await["run"]["output"], "fine");
    }
    assert_eq!(caller.until_ended(&hanging, 1).await["run"]["ending"], "provider_failed");
    server.stop().await;
}
