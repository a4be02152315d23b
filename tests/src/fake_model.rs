//! An OpenAI-style endpoint that answers given bodies in order and checks every request: each call in the history has
//! exactly one result, no result stands alone, nothing is unbounded. It fails loudly when it runs out of answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::WAIT;

/// The stub model.
#[derive(Clone)]
pub struct FakeModel {
    /// `http://127.0.0.1:PORT/v1`.
    pub base_url: String,
    inner: Arc<Inner>,
}

struct Inner {
    answers: Mutex<VecDeque<Value>>,
    repeat_last: bool,
    seen: Mutex<Seen>,
    /// Requests are answered only while this is true.
    open: watch::Sender<bool>,
    asked: watch::Sender<usize>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Value>,
    complaints: Vec<String>,
    last: Option<Value>,
}

impl FakeModel {
    /// Serves these answers in order.
    pub async fn start(answers: Vec<Value>) -> Self {
        Self::start_with(answers, false).await
    }

    /// Serves these answers in order; the last one for ever if so asked.
    pub async fn start_with(answers: Vec<Value>, repeat_last: bool) -> Self {
        let inner = Arc::new(Inner {
            answers: Mutex::new(answers.into()),
            repeat_last,
            seen: Mutex::new(Seen::default()),
            open: watch::Sender::new(true),
            asked: watch::Sender::new(0),
        });
        let router = Router::new().route("/v1/chat/completions", post(complete)).with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, inner }
    }

    /// An answer that asks for calls: name and arguments text.
    #[must_use]
    pub fn calls(calls: &[(&str, &str)]) -> Value {
        let calls: Vec<Value> = (1..)
            .zip(calls)
            .map(|(n, (name, arguments))| {
                json!({"id": format!("c{n}"), "type": "function", "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": calls}}]})
    }

    /// An answer in plain text.
    #[must_use]
    pub fn text(text: &str) -> Value {
        json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]})
    }

    /// The bundle entry for this model.
    #[must_use]
    pub fn entry(&self) -> Value {
        json!({"provider": "openai", "base_url": self.base_url, "model": "fake", "retries": 0, "timeout_ms": 10000})
    }

    /// Holds the answer to every further request back until `release`.
    pub fn hold(&self) {
        self.inner.open.send_replace(false);
    }

    /// Answers what was held back, and everything after.
    pub fn release(&self) {
        self.inner.open.send_replace(true);
    }

    /// Waits until the model has been asked this many times.
    pub async fn until_asked(&self, count: usize) {
        let mut asked = self.inner.asked.subscribe();
        let reached = tokio::time::timeout(WAIT, asked.wait_for(|asked| *asked >= count)).await;
        drop(reached.expect("the model is asked in time").expect("the model lives"));
    }

    /// The requests so far. Fails the test if one of them broke a rule.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        let seen = self.inner.seen.lock().expect("no panic holds the lock");
        assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
        seen.requests.clone()
    }
}

async fn complete(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    let request: Value = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    inner.asked.send_modify(|asked| *asked += 1);
    let mut open = inner.open.subscribe();
    if open.wait_for(|open| *open).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let mut seen = inner.seen.lock().expect("no panic holds the lock");
    seen.complaints.extend(complaints(&request));
    seen.requests.push(request);
    let next = inner.answers.lock().expect("no panic holds the lock").pop_front();
    let answer = next.or_else(|| seen.last.clone().filter(|_| inner.repeat_last));
    let Some(answer) = answer else {
        seen.complaints.push("the stub model has no answer left".to_owned());
        return (StatusCode::BAD_REQUEST, "no answer left").into_response();
    };
    seen.last = Some(answer.clone());
    axum::Json(answer).into_response()
}

/// What is wrong with a request's history.
fn complaints(request: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for message in request["messages"].as_array().map_or(&[][..], Vec::as_slice) {
        match message["role"].as_str() {
            Some("tool") => {
                let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
                match open.iter().position(|known| *known == id) {
                    Some(place) => drop(open.remove(place)),
                    None => found.push(format!("a result for `{id}`, which no call asks for")),
                }
            }
            Some("assistant") => {
                if !open.is_empty() {
                    found.push(format!("calls without results before the next answer: {open:?}"));
                }
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                open = calls.iter().filter_map(|call| call["id"].as_str().map(ToOwned::to_owned)).collect();
                if calls.iter().any(|call| !call["function"]["arguments"].is_string()) {
                    found.push("arguments in the history that are no string".to_owned());
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        found.push(format!("calls without results at the end: {open:?}"));
    }
    found
}
