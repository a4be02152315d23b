//! An admission hook that answers with a function of what it is asked, can be held back, and keeps every question.
//! What is not here: observers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::WAIT;

/// One question that reached the hook.
#[derive(Debug, Clone)]
pub struct Question {
    /// The body.
    pub body: Value,
    /// The idempotency key that came with it.
    pub idempotency_key: String,
}

type Answer = dyn Fn(&Question) -> Response + Send + Sync;

/// The stub hook.
#[derive(Clone)]
pub struct FakeHook {
    /// `http://127.0.0.1:PORT/`.
    pub url: String,
    inner: Arc<Inner>,
}

struct Inner {
    asked: watch::Sender<Vec<Question>>,
    /// Questions are answered only while this is true.
    open: watch::Sender<bool>,
    answer: Mutex<Arc<Answer>>,
}

impl FakeHook {
    /// A hook that answers with this function of the question: a whole response.
    pub async fn responding(answer: impl Fn(&Question) -> Response + Send + Sync + 'static) -> Self {
        let inner = Arc::new(Inner {
            asked: watch::Sender::new(Vec::new()),
            open: watch::Sender::new(true),
            answer: Mutex::new(Arc::new(answer)),
        });
        let router = Router::new().route("/", post(ask)).with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// A hook that answers with this function of the arguments: the verdict.
    pub async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::responding(move |question| axum::Json(answer(&question.body["arguments"])).into_response()).await
    }

    /// A hook that allows everything.
    pub async fn allowing() -> Self {
        Self::start(|_| json!({"decision": "allow"})).await
    }

    /// Answers every further question with this function of the arguments.
    pub fn change(&self, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        let answer = move |question: &Question| axum::Json(answer(&question.body["arguments"])).into_response();
        *self.inner.answer.lock().expect("no panic holds the lock") = Arc::new(answer);
    }

    /// The bundle's entry for a hook of this name and kind on these tools.
    #[must_use]
    pub fn entry(&self, name: &str, kind: &str, tools: &[&str]) -> Value {
        json!({"name": name, "kind": kind, "on": {"tools": tools}, "url": self.url})
    }

    /// Holds every further question back until `release`.
    pub fn hold(&self) {
        self.inner.open.send_replace(false);
    }

    /// Answers what was held back, and everything after.
    pub fn release(&self) {
        self.inner.open.send_replace(true);
    }

    /// What it has been asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Question> {
        self.inner.asked.borrow().clone()
    }

    /// Waits until it has been asked this many questions.
    pub async fn until_asked(&self, count: usize) {
        let mut asked = self.inner.asked.subscribe();
        let reached = tokio::time::timeout(WAIT, asked.wait_for(|asked| asked.len() >= count)).await;
        drop(reached.expect("the hook is asked in time").expect("the hook lives"));
    }
}

async fn ask(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(body) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let question = Question { body, idempotency_key: key };
    inner.asked.send_modify(|asked| asked.push(question.clone()));
    let mut open = inner.open.subscribe();
    if open.wait_for(|open| *open).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let answer = Arc::clone(&inner.answer.lock().expect("no panic holds the lock"));
    answer(&question)
}
